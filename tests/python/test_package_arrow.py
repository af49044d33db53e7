"""Rows go in from any tool and come out to any tool: unchanged, and without copies where none is needed."""

import array
import gc
import sys

import duckdb
import numpy
import pandas
import polars
import pyarrow
import pytest
from conftest import particles

import atoll

MADE = particles(1_000, seed=2)


def arrow_table(count: int = 1_000) -> pyarrow.Table:
    made = particles(count, seed=2)
    vectors = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(made["pos"].reshape(-1)), 3)
    return pyarrow.table({**{name: made[name] for name in ("pid", "step", "x", "type")}, "pos": vectors})


def structured() -> numpy.ndarray:
    fields = [(name, values.dtype, values.shape[1:]) for name, values in MADE.items()]
    made = numpy.empty(1_000, dtype=fields)
    for name, values in MADE.items():
        made[name] = values
    return made


IN = {
    "mapping of arrays": lambda: MADE,
    "fortran order": lambda: {**MADE, "pos": numpy.asfortranarray(MADE["pos"]), "x": MADE["x"][::-1][::-1]},
    "other byte order": lambda: {**MADE, "x": MADE["x"].astype(">f8")},
    "structured array": structured,
    "pyarrow table": arrow_table,
    "pyarrow batch": lambda: arrow_table().to_batches()[0],
    "pyarrow reader": lambda: arrow_table().to_reader(100),
    "pyarrow columns": lambda: {name: arrow_table()[name] for name in MADE},
    "polars frame": lambda: polars.from_arrow(arrow_table()),
    "polars series": lambda: {name: polars.from_arrow(arrow_table())[name] for name in MADE},
    "duckdb relation": lambda: duckdb.from_arrow(arrow_table()),
    "mixed": lambda: {**MADE, "pid": MADE["pid"].tolist(), "x": array.array("d", MADE["x"])},
}


def sorted_by_id(columns: dict) -> dict:
    order = numpy.lexsort((columns["step"], columns["pid"]))
    return {name: values[order] for name, values in columns.items()}


@pytest.mark.parametrize("source", IN)
def test_rows_come_out_as_they_went_in(store: atoll.Store, source: str) -> None:
    table = store.create_table("run", MADE, id=("pid", "step"), sample_key="pid", index="x")
    table.append(IN[source]())
    found = sorted_by_id(table.numpy())
    for name, values in sorted_by_id(MADE).items():
        assert found[name].dtype == values.dtype, name
        numpy.testing.assert_array_equal(found[name], values, err_msg=name)


def test_the_order_of_the_rows_of_a_pandas_frame_is_no_column(store: atoll.Store) -> None:
    frame = pandas.DataFrame({"pid": [3, 1, 2], "x": [0.5, 2.5, 1.5], "name": ["c", "a", None]}).sort_values("x")
    table = store.create_table("run", frame, id="pid", index="x")
    assert table.columns == ["pid", "x", "name"]
    table.append(frame)
    table.append({name: frame[name] for name in frame})
    table.append(frame.set_index("pid").sort_values("name"))
    table.append(frame.set_index(["pid", "x"]))
    assert sorted(table.numpy()["pid"]) == [1] * 4 + [2] * 4 + [3] * 4
    assert table.where("name is null and pid = 2").count() == 4
    with atoll.Writer(table, "w") as writer:
        writer.step(0, None, frame)
    assert table.where("name = 'a' and x = 2.5").count() == 5


@pytest.mark.parametrize("kind", ["counted", "spread", "texts"])
def test_an_index_of_pandas_that_has_a_name_is_a_column_by_whichever_door(store: atoll.Store, kind: str) -> None:
    labels = {"counted": pandas.RangeIndex(3, 6), "spread": pandas.Index([5, 3, 4]), "texts": pandas.Index(["b", "a", "c"])}[kind]
    frame = pandas.DataFrame({"pid": [3, 1, 2], "x": [0.5, 2.5, 1.5]}, index=labels.rename("label"))
    table = store.create_table("run", frame, id="pid", index="x")
    assert table.columns == ["pid", "x", "label"]
    may = store.create_table("may", {"pid": "i8", "x": "f8", "label": "utf8?" if kind == "texts" else "i8?"}, id="pid", index="x")
    for each in (table, may):
        each.append(frame, run="appended")
        each.load([(0, frame)], run="loaded")
        with atoll.Writer(each, "written") as writer:
            writer.step(0, None, frame)
        for run in ("appended", "loaded", "written"):
            found = each.of_runs(run).numpy()
            assert dict(zip(found["pid"].tolist(), found["label"].tolist(), strict=True)) == dict(
                zip([3, 1, 2], labels.tolist(), strict=True)
            ), run


