"""The columns that `atoll.Writer` takes, those that it fills, and what they become in the table."""

import tracemalloc
from collections import UserList, deque

import numpy
import pandas
import polars
import pyarrow
import pytest

import atoll
from atoll import errors
from atoll._convert import native_column
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
    """Return the values of a column, in the order of the particles."""
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


#: The texts of 100 rows, in libraries that count them by their places alone, or as the whole that they are a slice of.
TEXTS = ["x" * 1_000] * 10_000
HELD = {
    "texts of Python in pandas": lambda: pandas.Series(TEXTS[:100], dtype=pandas.StringDtype("python")),
    "an array of pandas": lambda: pandas.array(TEXTS[:100], dtype=pandas.StringDtype("python")),
    "a slice of polars": lambda: polars.Series(TEXTS)[200:300],
    "a slice of pyarrow": lambda: pyarrow.array(TEXTS)[200:300],
    "a slice of views": lambda: pyarrow.array(TEXTS, pyarrow.string_view())[200:300],
}


@pytest.mark.parametrize("given", HELD)
def test_columns_of_other_libraries_count_with_the_bytes_of_their_rows(store, given: str):
    table = store.create_table("run", {"pid": "int64", "note": "utf8"}, id="pid", index="pid")
    gated = Gated(table)
    writer = atoll.Writer(gated, "a")
    writer.step(1, None, {"pid": numpy.arange(100), "note": HELD[given]()})
    texts = writer._pump._bytes - 100 * 8
    gated.allowed.release()
    writer.close()
    assert 100_000 <= texts <= 110_000
    assert table.arrow()["note"].to_pylist() == TEXTS[:100]


def test_the_values_of_a_dictionary_are_copied_with_its_rows(store):
    table = store.create_table("run", {"pid": "int64", "x": "float64", "v": "float64[2]"}, id="pid", index="pid")
    gated = Gated(table)
    writer = atoll.Writer(gated, "a")
    values = numpy.array([1.0, 2.0])
    picked = pyarrow.DictionaryArray.from_arrays(pyarrow.array(numpy.arange(200) % 2), pyarrow.array(values))
    assert numpy.shares_memory(picked.dictionary.to_numpy(), values)
    vectors = pyarrow.FixedSizeListArray.from_arrays(picked, 2)
    writer.step(1, None, {"pid": numpy.arange(100), "x": picked[:100], "v": vectors})
    values[:] = 9.0
    gated.allowed.release()
    writer.close()
    found = table.numpy()
    numpy.testing.assert_array_equal(found["x"], found["pid"] % 2 + 1.0)
    numpy.testing.assert_array_equal(found["v"], [[1.0, 2.0]] * 100)


@pytest.mark.parametrize("kind", [pyarrow.string_view(), pyarrow.binary_view()], ids=str)
def test_the_texts_behind_views_are_copied_with_them(store, kind: pyarrow.DataType):
    stored = {"string_view": "utf8", "binary_view": "binary"}[str(kind)]
    table = store.create_table("run", {"pid": "int64", "note": stored}, id="pid", index="pid")
    gated = Gated(table)
    writer = atoll.Writer(gated, "a")
    text = b"longer than a view can hold"
    data = numpy.frombuffer(text, dtype="u1").copy()
    parts = [("length", "<i4"), ("prefix", "S4"), ("buffer", "<i4"), ("offset", "<i4")]
    views = numpy.array([(len(text), text[:4], 0, 0)] * 3, dtype=parts)
    buffers = [None, pyarrow.py_buffer(views.tobytes()), pyarrow.py_buffer(data)]
    writer.step(1, None, {"pid": [1, 2, 3], "note": pyarrow.Array.from_buffers(kind, 3, buffers)})
    data[-4:] = ord("!")
    gated.allowed.release()
    writer.close()
    expected = text.decode() if stored == "utf8" else text
    assert table.arrow()["note"].to_pylist() == [expected] * 3


