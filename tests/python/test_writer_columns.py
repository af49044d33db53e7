"""The columns that `atoll.Writer` takes, and those that it fills: what comes of them in the table."""

import tracemalloc

import numpy
import pandas
import polars
import pyarrow
import pytest

import atoll
from atoll import errors
from test_writer import Gated

MISSING = {
    "pandas": pandas.Series([1.5, None, 2.5], dtype="Float64"),
    "an array of pandas": pandas.array([1.5, None, 2.5], dtype="Float64"),
    "pyarrow": pyarrow.array([1.5, None, 2.5]),
    "chunks of pyarrow": pyarrow.chunked_array([[1.5, None], [2.5]]),
    "polars": polars.Series([1.5, None, 2.5]),
    "a list": [1.5, None, 2.5],
    "a masked array": numpy.ma.masked_array([1.5, 0.0, 2.5], mask=[False, True, False]),
    "objects": numpy.array([1.5, None, 2.5], dtype=object),
}


def by_pid(query: atoll.Query, name: str) -> list:
    """The values of a column, in the order of the particles."""
    found = query.numpy()
    return found[name][numpy.argsort(found["pid"])].tolist()


@pytest.mark.parametrize("given", MISSING)
def test_what_is_missing_is_missing_as_in_an_append(store, given: str):
    table = store.create_table("run", {"pid": "int64", "t": "float64?"}, id="pid", index="pid")
    pid = numpy.arange(3)
    table.append({"pid": pid, "t": MISSING[given]}, run="appended")
    with atoll.Writer(table, "written") as writer:
        writer.step(1, None, {"pid": pid, "t": MISSING[given]})
    for run in ("appended", "written"):
        assert by_pid(table.of_runs(run), "t") == [1.5, None, 2.5], run
        assert table.of_runs(run).where("t is null").count() == 1


def test_integers_of_which_some_are_missing_are_taken(store):
    table = store.create_table("run", {"pid": "int64", "kind": "int64?"}, id="pid", index="pid")
    with atoll.Writer(table, "a") as writer:
        writer.step(1, None, {"pid": [0, 1], "kind": pandas.Series([7, None], dtype="Int64")})
    assert by_pid(table.query(), "kind") == [7, None]


def test_numbers_of_numpy_in_pandas_stay_what_they_are(store):
    table = store.create_table("run", {"pid": "int64", "x": "float64"}, id="pid", index="pid")
    with atoll.Writer(table, "a") as writer:
        writer.step(1, None, {"pid": pandas.Series([0, 1]), "x": pandas.Series([0.5, numpy.nan])})
    assert table.where("x is nan").count() == 1


def test_what_another_library_holds_is_copied_too(store):
    table = store.create_table("run", {"pid": "int64", "x": "float64", "v": "float64[2]"}, id="pid", index="pid")
    gated = Gated(table)
    writer = atoll.Writer(gated, "a")
    x, v = numpy.zeros(100), numpy.empty(100, dtype=object)
    v[:] = [numpy.zeros(2) for _ in range(100)]
    writer.step(1, None, {"pid": numpy.arange(100), "x": pyarrow.array(x), "v": v})
    assert writer._pump._bytes >= 100 * (8 + 8 + 16), "of objects not their places alone count"
    x[:] = 7.0
    v[3][:] = 7.0
    gated.allowed.release()
    writer.close()
    assert not table.numpy()["x"].any() and not table.numpy()["v"].any()


def test_what_cannot_be_converted_is_refused_at_once_and_the_writer_goes_on(store):
    table = store.create_table("run", {"pid": "int64", "x": "float64?"}, id="pid", index="pid")
    with atoll.Writer(table, "a") as writer:
        with pytest.raises(errors.InvalidInputError, match='column "x"'):
            writer.step(1, None, {"pid": [1], "x": [object()]})
        writer.step(1, None, {"pid": [1], "x": [0.5]})
    assert table.count() == 1


def test_a_text_that_all_rows_have_takes_a_byte_of_each_and_no_objects(store):
    table = store.create_table("run", {"pid": "int64", "run": "utf8", "step": "uint8"}, id="pid", index="pid")
    gated = Gated(table)
    writer = atoll.Writer(gated, "a run with a long name", buffer_bytes=1 << 30)
    rows = 100_000
    writer.step(7, None, {"pid": numpy.arange(rows)}, give=True)
    assert rows * 10 <= writer._pump._bytes <= rows * 10 + 1_000
    tracemalloc.start()
    gated.allowed.release()
    writer.flush()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    writer.close()
    assert peak < 8 * rows, "a list of the texts alone takes more"
    assert table.where("run = 'a run with a long name' and step = 7").count() == rows


@pytest.mark.parametrize("kind", ["int64", "timestamp[us]", "float32"])
def test_a_time_that_the_writer_cannot_fill_is_left_to_whoever_gives_it(store, kind: str):
    table = store.create_table("run", {"pid": "int64", "time": kind}, id="pid", index="pid")
    may = store.create_table("may", {"pid": "int64", "time": f"{kind}?"}, id="pid", index="pid")
    with atoll.Writer(table, "a") as writer:
        with pytest.raises(errors.InvalidInputError, match='column "time" is') as raised:
            writer.step(1, 0.5, {"pid": [1]})
        assert "among the arrays" in raised.value.hint
        dtype = "datetime64[us]" if kind == "timestamp[us]" else kind
        writer.step(1, 0.5, {"pid": [1], "time": numpy.array([7]).astype(dtype)})
    with atoll.Writer(may, "a") as writer:
        writer.step(1, 0.5, {"pid": [1]})
    assert (table.count(), may.where("time is null").count()) == (1, 1)


def test_a_step_that_does_not_fit_its_column_is_refused_at_once(store):
    table = store.create_table("run", {"pid": "int64", "step": "int8"}, id="pid", index="pid")
    with atoll.Writer(table, "a") as writer:
        writer.step(127, None, {"pid": [1]})
        with pytest.raises(errors.InvalidInputError, match="step 128 does not fit"):
            writer.step(128, None, {"pid": [1]})
    assert table.count() == 1