def test_two_columns_of_one_name_in_a_frame_are_refused_by_whichever_door(store: atoll.Store) -> None:
    frame = pandas.DataFrame([[1, 0.5, 1.5]], columns=["pid", "x", "x"])
    table = store.create_table("run", {"pid": "i8", "x": "f8"}, id="pid", index="x")
    arrow = pyarrow.table([pyarrow.array([1]), pyarrow.array([0.5]), pyarrow.array([1.5])], names=["pid", "x", "x"])
    with atoll.Writer(table, "written") as writer:
        for twice in (frame, arrow):
            for take in (table.append, lambda rows: writer.step(0, None, rows)):
                with pytest.raises(atoll.errors.InvalidInputError, match='two columns "x"'):
                    take(twice)
        writer.step(0, None, frame.iloc[:, :2])
    assert table.numpy()["x"].tolist() == [0.5]


def test_a_pandas_frame_goes_in_and_comes_out(store: atoll.Store) -> None:
    frame = pandas.DataFrame({name: MADE[name] for name in ("pid", "step", "x", "type")})
    frame["name"] = [f"p{pid}" if pid % 3 else None for pid in frame["pid"]]
    table = store.create_table("run", frame, id=("pid", "step"), index="x")
    table.append(frame)
    found = table.pandas().sort_values(["pid", "step"], ignore_index=True)
    wanted = frame.sort_values(["pid", "step"], ignore_index=True)
    assert found["name"].isna().tolist() == wanted["name"].isna().tolist()
    pandas.testing.assert_frame_equal(found, wanted, check_dtype=False)


def test_every_tool_takes_an_answer_and_a_query_as_they_are(table: atoll.Table) -> None:
    query = table.select("pid", "x", "pos").sample(0.5)
    answer = query.read()
    total = answer.numpy()["x"].sum()
    assert 1_000 < len(answer) < 4_000
    assert pyarrow.table(answer)["x"].to_numpy().sum() == total
    assert polars.DataFrame(answer)["x"].sum() == pytest.approx(total)
    assert polars.DataFrame(query)["pos"].dtype == polars.Array(polars.Float32, 3)
    counted = duckdb.sql("select count(*), sum(x) from answer").fetchall()
    assert counted == [(len(answer), pytest.approx(total))]
    assert len(query.pandas()) == len(query.polars()) == query.arrow().num_rows == len(answer)


def test_nothing_is_copied_on_the_way_out(table: atoll.Table) -> None:
    answer = table.read()
    arrow, arrays = answer.arrow(), answer.numpy()
    for name in ("x", "pid", "type"):
        assert arrow[name].chunk(0).buffers()[1].address == arrays[name].ctypes.data, name
    vectors = arrow["pos"].chunk(0).flatten().buffers()[1]
    assert vectors.address == arrays["pos"].ctypes.data
    assert arrays["pos"].shape == (5_000, 3)
    assert not arrays["x"].flags.writeable


def test_arrays_outlive_the_answer_that_they_look_at(table: atoll.Table) -> None:
    xs = table.numpy()["x"]
    copied = xs.copy()
    # The next allocations overwrite any memory that is freed here.
    gc.collect()
    again = [table.numpy()["x"] for _ in range(5)]
    numpy.testing.assert_array_equal(xs, copied)
    assert all(len(one) == len(xs) for one in again)


def test_slices_of_an_answer_show_their_own_rows(table: atoll.Table) -> None:
    answer = table.read()
    whole, pieces = answer.numpy(), [piece.numpy() for piece in answer.batches(rows=999)]
    for name in whole:
        numpy.testing.assert_array_equal(numpy.concatenate([piece[name] for piece in pieces]), whole[name])
    rejoined = pyarrow.concat_tables(piece.arrow() for piece in answer.batches(rows=999))
    assert rejoined.combine_chunks() == answer.arrow()