def test_a_column_of_which_nobody_has_a_value_is_missing_as_a_whole(store):
    table = store.create_table("run", {"pid": "int64", "note": "utf8?", "v": "float32[2]?"}, id="pid", index="pid")
    with atoll.Writer(table, "a") as writer:
        writer.step(1, None, {"pid": [1, 2], "note": ["seen", None], "v": [None, None]})
        writer.step(2, None, {"pid": [3, 4], "note": numpy.array([None, None]), "v": numpy.ones((2, 2), dtype="float32")})
        with pytest.raises(errors.InvalidInputError, match="note: 1"):
            writer.step(3, None, {"pid": [5, 6], "note": [None], "v": [None, None]})
        with pytest.raises(errors.InvalidInputError, match='column "pid"'):
            writer.step(3, None, {"pid": [None], "note": ["seen"]})
    assert by_pid(table.query(), "note") == ["seen", None, None, None]
    assert table.where("v is null").count() == 2


def test_a_known_column_that_is_given_without_a_value_is_not_filled(store):
    columns = {"pid": "int64", "step": "int64?", "time": "float64?", "run": "utf8?", "rank": "int64?"}
    table = store.create_table("run", columns, id="pid", index="pid")
    nothing = {name: [None, None] for name in ("step", "time", "run", "rank")}
    with atoll.Writer(table, "a") as writer:
        writer.step(7, 1.0, {"pid": [1, 2]} | nothing)
        writer.step(8, 2.0, {"pid": [3, 4]})
    for name, value in (("step", 8), ("time", 2.0), ("run", "a"), ("rank", 0)):
        assert by_pid(table.query(), name) == [None, None, value, value], name


def test_what_cannot_be_converted_is_refused_at_once_and_the_writer_goes_on(store):
    columns = {"pid": "int64", "x": "float64?", "v": "float64[2]?"}
    table = store.create_table("run", columns, id="pid", index="pid")
    with atoll.Writer(table, "a") as writer:
        with pytest.raises(errors.InvalidInputError, match='column "x"'):
            writer.step(1, None, {"pid": [1], "x": [object()]})
        for rows in ([[1, 2], [3]], [[1, 2], 3], ([1, 2], (3, None))):
            with pytest.raises(errors.InvalidInputError, match='column "v"'):
                writer.step(1, None, {"pid": [1, 2], "v": rows})
        writer.step(1, None, {"pid": [1], "x": [0.5]})
    assert table.count() == 1


@pytest.fixture
def kinds(store) -> atoll.Table:
    """A table with a column of each kind, all of them nullable."""
    columns = {"x": "float64?", "n": "int32?", "v": "float32[3]?", "at": "timestamp[us]?", "name": "utf8?", "is": "bool?"}
    return store.create_table("kinds", {"pid": "int64", **columns}, id="pid", index="pid")


