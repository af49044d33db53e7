"""Deleted steps: they can be written again, and no rows given to the table are silently dropped."""

import warnings

import numpy
import pytest

import atoll
from atoll import errors

ROWS = 100


def rows(step: int, value: float = 0.0) -> dict[str, numpy.ndarray]:
    """Make the rows of a step."""
    return {"pid": numpy.arange(ROWS), "step": numpy.full(ROWS, step), "x": numpy.full(ROWS, value)}


@pytest.fixture
def run(store: atoll.Store) -> atoll.Table:
    """A run of five steps, appended through this handle."""
    columns = {"pid": "int64", "step": "int64", "x": "float64"}
    table = store.create_table("run", columns, id=("pid", "step"), index=("x", "step"))
    for step in range(5):
        table.append(rows(step), run="a", step=step)
    return table


def values(table: atoll.Table) -> dict[int, float]:
    """Return the value of each step."""
    held = table.numpy()
    assert len(held["x"]) % ROWS == 0
    return dict(zip(held["step"].tolist(), held["x"].tolist(), strict=True))


def test_what_is_appended_behind_a_delete_is_there(run: atoll.Table) -> None:
    run.delete(run="a", steps=(3, None))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in (3, 4, 5):
            run.append(rows(step, 1.0), run="a", step=step)
    assert values(run) == {0: 0.0, 1: 0.0, 2: 0.0, 3: 1.0, 4: 1.0, 5: 1.0}
    with pytest.warns(UserWarning, match="already"):
        run.append(rows(4, 2.0), run="a", step=4)
    assert values(run)[4] == 1.0


def test_a_range_of_steps_ends_before_its_end_as_the_pair_does(run: atoll.Table) -> None:
    run.delete(run="a", steps=range(1, 4))
    assert sorted(values(run)) == [0, 4]
    with pytest.raises(errors.InvalidInputError, match="no step from 4 to below 4"):
        run.delete(run="a", steps=range(4, 4))
    assert sorted(values(run)) == [0, 4]


def test_a_step_that_was_deleted_between_others_is_not_left_out_in_silence(run: atoll.Table) -> None:
    run.delete(run="a", steps=(2, 3))
    with pytest.raises(errors.ConflictError, match="replace them"):
        run.append(rows(2, 1.0), run="a", step=2)
    assert sorted(values(run)) == [0, 1, 3, 4]


def test_an_attempt_that_was_asked_for_is_not_begun_anew(run: atoll.Table) -> None:
    attempt = run.begin("a")
    for step in range(5):
        run.append(rows(step), run="a", step=step)
    run.delete(run="a", steps=(3, None))
    for told in ({}, {"attempt": attempt}):
        with pytest.raises(errors.ConflictError, match="step 3 .* was deleted"):
            run.append(rows(3, 1.0), run="a", step=3, **told)
        with pytest.raises(errors.ConflictError, match="step 3 .* was deleted"):
            run.load([(3, rows(3, 1.0))], run="a", **told)
    run.begin("a")
    run.append(rows(3, 1.0), run="a", step=3)
    assert values(run) == {0: 0.0, 1: 0.0, 2: 0.0, 3: 1.0}


@pytest.mark.parametrize("steps", [None, (0, None), (3, None)])
def test_what_is_loaded_behind_a_delete_is_there(store: atoll.Store, steps: tuple[int, None] | None) -> None:
    columns = {"pid": "int64", "step": "int64", "x": "float64"}
    table = store.create_table("run", columns, id=("pid", "step"), index=("x", "step"))
    table.load(((step, rows(step)) for step in range(6)), run="p")
    table.delete(run="p", steps=steps) if steps else table.delete(run="p")
    first = steps[0] if steps else 0
    table.load(((step, rows(step, 1.0)) for step in range(first, 6)), run="p")
    assert values(table) == {step: float(step >= first) for step in range(6)}


def test_a_load_over_steps_of_which_some_were_deleted_says_so(store: atoll.Store) -> None:
    columns = {"pid": "int64", "step": "int64", "x": "float64"}
    table = store.create_table("run", columns, id=("pid", "step"), index=("x", "step"))
    table.load(((step, rows(step)) for step in range(6)), run="p")
    table.delete(run="p", steps=(3, None))
    with pytest.raises(errors.ConflictError, match="step 3 .* was deleted"):
        table.load(((step, rows(step, 1.0)) for step in range(6)), run="p")
    assert values(table) == {0: 0.0, 1: 0.0, 2: 0.0}
