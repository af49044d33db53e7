"""Columns added later: earlier rows have no value there, whether or not a handle knows the column yet."""

import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from conftest import PREFIX

import atoll

ROWS = 1_000


def rows(step: int, *, charged: bool) -> dict:
    made = {"pid": numpy.arange(ROWS), "step": numpy.full(ROWS, step), "x": numpy.linspace(0, 1, ROWS)}
    if charged:
        made["charge"] = numpy.ma.masked_array(numpy.arange(ROWS, dtype="f4"), mask=numpy.arange(ROWS) % 4 == 0)
    return made


@pytest.fixture
def grown(store: atoll.Store) -> atoll.Table:
    """A table of one step without a column, one with it, and one more without."""
    table = store.create_table("run", rows(0, charged=False), id=("pid", "step"), index=("x", "step"))
    table.append(rows(1, charged=False))
    table.add_column("charge", "float32", unit="e", description="partial charge")
    table.append(rows(2, charged=True))
    table.append(rows(3, charged=False))
    return table


def test_rows_from_before_have_no_value_packed_and_not(grown: atoll.Table) -> None:
    assert grown.columns == ["pid", "step", "x", "charge"]
    for _ in range(2):
        found = grown.numpy()
        expected = (found["step"] == 2) & (found["pid"] % 4 > 0)
        numpy.testing.assert_array_equal(~numpy.ma.getmaskarray(found["charge"]), expected)
        numpy.testing.assert_array_equal(found["charge"][expected], found["pid"][expected])
        assert grown.where("charge is null").count() == 2 * ROWS + ROWS // 4
        assert len(grown.where(atoll.col("charge") >= 500).select("charge").read()) == 375
        assert grown.where("charge is not null").mean("charge").value == pytest.approx(500.0)
        grown.pack(whole=True)


def test_the_unit_of_a_column_is_kept_with_it(grown: atoll.Table) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    field = pyarrow.schema(grown.schema).field("charge")
    assert field.metadata == {b"unit": b"e", b"description": b"partial charge"}
    assert pyarrow.table(grown.limit(1)).schema.field("charge").nullable


def test_an_older_version_has_the_columns_that_it_had(grown: atoll.Table) -> None:
    version = grown.version()
    grown.add_column("mass", float)
    assert "mass" not in grown.as_of(version).limit(1).numpy()
    assert "mass" in grown.limit(1).numpy()
    with pytest.raises(atoll.errors.InvalidInputError, match="mass"):
        grown.as_of(version).where("mass > 1").read()


def test_a_name_that_is_taken_is_refused_and_the_same_column_is_not(grown: atoll.Table) -> None:
    version = grown.add_column("charge", "float32", unit="e", description="partial charge")
    assert grown.add_column("charge", "float32", unit="e", description="partial charge") == version
    for name, kind in [("charge", "float64"), ("x", "float64"), ("bad", "float63")]:
        with pytest.raises(atoll.errors.InvalidInputError):
            grown.add_column(name, kind)