def address(numbers: pyarrow.Array) -> int:
    """Return where the first of some doubles lies."""
    return numbers.buffers()[1].address + 8 * numbers.offset


def test_pieces_of_an_answer_without_an_order_are_slices_of_its_parts(store: atoll.Store) -> None:
    # Smaller parts are joined while they are read.
    made = particles(100_000, seed=3)
    table = store.create_table("run", made, id=("pid", "step"), sample_key="pid", index="x")
    for part in range(4):
        table.append({name: values[part::4] for name, values in made.items()})
    answer = table.unordered().read()
    parts = answer.arrow().column("x").chunks
    assert len(parts) > 1, "a single part would prove nothing"
    whole = answer.numpy()
    pieces = list(answer.batches(rows=7_777))
    assert [len(piece) for piece in pieces] == [7_777] * 12 + [6_676]
    for name in made:
        numpy.testing.assert_array_equal(numpy.concatenate([piece.numpy()[name] for piece in pieces]), whole[name])
    sliced = [chunk for piece in pieces for chunk in piece.arrow().column("x").chunks]
    assert set(map(address, parts)) <= set(map(address, sliced)), "the pieces lie in the memory of the parts"
    assert answer._repr_html_().count("<tr>") == 11
    for offset, rows, there in [(99_999, 5, 1), (100_000, 5, 0), (0, 0, 0), (2**63, 2**63, 0)]:
        few = answer._rows.slice(offset, rows)
        assert (len(few), few.columns) == (there, list(made))
    numpy.testing.assert_array_equal(sorted_by_id(whole)["x"], sorted_by_id(made)["x"])
    with pytest.raises(atoll.errors.InvalidInputError, match='no column "y"'):
        answer._rows.column("y")


def test_a_notebook_shows_an_answer_also_where_its_rows_cannot_be_taken(table: atoll.Table) -> None:
    answer = table.limit(3).read()
    rows = answer._rows

    class NoRoom:
        """Rows of which no more memory is to be had."""

        columns = rows.columns

        def __len__(self) -> int:
            return len(rows)

        def slice(self, offset: int, count: int) -> object:
            raise MemoryError

    answer._rows = NoRoom()
    assert "3 rows" in answer._repr_html_()


NULLABLE = {
    "id": "int64",
    "x": "float64?",
    "n": "int32?",
    "flag": "bool?",
    "text": "utf8?",
    "raw": "binary?",
    "day": "date32?",
    "at": "timestamp[us]?",
    "took": "duration[ms]?",
    "pos": "float32[2]",
}


def with_nulls() -> dict:
    day, at = numpy.datetime64("2026-01-02"), numpy.datetime64("2026-01-02T03:04:05.000006")
    return {
        "id": [1, 2],
        "x": [0.5, None],
        "n": [None, 7],
        "flag": [True, None],
        "text": [None, "é'"],
        "raw": [b"\0\xff", None],
        "day": numpy.array([day, "NaT"], dtype="M8[D]"),
        "at": numpy.array(["NaT", at], dtype="M8[us]"),
        "took": numpy.ma.masked_array(numpy.array([5, 6], dtype="m8[ms]"), mask=[False, True]),
        "pos": numpy.ones((2, 2), dtype="float32"),
    }


def test_missing_values_keep_their_places(store: atoll.Store) -> None:
    table = store.create_table("gaps", NULLABLE, id="id", index="id")
    table.append(with_nulls())
    found = table.arrow().sort_by("id").to_pydict()
    assert found["x"] == [0.5, None]
    assert found["n"] == [None, 7]
    assert found["flag"] == [True, None]
    assert found["text"] == [None, "é'"]
    assert found["raw"] == [b"\0\xff", None]
    assert [str(day) for day in found["day"]] == ["2026-01-02", "None"]
    assert str(found["at"][1]) == "2026-01-02 03:04:05.000006"
    assert found["took"][1] is None
    arrays = table.numpy()
    order = numpy.argsort(arrays["id"])
    assert arrays["n"][order].tolist() == [None, 7]
    assert arrays["flag"][order].tolist() == [True, None]
    assert arrays["text"][order].tolist() == [None, "é'"]
    assert str(arrays["day"][order][0]) == "2026-01-02"
    # The answer can be appended again.
    copied = store.create_table("copied", NULLABLE, id="id", index="id")
    copied.append(arrays)
    assert copied.arrow().sort_by("id").to_pydict() == found


