"""What the judge of the clients accepts, and each fault that it finds."""

from judge import ended, findings

CHECKS = ("get", "set")
GOOD = {
    "client": "a client",
    "version": "1.2.3",
    "checks": ["set", "get"],
    "checks_under_way": 7,
    "checks_at_end": ["set", "get"],
    "sent_twice": 0,
    "acknowledged": 5_000,
    "lost": 0,
    "stale": 0,
    "longest_gap_ms": 2_000,
}


def found(**changed: object) -> int:
    return len(findings({**GOOD, **changed}, CHECKS))


def test_a_client_that_lost_nothing_passes() -> None:
    assert found() == 0


def test_each_fault_is_found() -> None:
    assert found(checks=["set"]) == 1
    assert found(checks=["set", "get", "more"]) == 1
    assert found(checks=None) == 2
    assert found(checks_under_way=1) == 1, "none began after the nodes changed"
    assert found(checks_at_end=["get"]) == 1
    assert found(checks_at_end=["set", "get", "more"]) == 1
    assert found(checks_at_end=[]) == 2
    assert found(sent_twice=6) == 1
    assert found(sent_twice=-2) == 1
    assert found(version="") == 1
    assert found(acknowledged=3) == 1
    assert found(lost=1) == 1
    assert found(stale=1) == 1
    assert found(longest_gap_ms=60_000) == 1


def test_the_least_that_is_enough_passes() -> None:
    assert found(checks_under_way=2, sent_twice=5) == 0


def test_what_is_not_told_is_a_fault() -> None:
    for field in GOOD:
        told = {name: value for name, value in GOOD.items() if name != field}
        assert findings(told, CHECKS), field
    assert found(lost=False) == 1
    assert found(lost="0") == 1


def test_who_cannot_look_up_is_not_asked_what_was_lost() -> None:
    assert findings({**GOOD, "lost": None, "stale": None}, CHECKS, looks_up=False) == []


def test_what_was_asked_for_and_not_tried_does_not_end_well() -> None:
    assert ended(3, 0, 0, is_asked_for=True) == ended(3, 0, 1, is_asked_for=False) == 0
    assert ended(1, 0, 1, is_asked_for=True) == 1, "one of two that were named"
    assert ended(0, 0, 1, is_asked_for=True) == ended(0, 0, 8, is_asked_for=False) == 1, "nothing was tried"
    assert ended(3, 1, 0, is_asked_for=False) == ended(0, 0, 0, is_asked_for=False) == 1