MISFITS = {
    "half": {"x": numpy.zeros(2, dtype="f2")},
    "complex": {"x": numpy.zeros(2, dtype="c16")},
    "long": {"x": numpy.zeros(2, dtype=numpy.longdouble)},
    "instants without a unit": {"at": numpy.zeros(2, dtype="M8")},
    "hours of a duration": {"at": numpy.zeros(2, dtype="m8[h]")},
    "durations": {"at": numpy.zeros(2, dtype="m8[us]")},
    "three dimensions": {"v": numpy.zeros((2, 3, 3), dtype="f4")},
    "shorter vectors": {"v": numpy.zeros((2, 2), dtype="f4")},
    "shorter rows": {"v": [[1.0, 2.0], [3.0, 4.0]]},
    "numbers for vectors": {"v": numpy.zeros(2)},
    "vectors for numbers": {"x": numpy.zeros((2, 3))},
    "texts": {"x": numpy.array(["a", "b"])},
    "a list of texts": {"x": ["1.5", "2.5"]},
    "texts of polars": {"n": polars.Series(["1", "2"])},
    "texts of pandas": {"n": pandas.Series(["1", "2"])},
    "shorter vectors of pyarrow": {"v": pyarrow.array([[1, 2], [3, 4]], pyarrow.list_(pyarrow.float32(), 2))},
    "numbers for texts": {"name": numpy.zeros(2)},
    "numbers for truth values": {"is": numpy.zeros(2, dtype="i8")},
    "truth values for numbers": {"n": numpy.zeros(2, dtype=bool)},
    "bytes for texts": {"name": numpy.array([b"a", b"b"])},
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_a_column_of_another_type_is_refused_at_once_and_the_writer_goes_on(kinds, misfit: str):
    (name,) = MISFITS[misfit]
    good = {"pid": numpy.arange(2), "x": numpy.zeros(2), "v": numpy.zeros((2, 3), dtype="f4")}
    with atoll.Writer(kinds, "a") as writer:
        writer.step(1, None, good)
        with pytest.raises(errors.InvalidInputError, match=f'column "{name}"'):
            writer.step(2, None, {**good, **MISFITS[misfit]})
        writer.step(2, None, {**good, "x": numpy.zeros(2, dtype="i2"), "v": numpy.zeros((2, 3))})
        # A rank without rows in a step says nothing about types.
        writer.step(3, None, {"pid": [], "v": numpy.zeros(0), "x": numpy.zeros((0, 7)), "name": []})
        writer.step(4, None, good)
    assert [step.rows for step in kinds.steps()] == [2, 2, 0, 2]


def test_what_a_value_alone_shows_is_found_when_it_is_written(kinds):
    writer = atoll.Writer(kinds, "a")
    writer.step(1, None, {"pid": [1, 2], "n": numpy.array([0.0, 0.5])})
    with pytest.raises(errors.InvalidInputError, match='column "n", row 1'):
        writer.flush()
    with pytest.raises(errors.InvalidInputError, match='column "n", row 1'):
        writer.close()


def held(values: list) -> dict[str, object]:
    """Return the same values in several kinds of ordered collections."""
    return {"list": values, "tuple": tuple(values), "deque": deque(values), "sequence": UserList(values)}


@pytest.mark.parametrize("kind", held([]))
def test_bytes_and_texts_in_a_list_keep_every_byte_as_in_an_append(store, kind: str):
    columns = {"pid": "int64", "blob": "binary", "name": "utf8?"}
    table = store.create_table("run", columns, id="pid", index="pid")
    blob = [b"\x01\x00", numpy.bytes_(b"\x02\x00\x00"), b"", b"\x00"]
    names = ["a\0", float("nan"), None, "long " * 100]
    given = {"pid": [0, 1, 2, 3], "blob": held(blob)[kind], "name": held(names)[kind]}
    table.append(given, run="appended")
    plain = {"pid": [4, 5], "blob": held([b"\0", b"x"])[kind], "name": held(["b\0", numpy.str_("c\0\0")])[kind]}
    table.append(plain, run="appended")
    with atoll.Writer(table, "written") as writer:
        writer.step(0, None, given)
        writer.step(1, None, plain)
    for run in ("appended", "written"):
        assert by_pid(table.of_runs(run), "blob") == [*blob, b"\0", b"x"], run
        assert by_pid(table.of_runs(run), "name") == ["a\0", None, None, names[3], "b\0", "c\0\0"], run


def test_names_of_columns_that_do_not_fit_are_told_at_once_and_the_writer_goes_on(store):
    columns = {"pid": "int64", "step": "int64", "x": "float64", "y": "float64", "note": "utf8?"}
    table = store.create_table("run", columns, id=("pid", "step"), index="pid")
    x = {"x": [0.5], "y": [0.5]}
    with atoll.Writer(table, "a") as writer:
        writer.step(1, 0.1, {"pid": [1], **x})
        with pytest.raises(errors.InvalidInputError, match="step 2 of run 'a'.* \"x\" and \"y\"") as raised:
            writer.step(2, 0.2, {"pid": [1]})
        assert "among the arrays" in raised.value.hint
        with pytest.raises(errors.InvalidInputError, match="step 2 of run 'a'.* \"vx\"") as raised:
            writer.step(2, 0.2, {"pid": [1], "vx": [0.5], **x})
        assert "pid, step, x, y, note" in raised.value.hint
        # Another process may add a column at any time.
        store.table("run").add_column("vx", "float64")
        writer.step(2, 0.2, {"pid": [1], "vx": [0.5], **x})
        writer.step(3, 0.2, {"pid": [1], **x})
    assert (table.count(), store.table("run").where("vx = 0.5").count()) == (3, 1)


def test_what_goes_wrong_in_the_background_says_in_which_step(store):
    table = store.create_table("run", {"pid": "int32"}, id="pid", index="pid")
    writer = atoll.Writer(table, "a")
    writer.step(7, None, {"pid": [1.5]})
    for call in (writer.flush, writer.close):
        with pytest.raises(errors.InvalidInputError) as raised:
            call()
        assert raised.value.__notes__.count("in step 7 of run 'a', rank 0") == 1


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


@pytest.fixture
def wide(store) -> atoll.Table:
    """A table in which 140,000 rows take more than one object of its store may."""
    columns = {"pid": "int64", "step": "int64", "note": "float64?", "v": "float32[128]"}
    return store.create_table("wide", columns, id=("pid", "step"), index="pid")


def large(first: int) -> dict[str, numpy.ndarray]:
    """Make rows of 72 MB."""
    v = numpy.random.default_rng(1).random((140_000, 128), dtype="float32")
    return {"pid": numpy.arange(140_000) + first, "v": v}


def test_a_step_that_is_too_large_for_its_rank_is_refused_at_once_and_the_writer_goes_on(wide):
    writers = [atoll.Writer(wide, "a", rank=rank, size=2, attempt=1) for rank in range(2)]
    rows = large(0)
    # 72.8 MB, and 1.1 MB for the column that is not given.
    with pytest.raises(errors.LimitError, match=r"739\d{5} bytes.* 67108864") as raised:
        writers[0].step(1, None, rows)
    assert "more ranks" in raised.value.hint
    for writer in writers:
        writer.step(1, None, {name: values[writer.rank :: 2] for name, values in rows.items()})
    [writer.flush(timeout=300) for writer in writers]
    assert wide.count() == 140_000


def test_a_column_that_is_alike_in_all_rows_takes_no_room(store):
    rows, limit = 1_000_000, 10_000_000
    table = store.create_table("two", {"pid": "int64", "x": "float64"}, id="pid", index="x")
    writer = atoll.Writer(table, "a", rank=0, size=2, attempt=1)
    pid, alike = numpy.arange(rows), numpy.zeros(rows)
    spread, signed = alike.copy(), alike.copy()
    spread[5], signed[5] = 1, -0.0
    nan, masked = numpy.full(rows, numpy.nan), numpy.ma.masked_equal(spread, 1)

    def exceeds(x: numpy.ndarray, pid: numpy.ndarray = pid, limit: int = limit) -> bool:
        given = {"pid": pid, "x": x}
        measured = atoll._atoll.rows([native_column(name, values) for name, values in given.items()])
        may = writer._columns.may_exceed(given, ["pid"], rows, limit)
        assert may or table._native.bytes_at_most(measured)[0] <= limit, "it does not fit where the quick bound does"
        return may

    assert [exceeds(x) for x in (alike, nan, spread, signed)] == [False, False, True, True]
    # The id is stored row by row, even if it is the same in all rows.
    same = numpy.zeros(rows, dtype="int64")
    assert [exceeds(alike, same), exceeds(alike, same, limit // 2)] == [False, True]
    assert writer._columns.may_exceed({"pid": pid, "x": masked}, ["pid"], rows, limit)
    writer.close()


def exactly_one_object(count: int = 1 << 20) -> dict[str, numpy.ndarray]:
    """Make rows whose numbers alone have as many bytes as an object may, 64 MiB."""
    pid = numpy.arange(count)
    return {"pid": pid, **{f"x{number}": pid + 0.5 for number in range(7)}}


def test_a_step_whose_numbers_alone_fill_an_object_is_refused_before_it_waits(store):
    columns = {"pid": "int64", **{f"x{number}": "float64" for number in range(7)}}
    table = store.create_table("full", columns, id="pid", index="x0")
    rows = exactly_one_object()
    assert sum(values.nbytes for values in rows.values()) == table._native.block_bytes_max
    with atoll.Writer(table, "a", rank=0, size=2, attempt=1) as writer:
        with pytest.raises(errors.LimitError, match=r"6711\d{4} bytes.* 67108864"):
            writer.step(1, None, rows)
        # A little less fits, and the writer was not hurt.
        writer.step(1, None, {name: values[:-1000] for name, values in rows.items()}, give=True)
        writer._pump.drain(None)


@pytest.mark.parametrize("as_arrow", [False, True])
def test_texts_count_for_what_a_rank_may_give(store, as_arrow: bool):
    table = store.create_table("texts", {"pid": "int64", "note": "binary"}, id="pid", index="pid")
    texts = [b"x" * 1000] * 70_000
    rows = {"pid": numpy.arange(70_000), "note": pyarrow.array(texts) if as_arrow else numpy.array(texts)}
    with atoll.Writer(table, "a", rank=0, size=2, attempt=1) as writer:
        with pytest.raises(errors.LimitError, match=r"7\d{7} bytes.* 67108864"):
            writer.step(1, None, rows)
        writer.step(1, None, {name: values[:1000] for name, values in rows.items()})
        writer._pump.drain(None)


def test_texts_that_rows_share_count_for_each_row(store):
    table = store.create_table("kinds", {"pid": "int64", "kind": "utf8"}, id="pid", index="pid")
    names = pyarrow.array(["x" * 1000, "y"])
    rows = numpy.arange(70_000)
    one, other = (pyarrow.DictionaryArray.from_arrays(numpy.full(70_000, key, dtype="int8"), names) for key in (0, 1))
    with atoll.Writer(table, "a", rank=0, size=2, attempt=1) as writer:
        with pytest.raises(errors.LimitError):
            writer.step(1, None, {"pid": rows, "kind": one})
        writer.step(1, None, {"pid": rows, "kind": other})
        writer._pump.drain(None)


def test_one_process_alone_gives_larger_steps(store, wide):
    with atoll.Writer(wide, "a") as writer:
        writer.step(1, 0.5, large(0))
        writer.step(2, 1.0, {name: values[:10] for name, values in large(0).items()})
    assert [(step.step, step.time, step.rows) for step in wide.steps()] == [(1, 0.5, 140_000), (2, 1.0, 10)]
    # Also of few rows that are long.
    few = store.create_table("few", {"pid": "int64", "v": "float32[4096]"}, id="pid", index="pid")
    v = numpy.zeros((4_400, 4096), dtype="float32")
    v[:, 0] = numpy.arange(4_400)
    with atoll.Writer(few, "a") as writer:
        writer.step(1, None, {"pid": numpy.arange(4_400), "v": v})
        writer.step(2, None, {"pid": numpy.arange(10), "v": v[:10]})
    assert [(step.step, step.rows) for step in few.steps()] == [(1, 4_400), (2, 10)]


def test_one_process_alone_gives_long_texts_but_no_row_that_no_object_holds(store):
    table = store.create_table("texts", {"pid": "int64", "note": "utf8"}, id="pid", index="pid")
    with atoll.Writer(table, "a") as writer:
        with pytest.raises(errors.LimitError, match="a row of step 1 takes 4") as raised:
            writer.step(1, None, {"pid": [0, 1], "note": ["x" * (40 << 20)] * 2})
        assert "shorter texts" in raised.value.hint
        writer.step(1, None, {"pid": numpy.arange(100_000), "note": ["x" * 1000] * 100_000})
    assert table.count() == 100_000


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
