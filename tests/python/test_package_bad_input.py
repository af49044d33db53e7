"""Bad input from Python: an error that names the problem and a remedy, keeping nothing, or else a defined result."""

import ctypes
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import atoll
from atoll.errors import ConflictError, InvalidInputError, LimitError

COLUMNS = {"pid": "int64", "step": "int64", "x": "float64?", "name": "utf8?"}


@pytest.fixture
def table(tmp_path: Path):
    with atoll.open(tmp_path / "store") as store:
        yield store.create_table("t", COLUMNS, id=("pid", "step"), sample_key="pid", index=("x", "step"), unique=True)


def test_nan_infinity_and_none_in_an_index_column_are_found_by_their_own_conditions(table) -> None:
    table.append({"pid": [1, 2, 3, 4], "step": [0] * 4, "x": [0.5, np.nan, np.inf, None]}, run="r")
    assert table.where("x is nan").count() == 1
    assert table.where("x is null").count() == 1
    assert table.where(atoll.col("x") == float("inf")).count() == 1
    assert table.box(x=(0, 1)).count() == 1
    assert table.box(x=(0, None)).count() == 2
    assert table.query().count() == 4


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"pid": [5.5], "step": [1], "x": [1.0]}, 'column "pid", row 0: 5.5 does not fit int64 exactly'),
        ({"pid": [5], "step": [1], "x": ["a"]}, 'column "x" is float64 in the table, but utf8 was given'),
        ({"pid": [2**70], "step": [1], "x": [1.0]}, "do not fit 64 bits"),
        ({"pid": [5], "x": [1.0]}, 'column "step" is missing'),
        ({"pid": [5], "step": [1], "x": [1.0], "y": [1.0]}, 'the table has no column "y"'),
        ({"pid": [5], "step": [1, 2], "x": [1.0]}, 'column "pid" has 1 rows, but column "step" has 2'),
        ({"pid": [5, 6, 5], "step": [1, 1, 1]}, "pid=5, step=1 is in rows 0 and 2"),
        ({"pid": [5], "step": [1], "name": np.array([["a", "b"]])}, 'column "name" has shape (1, 2)'),
        ({"pid": [5], "step": [1], "name": np.array([["a", "b"]], dtype=object)}, 'column "name" has shape (1, 2)'),
        ({"pid": [5], "step": [1], "name": np.array("a")}, 'column "name" has shape ()'),
        ({"pid": [5, 6], "step": [1, 1], "x": [np.zeros(3), None]}, 'column "x" is float64 in the table, but float64[3]'),
    ],
)
def test_what_does_not_fit_is_refused_by_column_and_nothing_is_kept(table, data: dict, told: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        table.append(data, run="r")
    assert told in str(error.value)
    assert table.query().count() == 0


def test_instants_are_taken_where_they_fit_exactly_and_refused_otherwise(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "store") as store:
        t = store.create_table("t", {"pid": "int64", "when": "timestamp[us]"}, id="pid", index="when")
        t.append({"pid": [1], "when": np.array(["2026-01-01"], dtype="datetime64[s]")}, run="r")
        with pytest.raises(InvalidInputError, match='column "when", row 1: 5 does not fit'):
            t.append({"pid": [2, 3], "when": np.array([1000, 5], dtype="datetime64[ns]")}, run="r")
        assert t.query().count() == 1


@pytest.mark.parametrize("kind", [">M8[s]", ">M8[us]", ">m8[ms]", ">M8[D]"])
def test_instants_in_the_byte_order_of_another_machine_are_the_same_instants(tmp_path: Path, kind: str) -> None:
    foreign = np.array([1, 86_400, -5], dtype=kind)
    own = foreign.astype(foreign.dtype.newbyteorder("="))
    with atoll.open(tmp_path / "store") as store:
        t = store.create_table("t", {"pid": np.arange(3), "when": own}, id="pid", index="pid")
        t.append({"pid": [0, 1, 2], "when": foreign}, run="r")
        rows = t.numpy()
    assert rows["when"][np.argsort(rows["pid"])].tolist() == own.tolist()


def test_a_list_of_arrays_and_rows_of_objects_are_vectors(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "store") as store:
        t = store.create_table("t", {"pid": "int64", "pos": "float64[3]"}, id="pid", index="pid")
        t.append({"pid": [0, 1], "pos": [np.zeros(3), np.ones(3)]}, run="r")
        t.append({"pid": [2, 3], "pos": np.array([[2.0] * 3, [3.0] * 3], dtype=object)}, run="r")
        rows = t.numpy()
    assert rows["pos"][np.argsort(rows["pid"])].tolist() == [[float(pid)] * 3 for pid in range(4)]


def test_a_table_without_rows_and_a_step_without_rows_have_answers(table) -> None:
    for _ in range(2):
        assert table.query().count() == 0
        assert table.query().sample(0.1).arrow().num_rows == 0
        assert table.box(x=(0, 1)).first(10).arrow().num_rows == 0
        mean = table.query().mean("x")
        assert mean.is_exact and np.isnan(mean.value)
        table.append({"pid": [], "step": [], "x": []}, run="r")
    assert [step.rows for step in table.steps()] == [0, 0]


def test_a_box_inside_out_is_refused_with_its_place_and_one_without_width_is_empty(table) -> None:
    with pytest.raises(InvalidInputError, match="begins at 3 and ends at 1"):
        table.box(x=(3, 1)).count()
    with pytest.raises(InvalidInputError, match="nan"):
        table.box(x=(np.nan, 1)).count()
    assert table.box(x=(1, 1)).count() == 0


def test_ids_of_a_run_are_refused_with_where_they_are_and_another_run_may_have_them(table) -> None:
    assert table.unique
    table.append({"pid": [1, 2], "step": [0, 0], "x": [0.0, 1.0]}, run="r")
    with pytest.raises(ConflictError, match="pid=2, step=0 is in step 0 already") as error:
        table.append({"pid": [2, 3], "step": [0, 0], "x": [0.0, 1.0]}, run="r")
    assert "none of these rows were stored" in error.value.hint
    assert table.query().count() == 2
    table.append({"pid": [1, 2], "step": [0, 0], "x": [0.0, 1.0]}, run="other")
    table.delete("pid = 2", run="r")
    table.append({"pid": [2, 3], "step": [0, 0], "x": [0.0, 1.0]}, run="r")
    assert table.query().count() == 5
    with pytest.raises(ConflictError, match="another schema: its ids are unique"):
        table.store.create_table("t", COLUMNS, id=("pid", "step"), sample_key="pid", index=("x", "step"))


def test_numbers_that_are_none_are_refused_by_name_and_end_nothing(table, tmp_path: Path) -> None:
    for name in ["memory_bytes", "keep_seconds"]:
        with pytest.raises(InvalidInputError, match=name):
            atoll.open(tmp_path / "other", **{name: -1})
    with pytest.raises(InvalidInputError, match="max_rows"):
        table.query().within(relative=0.1, max_rows=-1)
    with pytest.raises(InvalidInputError, match="step"):
        table.attributes(run="r", step=-1)
    table.keep_packed()
    packer = table._packer
    for words in [{"bytes_per_second": -1}, {"idle": -1.0}, {"share": -1.0}]:
        with pytest.raises(InvalidInputError):
            table.keep_packed(**words)
        assert table._packer is packer
    table.stop_packing()


def test_the_schema_of_a_reader_is_taken_without_its_rows(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    rows = pyarrow.table({"pid": [1, 2], "x": [0.5, 1.5]})
    with atoll.open(tmp_path / "store") as store:
        reader = rows.to_reader()
        t = store.create_table("t", reader.schema, id="pid", index="x")
        t.append(reader, run="r")
        assert t.query().count() == 2


class OnlyArray:
    """A batch that is no stream."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple:
        return self._batch.__arrow_c_array__(requested_schema)


PERIODS = pd.Series(pd.period_range("2026-01", periods=2, freq="M"), name="step")
MONTHS = pa.array(PERIODS)
OF_MONTHS = pa.record_batch([pa.array([1, 2]), MONTHS], names=["pid", "step"])


@pytest.mark.parametrize(
    "data",
    [
        pd.DataFrame({"pid": [1, 2], "step": PERIODS}),
        pd.DataFrame({"pid": [1, 2]}, index=pd.PeriodIndex(PERIODS, name="step")),
        {"pid": [1, 2], "step": PERIODS.rename(None)},
        {"pid": [1, 2], "step": PERIODS.array},
        {"pid": [1, 2], "step": MONTHS},
        {"pid": [1, 2], "step": pa.chunked_array([MONTHS])},
        {"pid": [1], "step": pa.FixedSizeListArray.from_arrays(MONTHS, 2)},
        pa.table(OF_MONTHS),
        OnlyArray(OF_MONTHS),
    ],
)
def test_a_period_is_not_kept_as_a_bare_number(table, data: object) -> None:
    doors = [lambda: table.append(data, run="r"), lambda: table.load([(0, data)], run="r")]
    with atoll.Writer(table, "w") as writer:
        if not isinstance(data, OnlyArray):
            doors.append(lambda: writer.step(0, None, data))
        for door in doors:
            with pytest.raises(InvalidInputError, match='column "step" is of Arrow\'s extension type pandas.period') as error:
                door()
            assert ".dt.to_timestamp()" in error.value.hint
    assert table.count() == 0


def test_a_table_is_not_made_like_periods_and_takes_what_they_become(tmp_path: Path) -> None:
    frame = pd.DataFrame({"pid": [1, 2], "when": PERIODS})
    with atoll.open(tmp_path / "store") as store:
        for like in (frame, pa.schema([("pid", pa.int64()), ("when", MONTHS.type)]), {"pid": "i8", "when": MONTHS.type}):
            with pytest.raises(InvalidInputError, match='column "when" is of Arrow'):
                store.create_table("t", like, id="pid", index="pid")
        frame["when"] = frame["when"].dt.to_timestamp()
        t = store.create_table("t", frame, id="pid", index="pid")
        t.append(frame)
        with pytest.raises(InvalidInputError, match='column "month" is of Arrow'):
            t.add_column("month", MONTHS.type)
        assert sorted(t.numpy()["when"].astype("M8[M]").astype(str)) == ["2026-01", "2026-02"]


@pytest.mark.parametrize(
    "index",
    [
        pd.PeriodIndex(PERIODS.array),
        pd.MultiIndex.from_arrays([PERIODS.array, [7, 8]]),
        pd.MultiIndex.from_arrays([PERIODS.array, [7, 8]], names=[None, "run_of"]),
    ],
)
def test_a_table_is_made_like_a_frame_whose_unnamed_index_no_table_can_hold(tmp_path: Path, index: pd.Index) -> None:
    frame = pd.DataFrame({"pid": [1, 2]}, index=index)
    named = [name for name in index.names if name is not None]
    with atoll.open(tmp_path / "store") as store:
        t = store.create_table("t", frame, id="pid", index="pid")
        assert t.columns == ["pid", *named]
        t.append(frame)
        assert sorted(t.numpy()["pid"].tolist()) == [1, 2]
    assert list(frame.index.names) == list(index.names), "the frame itself stays as it is"


def test_rows_that_were_taken_have_no_extension_type() -> None:
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", "[1]"]))
    rows = atoll._atoll.rows(pa.table({"pid": [1, 2], "name": texts}))
    assert pa.table(rows).schema.field("name").type in (pa.string(), pa.string_view())
    assert pa.schema(rows.schema) == pa.schema(rows)


def test_extension_types_whose_values_are_those_that_are_stored_are_taken(tmp_path: Path) -> None:
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(np.arange(6, dtype="f4").reshape(2, 3))
    texts = pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", "[1]"]))
    odd = pa.ExtensionArray.from_storage(pa.bool8(), pa.array([0, 7], pa.int8()))
    with atoll.open(tmp_path / "store") as store:
        t = store.create_table("t", {"pid": "i8", "v": tensors.type, "name": "utf8", "n": "i1?"}, id="pid", index="pid")
        t.append({"pid": [0, 1], "v": tensors, "name": texts})
        t.append(pa.table({"pid": [2, 3], "v": tensors, "name": texts}))
        with pytest.raises(InvalidInputError, match='column "n" is of Arrow\'s extension type arrow.bool8') as error:
            t.append({"pid": [4, 5], "v": tensors, "name": texts, "n": odd})
        assert "storage_type" in error.value.hint
        t.append({"pid": [4, 5], "v": tensors, "name": texts, "n": odd.cast(odd.type.storage_type)})
        rows = t.numpy()
    order = np.argsort(rows["pid"])
    assert rows["v"][order].tolist() == [[0, 1, 2], [3, 4, 5]] * 3
    assert rows["name"][order].tolist() == ["{}", "[1]"] * 3
    assert rows["n"][order].tolist() == [None] * 4 + [0, 7]


@pytest.mark.parametrize(
    "ask",
    [
        lambda table: table.delete("pid" != 2),
        lambda table: table.share("pid" == 2),
        lambda table: table.runs(where="pid" == 2),
        lambda table: table.of_runs(where="pid" == 2),
        lambda table: list(table.refine(share="pid" == 2)),
    ],
)
def test_a_plain_comparison_of_python_is_no_condition(table, ask) -> None:
    table.append({"pid": [1, 2], "step": [0, 0]}, run="r")
    with pytest.raises(InvalidInputError, match="plain Python comparison|not (True|False)"):
        ask(table)
    assert table.count() == 2


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([7, "wall"], "int, str"),
        ([True, "wall"], "bool, str"),
        ([b"ab", "x"], "bytes, str"),
        ([float("inf"), "x"], "float, str"),
        ("ab", "is a single str"),
        ({"a", "b"}, "is a single set"),
        ({"a": 1, "b": 2}, "is a single dict"),
    ],
)
@pytest.mark.parametrize("door", ["append", "writer"])
def test_a_column_of_texts_takes_nothing_else(table, values: object, told: str, door: str) -> None:
    given = {"pid": [1, 2], "step": [0, 0], "name": values}
    with atoll.Writer(table, "w") as writer, pytest.raises(InvalidInputError, match=told):
        table.append(given, run="r") if door == "append" else writer.step(0, None, given)
    assert table.count() == 0


def test_what_pandas_says_where_a_value_is_missing_is_null(table) -> None:
    names = pd.Series([float("nan"), "wall", None], dtype=object).tolist()
    for step, (x, name) in enumerate([
        (pd.array([1.5, None, 2.5], dtype="Float64"), names),
        (pd.array([1, None, 2], dtype="Int64"), pd.array(["a", "b", None], dtype="string")),
    ]):  # fmt: skip
        table.append({"pid": [1, 2, 3], "step": [step] * 3, "x": x, "name": name}, run="r")
    assert table.where("x is null").count() == 2
    assert table.where("x is nan").count() == 0
    assert sorted(table.where("name is null").numpy()["pid"].tolist()) == [1, 3, 3]


def test_nan_among_floats_is_nan_and_beside_anything_else_null(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "store") as store:
        columns = {"pid": "int64", "x": "float64?", "n": "int64?", "is": "bool?", "name": "utf8?"}
        table = store.create_table("t", columns, id="pid", index="pid")
        floats, narrow = [1.5, float("nan"), None], [np.float32(1.5), np.float32("nan"), None]
        others = {"n": [1, float("nan"), None], "is": [True, float("nan"), None], "name": ["a", float("nan"), None]}
        objects = {name: np.array(values, dtype=object) for name, values in {"x": floats, **others}.items()}
        for kind, data in {"list": {"x": floats}, "objects": objects, "narrow": {"x": np.array(narrow, dtype=object)}}.items():
            given = {"pid": [0, 1, 2], **data}
            table.append(given, run=f"{kind} appended")
            with atoll.Writer(table, f"{kind} written") as writer:
                writer.step(0, None, given)
            for door in ("appended", "written"):
                rows = table.of_runs(f"{kind} {door}")
                assert (rows.where("x is nan").count(), rows.where("x is null").count()) == (1, 1), (kind, door)
        for name in others:
            for door in ("appended", "written"):
                assert table.of_runs(f"objects {door}").where(f'"{name}" is null').count() == 2


def test_nan_in_a_column_of_numpy_in_pandas_is_nan_by_whichever_door(tmp_path: Path) -> None:
    frame = pd.DataFrame({"pid": [1, 2], "x": [1.5, np.nan], "y": np.array([np.nan, 0.5], "f4")})
    with atoll.open(tmp_path / "store") as store:
        columns = {"pid": "int64", "x": "float64?", "y": "float32"}
        table = store.create_table("t", columns, id="pid", index="pid")
        for data in (frame, dict(frame), {name: frame[name].to_numpy() for name in frame}):
            table.append(data)
        table.load([(0, frame)], run="loaded")
        with atoll.Writer(table, "written") as writer:
            writer.step(0, None, frame)
        assert table.where("x is nan").count() == table.where("y is nan").count() == 5
        with pytest.raises(InvalidInputError, match='column "pid"'):
            table.append(frame.assign(pid=[1, np.nan]))
        # Where pandas has a null of its own, that marks the missing value.
        table.append(frame.convert_dtypes().assign(y=[0.5, 0.5]))
        assert table.where("x is null").count() == 1


def test_dates_beyond_what_a_table_holds_are_refused_with_their_row(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "store") as store:
        table = store.create_table("t", {"pid": "int64", "day": "date32?"}, id=("pid",), index=("pid",))
        days = np.array([0, "NaT", 5_000_000_000], dtype="datetime64[D]")
        with pytest.raises(InvalidInputError, match='column "day", row 2'):
            table.append({"pid": [0, 1, 2], "day": days})
        table.append({"pid": [0, 1], "day": days[:2]})
        assert table.where("day is null").count() == 1


def test_a_column_called_as_an_argument_is_named_in_a_mapping(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "store") as store:
        table = store.create_table("t", {"wrap": "float64"}, id=("wrap",), index=("wrap",))
        table.append({"wrap": [1.0, 5.5]})
        with pytest.raises(InvalidInputError, match="wrap"):
            table.box(wrap=(5, 6))
        assert table.box({"wrap": (5, 6)}).count() == 1


def test_two_columns_of_one_name_are_refused(table) -> None:
    twice = pa.table([pa.array([1]), pa.array([0]), pa.array([1.0]), pa.array([2.0])], names=["pid", "step", "x", "x"])
    with pytest.raises(InvalidInputError, match='two columns "x"'):
        table.append(twice, run="r")


def test_rows_that_come_after_an_append_that_was_interrupted_are_kept(table, monkeypatch) -> None:
    native = table._native

    class Interrupted:
        """A table whose append is followed by Ctrl-C before it returns."""

        def __getattr__(self, name: str) -> object:
            return getattr(native, name)

        def append(self, *words: object) -> int:
            native.append(*words)
            raise KeyboardInterrupt

    monkeypatch.setattr(table, "_native", Interrupted())
    with pytest.raises(KeyboardInterrupt):
        table.append({"pid": [1], "step": [0]})
    monkeypatch.setattr(table, "_native", native)
    table.append({"pid": [2], "step": [0]})
    assert sorted(table.numpy()["pid"].tolist()) == [1, 2]


def test_buffers_of_ctypes_are_columns(table) -> None:
    table.append({"pid": (ctypes.c_int64 * 2)(1, 2), "step": [0, 0], "x": (ctypes.c_double * 2)(0.5, 1.5)}, run="r")
    assert table.where("x = 1.5").count() == 1


def test_a_short_slice_of_texts_that_are_too_long_for_one_append_is_taken(table) -> None:
    # The pages before the slice are never touched, so the kernel allocates no memory for them.
    before, texts = 2_300_000_000, [b"wall", b"inlet"]
    values = np.zeros(before + 9, dtype="u1")
    values[before:] = np.frombuffer(b"".join(texts), dtype="u1")
    offsets = np.array([before, before + 4, before + 9], dtype="i8")
    names = pa.LargeStringArray.from_buffers(2, pa.py_buffer(offsets), pa.py_buffer(values))
    table.append(pa.table({"pid": [1, 2], "step": [0, 0], "name": names}), run="r")
    assert sorted(table.numpy()["name"].tolist()) == ["inlet", "wall"]
    long = pa.LargeStringArray.from_buffers(1, pa.py_buffer(np.array([0, before], dtype="i8")), pa.py_buffer(values))
    with pytest.raises(LimitError, match="2300000000 bytes of texts"):
        table.append(pa.table({"pid": [3], "step": [0], "name": long}), run="r")


def test_a_text_of_a_dictionary_that_is_too_long_for_all_of_its_rows_is_refused_as_a_limit(table) -> None:
    rows = 30_000
    name = pa.DictionaryArray.from_arrays(np.zeros(rows, dtype="i1"), pa.array(["x" * 100_000]))
    given = {"pid": np.arange(rows), "step": np.zeros(rows, dtype="i8"), "name": name}
    with pytest.raises(LimitError, match='column "name": .* bytes of texts') as error:
        table.append(given, run="r")
    assert "several parts" in error.value.hint
    assert table.count() == 0


@pytest.mark.parametrize("rows", [0, -1, 2.5])
def test_batches_of_no_size_are_refused_before_anything_is_read(table, rows: object) -> None:
    with pytest.raises(atoll.errors.InvalidInputError, match="row"):
        table.batches(rows)
    with pytest.raises(atoll.errors.InvalidInputError, match="row"):
        table.read().batches(rows)


def test_numbers_of_rows_units_and_readers_beyond_64_bits_are_refused_before_anything_is_read(table) -> None:
    for ask in (table.first, table.limit, table.splits):
        for count in (10**30, -1, 2.5, True, "7"):
            with pytest.raises(atoll.errors.InvalidInputError, match="a number of"):
                ask(count)
    assert len(table.limit(2**64 - 1).read()) == 0


def test_a_text_in_place_of_several_is_refused(table) -> None:
    with pytest.raises(atoll.errors.InvalidInputError, match="takes several"):
        atoll.col("name").is_in("water")
    assert str(atoll.col("name").is_in(["water"])) == str(atoll.col("name").is_in(("water",)))


@pytest.mark.parametrize("dimensions", [[0, 0, 0, 90, 90, 90], None, [1, 1, 1, 10, 170, 90], [1, 2, 3]])
def test_dimensions_of_no_box_are_refused(dimensions: object) -> None:
    with pytest.raises(atoll.errors.InvalidInputError):
        atoll.Cell.dimensions(dimensions)


def test_attributes_of_now_do_not_choose_runs_of_an_earlier_version(table) -> None:
    version = table.version()
    with pytest.raises(atoll.errors.UnsupportedError, match="attributes are current"):
        table.as_of(version).of_runs(where="temperature > 300")


@pytest.mark.parametrize("words", [{"step": 7}, {"step": 0, "time": 0.7}, {"rank": 1}, {"attempt": 3}])
def test_a_step_rank_or_attempt_of_no_run_is_refused(table, words: dict) -> None:
    with pytest.raises(InvalidInputError, match="belong to a run") as error:
        table.append({"pid": [1], "step": [7]}, **words)
    assert "run=" in error.value.hint
    assert table.steps() == []
    table.append({"pid": [1], "step": [7]}, time=0.7)
    assert [step.time for step in table.steps()] == [0.7]


@pytest.mark.parametrize(
    "values",
    [
        [0.5, 2**53 + 1],
        [np.float64(0.5), 2**53 + 1],
        [0.5, np.int64(2**53 + 1)],
        np.array([0.5, 2**53 + 1], dtype=object),
    ],
)
def test_an_integer_beside_floats_is_refused_where_it_would_be_rounded(table, values: object) -> None:
    told = r'column "x", row 1: 9007199254740993 stands beside floats'
    with pytest.raises(InvalidInputError, match=told) as error:
        table.append({"pid": [1, 2], "step": [0, 0], "x": values}, run="r")
    assert "all as integers" in error.value.hint
    with atoll.Writer(table, "w") as writer:
        with pytest.raises(InvalidInputError, match=told):
            given = {"pid": [1, 2], "step": [0, 0], "x": values}
            writer.step(0, None, given)
        writer.step(0, None, {"pid": [1, 2, 3, 4], "step": [0] * 4, "x": [0.5, 2**53, True, None]})
    assert sorted(table.numpy()["x"].compressed().tolist()) == [0.5, 1.0, 2.0**53]


@pytest.mark.parametrize("rows", [[[0.5, 1], [1, 2**53 + 1]], [np.array([0.5, 1]), np.array([1, 2**53 + 1])]])
def test_an_integer_in_a_vector_is_refused_where_it_would_be_rounded(tmp_path: Path, rows: list) -> None:
    with atoll.open(tmp_path / "store") as store:
        t = store.create_table("t", {"pid": "int64", "pos": "float64[2]"}, id="pid", index="pid")
        with pytest.raises(InvalidInputError, match='column "pos", row 1: 9007199254740993'):
            t.append({"pid": [1, 2], "pos": rows})
        with atoll.Writer(t, "w") as writer, pytest.raises(InvalidInputError, match='column "pos", row 1'):
            writer.step(0, None, {"pid": [1, 2], "pos": rows})
        t.append({"pid": [1, 2], "pos": [[0.5, 1], [1, 2**53]]})
        assert t.count() == 2


def test_a_table_that_nobody_could_drop_is_not_created(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "store") as store:
        with pytest.raises(LimitError, match="schema of a table") as error:
            store.create_table("t", {"pid": "int64", "x": "float64"}, id="pid", index="x", units={"x": "m" * (1 << 20)})
        assert "metadata" in error.value.hint
        assert store.tables() == []


def test_who_asks_for_a_column_that_is_not_there_is_told_which_there_are(table) -> None:
    for ask in (lambda: table.box(zz=(0, 1)).count(), lambda: table.where("zz > 1").count()):
        with pytest.raises(InvalidInputError, match='there is no column "zz"') as caught:
            ask()
        assert "there are: pid, step, x, name" in caught.value.hint