def test_integers_may_have_another_width_and_nothing_is_rounded(store: atoll.Store) -> None:
    schema = {"id": "int64", "small": "int8", "x": "float32", "at": "timestamp[s]"}
    table = store.create_table("exact", schema, id="id", index="x")
    at = numpy.array([0], dtype="M8[ms]")
    good = {"id": numpy.array([1], dtype="uint8"), "small": [127], "x": [2], "at": at}
    table.append(good)
    for column, value, told in [
        ("small", [128], '"small", row 0: 128'),
        ("x", [2**24 + 1], '"x", row 0: 16777217'),
        ("x", [0.1], "nothing is rounded"),
        ("at", numpy.array([1], dtype="M8[ms]"), '"at", row 0: 1'),
        ("id", ["1"], '"id" is int64'),
        ("y", [1], 'no column "y"'),
        ("small", [1, 2], "2"),
        ("small", [None], "None alone"),
    ]:
        with pytest.raises(atoll.errors.InvalidInputError) as refused:
            table.append({**good, column: value})
        assert told in f"{refused.value} {refused.value.hint}", column
    with pytest.raises(atoll.errors.InvalidInputError, match='"small" is missing'):
        table.append({"id": [1], "x": [2], "at": at})
    assert len(table.read()) == 1


def test_schemas_are_read_from_whatever_describes_columns(store: atoll.Store) -> None:
    wanted = [("id", "int64", False), ("v", "fixed_size_list[float32, 3]", False), ("s", "utf8", True)]
    vector = pyarrow.list_(pyarrow.field("item", pyarrow.float32(), nullable=False), 3)
    arrow = pyarrow.schema([("id", pyarrow.int64()), pyarrow.field("v", vector, False), ("s", pyarrow.large_string())])
    described = {
        "arrow": arrow,
        "names": {"id": "i8", "v": "float32[3]", "s": "str?"},
        "types": {"id": int, "v": numpy.ones((1, 3), dtype="f4"), "s": "utf8?"},
        "numpy": {"id": numpy.int64, "v": vector, "s": pyarrow.field("s", pyarrow.string())},
    }
    for name, schema in described.items():
        table = store.create_table("same", schema, id="id", index="id")
        fields = table.schema.fields()
        assert [field[:2] for field in fields] == [field[:2] for field in wanted], name
        store = store if name == "numpy" else atoll.open("mem:")
    assert pyarrow.schema(table.schema).names == ["id", "v", "s"]


@pytest.mark.parametrize("has_pyarrow", [True, False])
def test_integers_stay_integers_in_pandas_where_some_are_missing(
    store: atoll.Store, monkeypatch: pytest.MonkeyPatch, has_pyarrow: bool
) -> None:
    schema = {"id": "int64", "parent": "int64?", "hash": "uint64?", "kind": "int8?", "all": "int64?", "x": "float64?"}
    table = store.create_table("t", schema, id="id", index="id")
    large = {"parent": 2**53 + 1, "hash": 2**64 - 1, "kind": -5}
    rows = {name: [None, value, None] for name, value in large.items()}
    table.append({"id": [0, 1, 2], **rows, "all": [1, 2, 3], "x": [0.5, None, 1.5]})
    with monkeypatch.context() as there:
        if not has_pyarrow:
            # As if it were not installed.
            there.setitem(sys.modules, "pyarrow", None)
        frame = table.pandas().sort_values("id", ignore_index=True)
    for name, value in large.items():
        assert frame[name].isna().tolist() == [True, False, True]
        assert int(frame[name][1]) == value
    assert list(map(str, frame.dtypes)) == ["int64", "Int64", "UInt64", "Int8", "int64", "float64"]
    assert list(frame.columns) == list(schema)
    table.append(frame.assign(id=[10, 11, 12]))
    assert table.where(f"parent = {2**53 + 1}").count() == 2
    frame.loc[0, "parent"] = 7
    assert table.where("parent = 7").count() == 0