def test_another_process_asks_and_appends_with_a_column_that_it_was_not_told_of(grown: atoll.Table) -> None:
    code = """
store = atoll.open(sys.argv[1])
table = store.table("run")
print("open", flush=True)
sys.stdin.readline()
table.append({"pid": [1], "step": [9], "x": [0.5], "mass": [2.5]})
print(table.columns, table.where("mass is null").count())
"""
    command = [sys.executable, "-c", PREFIX + code, grown.store.url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "open\n"
        grown.add_column("mass", "float64")
        told, _ = other.communicate("go\n", timeout=60)
    assert told == f"{grown.columns} {3 * ROWS}\n"
    assert grown.where("mass = 2.5").count() == 1


def test_stores_of_which_some_have_a_column_are_one_table(tmp_path: Path) -> None:
    for name, charged in [("a", False), ("b", True)]:
        with atoll.open(tmp_path / name) as store:
            table = store.create_table("run", rows(0, charged=False), id=("pid", "step"), index="x")
            if charged:
                table.add_column("charge", "float32")
            table.append(rows(1, charged=charged))
    with atoll.open([tmp_path / "a", tmp_path / "b"]) as stores:
        both = stores.table("run")
        assert both.columns == ["pid", "step", "x", "charge"]
        assert both.where("charge is not null").count() == ROWS * 3 // 4
        assert len(both.sample(0.5).where("charge is null").read()) > 0
    with atoll.open(tmp_path / "a") as store:
        store.table("run").add_column("charge", "float64")
    stores = atoll.open([tmp_path / "a", tmp_path / "b"])
    with stores, pytest.raises(atoll.errors.InvalidInputError, match="charge"):
        stores.table("run")


def test_texts_and_times_that_are_masked_have_no_value(store: atoll.Store) -> None:
    columns = {"pid": "int64", "name": "utf8?", "at": "timestamp[us]?", "day": "date32?"}
    table = store.create_table("masked", columns, id="pid", index="pid")
    hidden = [False, True, False]
    times = numpy.array(["2026-01-01", "2026-01-02", "NaT"], dtype="datetime64[us]")
    table.append(
        {
            "pid": numpy.arange(3),
            "name": numpy.ma.masked_array(["a", "b", "c"], mask=hidden),
            "at": numpy.ma.masked_array(times, mask=hidden),
            "day": numpy.ma.masked_array(times.astype("datetime64[D]"), mask=hidden),
        }
    )
    for column, there in [("name", [0, 2]), ("at", [0]), ("day", [0])]:
        found = table.where(f"{column} is not null").numpy()["pid"]
        assert sorted(found.tolist()) == there, column
    strict = store.create_table("strict", {"pid": "int64", "name": "utf8"}, id="pid", index="pid")
    with pytest.raises(atoll.errors.InvalidInputError, match="name"):
        strict.append({"pid": [1, 2, 3], "name": numpy.ma.masked_array(["a", "b", "c"], mask=hidden)})


def test_a_schema_shows_names_types_and_what_is_noted(store: atoll.Store) -> None:
    table = store.create_table(
        "shown", {"pid": "int64", "pos": "float32[3]?", "at": "timestamp[us]?", "name": "str?"}, id="pid", index="pid"
    )
    table.add_column("charge", "float32", unit="e", description="partial charge")
    table.add_column("mass", "float64", unit="u")
    table.add_column("kind", "int8", description="of the wall")
    assert repr(table.schema).splitlines() == [
        "<atoll schema>",
        "  pid: int64",
        "  pos: float32[3]?",
        "  at: timestamp[us]?",
        "  name: utf8?",
        "  charge: float32? in e, partial charge",
        "  mass: float64? in u",
        "  kind: int8?, of the wall",
    ]
    # The printed schema makes the same columns.
    shown = [line.strip().split(": ") for line in repr(table.schema).splitlines()[1:5]]
    assert store.create_table("again", dict(shown), id="pid", index="pid").schema.fields() == table.schema.fields()[:4]


def test_the_notes_of_an_arrow_schema_are_those_of_the_columns(store: atoll.Store) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    told = {"unit": "Å/ps", "description": "along the pipe"}
    # What libraries and programs keep there for themselves differs from file to file, and is no note.
    own = {"PARQUET:field_id": "3", "ARROW:x": "", "_PL_y": "", "seen by": "us"}
    field = pyarrow.field("vz", pyarrow.float64(), metadata={**told, **own})
    schema = pyarrow.schema([pyarrow.field("id", pyarrow.int64(), metadata={"unit": "1"}), field])
    described = {"schema": schema, "mapping": {name: schema.field(name) for name in schema.names}, "rows": schema.empty_table()}
    for name, given in described.items():
        table = store.create_table(name, given, id="id", index="vz")
        found = pyarrow.schema(table.schema).field("vz").metadata
        assert found == {key.encode(): text.encode() for key, text in told.items()}, name
        table.append({"id": [1, 2], "vz": [0.5, 1.5]})
        assert table.mean("vz").value_unit == "Å/ps" and table.mean("id").value_unit == "1"
        # The schema that a table has makes the same table again.
        again = store.create_table(name, table.schema, id="id", index="vz")
        assert again.count() == 2
    grown = store.create_table("grown", {"id": "int64"}, id="id", index="id")
    grown.add_column("vz", field, unit="nm/ps")
    assert repr(grown.schema).splitlines()[-1] == "  vz: float64? in nm/ps, along the pipe"


def test_a_column_has_the_unit_that_is_given_beside_its_type(store: atoll.Store) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    arrow = pyarrow.schema([("id", pyarrow.int64()), pyarrow.field("vz", pyarrow.float64(), metadata={"unit": "nm/ps"})])
    example = {"id": numpy.arange(3), "vz": numpy.zeros(3)}
    pandas = pytest.importorskip("pandas")
    schemas = [arrow, {"id": "int64", "vz": "float64"}, {"id": int, "vz": float}, example, pandas.DataFrame(example)]
    for place, schema in enumerate(schemas):
        table = store.create_table(f"run {place}", schema, id="id", index="vz", units={"vz": "Å/ps"})
        assert pyarrow.schema(table.schema).field("vz").metadata == {b"unit": "Å/ps".encode()}, place
    described = {"id": int, "vz": float}
    table = store.create_table("run", described, id="id", index="vz", units={"vz": "Å/ps"})
    table.append({"id": [1], "vz": [2.0]})
    assert repr(table.mean("vz")) == "2 Å/ps (exact)"
    for units, told in [(None, 'the unit of column "vz" is "Å/ps", and not none'), ({"vz": "m/s"}, 'and not "m/s"')]:
        with pytest.raises(atoll.errors.ConflictError, match=told):
            store.create_table("run", described, id="id", index="vz", units=units)
    for units, told in [({"vx": "m"}, '"vx", which is no'), ({"vz": 3}, "a unit is a text"), ("m", "units are texts")]:
        with pytest.raises(atoll.errors.InvalidInputError, match=told):
            store.create_table("other", described, id="id", index="vz", units=units)
    assert "other" not in store.tables()


def test_the_times_of_steps_have_the_unit_of_the_table(store: atoll.Store) -> None:
    described = {"id": "int64", "step": "int64", "x": "float64"}
    made = {"schema": described, "id": "id", "index": ("x", "step")}
    table = store.create_table("run", **made, time_unit="<ps>")
    table.append({"id": [1], "step": [5], "x": [0.0]}, run="a", step=5, time=2.5)
    assert (table.time_unit, table.info().time_unit) == ("<ps>", "<ps>")
    assert repr(table).endswith("; times in <ps>>")
    assert ", times in &lt;ps&gt;</p>" in table._repr_html_()
    assert [step.time for step in table.steps()] == [2.5]
    assert store.table("run").time_unit == store.create_table("run", **made, time_unit="<ps>").time_unit == "<ps>"
    with pytest.raises(atoll.errors.ConflictError, match='the times of its steps have "<ps>", and not "fs"'):
        store.create_table("run", **made, time_unit="fs")
    plain = store.create_table("plain", **made)
    assert plain.time_unit is None and store.create_table("plain", **made).time_unit is None
    assert "times in" not in repr(plain) + plain._repr_html_()
    for unit in ["", 3, "p\ns"]:
        with pytest.raises(atoll.errors.InvalidInputError):
            store.create_table("other", **made, time_unit=unit)
    assert "other" not in store.tables()


def test_a_simulation_opens_the_table_that_the_command_line_made_with_a_unit(atoll, tmp_path: Path) -> None:
    import atoll as package

    atoll("table", "create", "run", "--column", "id:int64,vz:float64", "--id", "id", "--index", "vz", "--unit", "vz=Å/ps")
    with package.open(tmp_path / "store") as opened:
        table = opened.create_table("run", {"id": int, "vz": float}, id="id", index="vz", units={"vz": "Å/ps"})
        table.append({"id": [1], "vz": [2.0]})
        assert table.sum("vz").value_unit == "Å/ps"
