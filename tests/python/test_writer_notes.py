"""What an `atoll.Writer` notes of its start: texts that are not UTF-8 and long commands never keep a run from starting."""

import os
import sys
from pathlib import Path

import numpy
import pytest

import atoll
from atoll import errors
from atoll._provenance import ATTEMPTS_MAX, COMMAND_CHARACTERS_MAX

#: The name of a file that is not UTF-8, as Python has it in `sys.argv` and in paths.
NOT_UTF_8 = os.fsdecode(b"caf\xe9")


@pytest.fixture
def table(store) -> atoll.Table:
    """An empty table."""
    return store.create_table("run", {"pid": "int64", "step": "int64"}, id=("pid", "step"), index="step")


def test_a_command_that_is_not_utf_8_is_noted_with_its_bytes_escaped(table, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "run.py", NOT_UTF_8])
    atoll.Writer(table, "a").close()
    (run,) = table.runs()
    assert run.attempt == 1
    assert r"caf\udce9" in table.attributes(run="a")["attempt.1.command"]


@pytest.mark.parametrize("given", [{"input": NOT_UTF_8}, {NOT_UTF_8: 1}, {"input": Path(NOT_UTF_8)}])
def test_an_attribute_that_cannot_be_stored_is_refused_by_name_and_begins_no_attempt(table, given: dict):
    told = "the name of an attribute" if NOT_UTF_8 in given else 'attribute "input"'
    with pytest.raises(errors.InvalidInputError, match=f"{told} has half of a surrogate pair"):
        atoll.Writer(table, "a", attributes=given)
    assert table.runs() == []
    atoll.Writer(table, "a", attributes={7: "a name that is no text"}).close()
    assert table.runs()[0].attempt == 1


def test_a_deck_that_cannot_be_stored_begins_no_attempt(table):
    with pytest.raises(errors.InvalidInputError, match='attribute "deck" has half of a surrogate pair'):
        atoll.Writer(table, "a", deck=f"read {NOT_UTF_8}")
    assert table.runs() == []


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"input": NOT_UTF_8}, 'attribute "input"'),
        ({"input": ["a", NOT_UTF_8]}, 'attribute "input"'),
        ({"input": {NOT_UTF_8: 1}}, 'a key of attribute "input"'),
        ({NOT_UTF_8: 1}, "the name of an attribute"),
    ],
)
def test_attributes_that_are_set_to_what_cannot_be_stored_are_named(table, given: dict, told: str):
    for noted in (table, table.store):
        with pytest.raises(errors.InvalidInputError, match=f"{told} has half of a surrogate pair"):
            noted.set_attributes(given)
        assert noted.attributes() == {}


def test_a_long_command_is_cut_and_stops_no_restart(table, monkeypatch):
    monkeypatch.setattr(sys, "orig_argv", ["python", "run.py", *(f"frame.{number}" for number in range(20_000))])
    for _ in range(ATTEMPTS_MAX + 5):
        atoll.Writer(table, "a").close()
    about = table.attributes(run="a")
    commands = [text for name, text in about.items() if name.endswith(".command")]
    assert len(commands) == ATTEMPTS_MAX
    for command in commands:
        assert len(command) == COMMAND_CHARACTERS_MAX
        assert command.startswith("python run.py frame.0 ") and "(cut: the command has 2" in command


def test_commands_that_an_earlier_build_kept_whole_make_room_for_the_next_start(table):
    atoll.Writer(table, "a").close()
    table.set_attributes({"attempt.1.command": "x" * 1_030_000, "notes": "y" * 5_000}, run="a")
    # Without the cut, they have no room left for the notes of this attempt.
    atoll.Writer(table, "a", deck="z" * 30_000).close()
    about = table.attributes(run="a")
    assert len(about["attempt.1.command"]) == COMMAND_CHARACTERS_MAX
    assert about["notes"] == "y" * 5_000, "only commands are cut"


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems have names in UTF-8 alone")
def test_a_checkpoint_whose_path_is_not_utf_8_counts_and_is_missed(table, tmp_path: Path):
    folder = tmp_path / NOT_UTF_8
    folder.mkdir()
    with atoll.Writer(table, "a") as writer:
        writer.step(20, None, {"pid": numpy.arange(3)})
        with writer.checkpoint(folder / "state.20") as unfinished:
            unfinished.touch()
    with atoll.Writer(table, "a") as again:
        assert again.resume(folder / "state.{step}") == (20, folder / "state.20")
    (folder / "state.20").unlink()
    with atoll.Writer(table, "a") as again, pytest.raises(errors.ConflictError, match="from step 20"):
        again.resume(folder / "state.{step}")
