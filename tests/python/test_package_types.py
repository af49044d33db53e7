"""The package takes what its annotations say: NumPy numbers are numbers, and errors keep their class."""

import inspect
import typing

import numpy as np
import pytest

import atoll
from atoll import _columns

WHOLE = [
    (atoll.Table.append, ("step", "rank", "attempt")),
    (atoll.Table.begin, ("ranks", "attempt")),
    (atoll.Table.at, ("step",)),
    (atoll.Table.load, ("steps", "attempt", "tree_bytes")),
    (atoll.Table.delete, ("steps",)),
    (atoll.Table.attributes, ("step",)),
    (atoll.Query.first, ("units",)),
    (atoll.Query.limit, ("rows",)),
    (atoll.Query.splits, ("readers",)),
    (atoll.Query.batches, ("rows",)),
    (atoll.Query.histogram, ("bins",)),
    (atoll.Writer.step, ("step",)),
]
NUMBERS = [
    (atoll.Table.append, ("time",)),
    (atoll.Table.at, ("time",)),
    (atoll.Table.load, ("steps",)),
    (atoll.Query.sample, ("share",)),
    (atoll.Query.near, ("radius",)),
    (atoll.Writer.step, ("time",)),
]


@pytest.mark.parametrize(("told", "annotated"), [("SupportsIndex", WHOLE), ("SupportsFloat", NUMBERS)])
def test_numbers_of_numpy_are_annotated_as_taken(told: str, annotated: list) -> None:
    assert isinstance(np.int64(3), typing.SupportsIndex) and isinstance(np.float32(3), typing.SupportsFloat)
    for function, names in annotated:
        for name in names:
            assert told in inspect.signature(function).parameters[name].annotation, f"{function.__qualname__}: {name}"


def test_arrays_are_annotated_where_they_are_taken() -> None:
    for function, name in ((atoll.Query.near, "point"), (atoll.Query.histogram, "bins")):
        assert "ArrayLike" in inspect.signature(function).parameters[name].annotation
    assert inspect.signature(atoll.AtollError.hinted).return_annotation == "Self"
    assert "Kept: TypeAlias" in inspect.getsource(_columns)


def test_an_estimate_is_annotated_where_one_is_asked_for_and_only_there() -> None:
    steps = [inspect.signature(overload).return_annotation for overload in typing.get_overloads(atoll.Table.refine)]
    assert steps == ["Iterator[Refined[None]]", "Iterator[Refined[Estimate]]"]
    assert atoll.Groups.__orig_bases__[0].__args__[1] is atoll.Estimate, "groups that were not met are not there"


def test_what_is_annotated_is_taken(table: atoll.Table) -> None:
    three, half = np.int64(3), np.float32(0.5)
    assert table.at(step=three).count() == 500
    assert len(table.limit(three).read()) == len(next(table.batches(three))) == 3
    assert len(table.histogram("x", np.linspace(0, 1, 4))) == len(table.histogram("x", three)) == 3
    attempt = table.begin("numpy", np.int64(1), attempt=np.int64(7))
    assert attempt == 7
    rows = {name: values[:1] for name, values in table.limit(1).numpy().items()}
    table.append(rows, run="numpy", step=three, time=half, rank=np.int64(0), attempt=np.int64(7))
    table.load([(np.int64(4), rows), (np.int64(5), half, rows)], run="numpy", attempt=np.int64(7))
    assert [(step.step, step.time) for step in table.steps("numpy")] == [(3, 0.5), (4, None), (5, 0.5)]
    table.delete(run="numpy", steps=(np.int64(4), None))
    assert table.of_runs("numpy").count() == 1
    for wrong in (1.5, -1, True):
        with pytest.raises(atoll.errors.InvalidInputError, match="step"):
            table.at(step=wrong)