@pytest.mark.parametrize("has_pyarrow", [True, False])
def test_a_frame_of_numpy_goes_in_also_without_pyarrow(
    store: atoll.Store, monkeypatch: pytest.MonkeyPatch, has_pyarrow: bool
) -> None:
    at, took = numpy.array(["2026-01-01", "NaT"], dtype="M8[ns]"), numpy.array([5, "NaT"], dtype="m8[ms]")
    frame = pandas.DataFrame({"id": [1, 2], "n": numpy.array([7, 8], "u1"), "is": [True, False], "at": at, "took": took})
    frame["x"] = numpy.array([0.5, numpy.nan], "f4")
    schema = {"id": "i8", "n": "u1", "is": "bool", "at": "timestamp[ns]?", "took": "duration[ms]?", "x": "f4", "label": "i8"}
    table = store.create_table("t", schema, id="id", index="id")
    frame.index = pandas.Index([30, 40], name="label")
    with monkeypatch.context() as there:
        if not has_pyarrow:
            # As if it were not installed.
            there.setitem(sys.modules, "pyarrow", None)
        table.append(frame)
        table.append({"label": [50, 60], **{name: frame[name] for name in frame}})
        table.load([(0, frame)], run="loaded")
        with atoll.Writer(table, "written") as writer:
            writer.step(0, None, frame)
        if not has_pyarrow:
            for ask in (
                lambda: table.append(frame.assign(id=frame["id"].astype("Int64"))),
                lambda: table.append(frame.assign(at=frame["at"].dt.tz_localize("UTC"))),
                lambda: store.create_table("like", frame, id="id", index="id"),
            ):
                with pytest.raises(atoll.errors.UnsupportedError, match="needs pyarrow") as error:
                    ask()
                assert error.value.hint == "pip install pyarrow"
    assert table.count() == 8
    found = table.where("id = 1").numpy()
    assert sorted(found["label"].tolist()) == [30, 30, 30, 50]
    assert set(found["n"].tolist()) == {7} and found["is"].all()
    assert set(found["at"].astype("M8[D]").astype(str).tolist()) == {"2026-01-01"}
    assert {each.item().total_seconds() for each in found["took"]} == {0.005}
    assert table.where("at is null and took is null and x is nan and not \"is\"").count() == 4


def test_vectors_of_integers_stay_such_in_pandas_where_some_are_missing(store: atoll.Store) -> None:
    table = store.create_table("t", {"id": "int64"}, id="id", index="id")
    table.append({"id": [1]})
    table.add_column("v", pyarrow.list_(pyarrow.int64(), 2))
    table.append({"id": [2], "v": [[2**53 + 1, 6]]})
    vectors = table.pandas().set_index("id")["v"]
    assert vectors[1] is None
    assert vectors[2].dtype == numpy.int64 and vectors[2].tolist() == [2**53 + 1, 6]


def test_a_pyarrow_that_is_too_old_for_pandas_is_not_called_missing(
    store: atoll.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = store.create_table("t", {"id": "int64"}, id="id", index="id")
    frame = pandas.DataFrame({"id": pandas.array([1, 2], dtype="Int64")})
    monkeypatch.setattr(pyarrow, "__version__", "1.0.0")
    for ask in (lambda: table.append(frame), lambda: store.create_table("like", frame, id="id", index="id")):
        with pytest.raises(atoll.errors.UnsupportedError, match=r"1\.0\.0") as error:
            ask()
        assert "not installed" not in str(error.value)
        assert error.value.hint == "pip install -U pyarrow"


def test_whether_anything_is_missing_is_told_of_the_rows_that_are_there() -> None:
    vectors = pyarrow.array([[1, 2], [3, None], [5, 6]], pyarrow.list_(pyarrow.int64(), 2))
    missing = pyarrow.array([[1, 2], None, [5, 6]], pyarrow.list_(pyarrow.int64(), 2))
    held = atoll._atoll.rows(pyarrow.table({"n": pyarrow.array([1, None, 3]), "v": vectors, "w": missing, "all": [1, 2, 3]}))
    for name in ("n", "v", "w"):
        assert held.has_missing(name) and held.slice(1, 2).has_missing(name)
        assert not held.slice(0, 1).has_missing(name) and not held.slice(2, 1).has_missing(name)
    assert not held.has_missing("all")
    with pytest.raises(atoll.errors.InvalidInputError, match="no column"):
        held.has_missing("other")
