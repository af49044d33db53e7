"""Exit codes and --json errors, as a script sees them from outside."""

import json


def test_a_cell_that_is_not_there_is_told_by_its_own_exit_code(atoll):
    atoll("kv", "put", "p", "here", "1")
    ended = atoll("kv", "get", "p", "elsewhere", "--json", expect=10)
    assert json.loads(ended.stderr)["error"]["kind"] == "not-found"
    assert ended.stdout == b""


def test_a_condition_that_does_not_hold_is_a_conflict(atoll):
    atoll("kv", "put", "counters", "runs", "7")
    atoll("kv", "cas", "counters", "runs", "8", "--expect", "7")
    atoll("kv", "cas", "counters", "runs", "9", "--expect", "7", expect=11)
    assert atoll("kv", "get", "counters", "runs").stdout == b"8"


def test_nonsense_is_a_misuse(atoll):
    atoll("dance", expect=2)
    atoll("kv", "put", expect=2)
