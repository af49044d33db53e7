"""The proof of the demo can fail: it finds rows that are lost, doubled, changed, or of another attempt."""

import sys
from pathlib import Path

import numpy
import pytest

sys.path.append(str(Path(__file__).parents[2] / "examples/airway"))
from ledger import Line, checksum, problems  # noqa: E402

ROWS = 50


def computed(attempt: int, step: int) -> dict[str, numpy.ndarray]:
    """Make a step as an attempt computes it."""
    random = numpy.random.default_rng((attempt, step))
    return {"pid": random.permutation(ROWS).astype("int32"), "x": random.normal(size=ROWS).astype("float32")}


def noted(attempt: int, *steps: int) -> list[Line]:
    """Return the ledger's lines about these steps."""
    return [Line(attempt, step, ROWS, checksum(computed(attempt, step))) for step in steps]


def table(*steps: tuple[int, int]) -> dict[str, numpy.ndarray]:
    """Return the rows of these steps, each as one attempt computed it."""
    parts = [computed(attempt, step) | {"step": numpy.full(ROWS, step)} for attempt, step in steps]
    return {name: numpy.concatenate([part[name] for part in parts]) for name in ("pid", "x", "step")}


#: The first attempt died in step 3; the second resumed from step 1.
LEDGER = noted(1, 1, 2, 3) + noted(2, 2, 3, 4)
WHOLE = table((1, 1), (2, 2), (2, 3), (2, 4))


def test_a_run_with_a_restart_is_whole():
    assert problems(LEDGER, WHOLE) == []


def test_the_order_of_rows_does_not_matter():
    order = numpy.random.default_rng(3).permutation(len(WHOLE["pid"]))
    assert problems(LEDGER, {name: values[order] for name, values in WHOLE.items()}) == []


def without(place: int) -> dict[str, numpy.ndarray]:
    return {name: numpy.delete(values, place) for name, values in WHOLE.items()}


def with_twice(place: int) -> dict[str, numpy.ndarray]:
    return {name: numpy.append(values, values[place]) for name, values in WHOLE.items()}


def with_one_in_place_of_another() -> dict[str, numpy.ndarray]:
    return {name: numpy.append(values[1:], values[1]) for name, values in WHOLE.items()}


def with_a_bit_turned() -> dict[str, numpy.ndarray]:
    changed = {name: values.copy() for name, values in WHOLE.items()}
    changed["x"].view("u4")[7] ^= 1
    return changed


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (without(5), "49 rows"),
        (with_twice(5), "1 of them doubled"),
        (with_one_in_place_of_another(), "1 of them doubled"),
        (with_a_bit_turned(), "step 1: 50 rows"),
        (table((1, 1), (2, 2), (2, 3)), "step 4 was computed and is not"),
        (table((1, 1), (2, 2), (2, 3), (2, 4), (2, 5)), "no attempt computed it"),
        (table((1, 1), (2, 2), (1, 3), (2, 4)), "earlier attempts"),
        (table((1, 1), (1, 2), (2, 2), (2, 3), (2, 4)), "50 of them doubled"),
    ],
    ids=["lost", "doubled", "replaced", "changed", "step lost", "step from nowhere", "old attempt", "both attempts"],
)
def test_what_is_wrong_is_found(rows, said):
    assert said in " ".join(problems(LEDGER, rows))
