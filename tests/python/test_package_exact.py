"""Values that need no change are taken whatever their type: times of Python, exact floats, lists as vectors."""

import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import child

import atoll
from atoll.errors import InvalidInputError, NotFoundError

UTC = datetime.UTC
DAY = datetime.datetime(2026, 1, 2)


def table_of(tmp_path: Path, kind: str) -> atoll.Table:
    return atoll.open(tmp_path / "store").create_table("t", {"id": "int64", "v": kind}, id="id", index="id")


def taken(tmp_path: Path, kind: str, values: object) -> list:
    """Return what a table holds after the values were given to `append` and to a writer."""
    table, count = table_of(tmp_path, kind), len(values)
    table.append({"id": range(count), "v": values})
    with atoll.Writer(table, "w") as writer:
        writer.step(0, None, {"id": np.arange(count) + 100, "v": values})
    found = table.numpy()
    held = found["v"][np.argsort(found["id"])].tolist()
    assert held[:count] == held[count:]
    return held[:count]


def test_the_sign_of_a_zero_in_a_list_is_kept(tmp_path: Path) -> None:
    assert [str(zero) for zero in taken(tmp_path, "float64?", [-0.0, None, 0.0, 0])] == ["-0.0", "None", "0.0", "0.0"]


@pytest.mark.parametrize(
    ("kind", "values", "wanted"),
    [
        ("timestamp[us]", [DAY], [DAY]),
        ("timestamp[s]?", [DAY, None, pd.NaT], [DAY, None, None]),
        ("timestamp[us]", [pd.Timestamp(DAY), DAY + datetime.timedelta(microseconds=1)], [DAY, DAY.replace(microsecond=1)]),
        ("timestamp[us]", [datetime.datetime(2026, 1, 2, 5, tzinfo=datetime.timezone(datetime.timedelta(hours=5)))], [DAY]),
        ("timestamp[us]", [pd.Timestamp(DAY, tz="UTC"), DAY.replace(tzinfo=UTC)], [DAY, DAY]),
        ("timestamp[us]", [DAY.date()], [DAY]),
        ("timestamp[us]", np.array(["2026-01-02"], dtype="M8[D]"), [DAY]),
        ("date32", [DAY.date(), datetime.date(1969, 1, 1)], [DAY.date(), datetime.date(1969, 1, 1)]),
        ("date32", [DAY], [DAY.date()]),
        ("duration[ms]", [datetime.timedelta(seconds=5), pd.Timedelta("1ms")], [datetime.timedelta(seconds=5), datetime.timedelta(milliseconds=1)]),
        ("duration[ms]?", [pd.NaT, pd.Timedelta("1ms")], [None, datetime.timedelta(milliseconds=1)]),
        ("timestamp[us]", np.array([DAY], dtype=object), [DAY]),
        ("timestamp[s]", np.array(["2026-01-02T03"], dtype="M8[h]"), [DAY.replace(hour=3)]),
        ("timestamp[us]?", np.array(["2026-01-02T03:04", "NaT"], dtype=">M8[m]"), [DAY.replace(hour=3, minute=4), None]),
        ("timestamp[us]", np.array([4, 8], dtype="M8[25us]"), [datetime.datetime(1970, 1, 1, 0, 0, 0, us) for us in (100, 200)]),
        ("date32", np.array(["2026-01-01"], dtype="M8[W]"), [datetime.date(2026, 1, 1)]),
        ("date32", np.array(["2024-03", "1969-12"], dtype="M8[M]"), [datetime.date(2024, 3, 1), datetime.date(1969, 12, 1)]),
        ("timestamp[ms]", np.array(["2024"], dtype="M8[Y]"), [datetime.datetime(2024, 1, 1)]),
        ("date32", [np.datetime64("2024-03"), np.datetime64("2024-03-02")], [datetime.date(2024, 3, 1), datetime.date(2024, 3, 2)]),
        ("duration[ms]", np.array([1, -2], dtype="m8[D]"), [datetime.timedelta(days=1), datetime.timedelta(days=-2)]),
        ("duration[s]?", np.ma.masked_array([2, 2**62], [False, True], dtype="m8[W]"), [datetime.timedelta(weeks=2), None]),
        ("duration[us]", np.array([5_000_000], dtype="m8[ps]"), [datetime.timedelta(microseconds=5)]),
        ("float32", [0.5, float("inf"), 1], [0.5, float("inf"), 1.0]),
        ("float32", np.array([0.5, -0.25]), [0.5, -0.25]),
        ("float32[2]", [[0.5, 1.0], [2.0, 3.0]], [[0.5, 1.0], [2.0, 3.0]]),
        ("int32?", [3.0, None, -(2.0**31)], [3, None, -(2**31)]),
        ("uint64", np.array([2.0**63]), [2**63]),
        ("int8", np.array([5], dtype="f4"), [5]),
        ("int64[2]", np.array([[1.0, 2.0]]), [[1, 2]]),
    ],
)  # fmt: skip
def test_what_changes_no_value_is_taken(tmp_path: Path, kind: str, values: object, wanted: list) -> None:
    assert taken(tmp_path, kind, values) == wanted


@pytest.mark.parametrize(
    ("kind", "values", "told"),
    [
        ("date32", [DAY, DAY + datetime.timedelta(hours=1)], "row 1: "),
        ("timestamp[ns]", np.array(["2026-01-02", "2300-01-01"], dtype="M8[D]"), "row 1: "),
        ("float32", [0.5, 0.1], "row 1: 0.1 does not fit float32 exactly"),
        ("float32", np.array([0.5, 1e300]), "row 1: 1e300 does not fit"),
        ("int32", [3.0, 3.5], "row 1: 3.5 does not fit int32 exactly"),
        ("int32", np.array([0.0, np.nan]), "row 1: NaN does not fit"),
        ("int32", np.array([2.0**31]), "row 0: 2147483648.0 does not fit|row 0: 2147483648 does not fit"),
        ("int64", np.array([0.0, 2.0**63]), "row 1: 9223372036854775808 does not fit"),
        ("uint8", np.array([np.inf]), "row 0: inf does not fit"),
        ("float32[2]", np.array([[0.5, 1], [2, 0.1]]), "row 1: 0.1 does not fit"),
        ("bool", [0.5], "is bool in the table, but float64 was given"),
        ("timestamp[us]", [DAY, DAY.date()], "of the types date, datetime mixed"),
        ("timestamp[ns]", [datetime.datetime(3000, 1, 1), pd.Timestamp("2026-01-01T00:00:00.000000001")], "mixed"),
    ],
)  # fmt: skip
def test_what_would_change_a_value_is_refused_by_its_row(tmp_path: Path, kind: str, values: object, told: str) -> None:
    table = table_of(tmp_path, kind)
    with pytest.raises(InvalidInputError, match=told):
        table.append({"id": range(len(values)), "v": values})
    assert table.count() == 0


def test_what_comes_out_of_a_frame_library_goes_in_again(tmp_path: Path) -> None:
    table = table_of(tmp_path, "float32[3]?")
    vectors = pa.array([[1.0, 2.0, 3.0], None, [4.0, 5.0, 6.0]], pa.list_(pa.float32(), 3))
    table.append({"id": [0, 1, 2], "v": vectors})
    frame = table.where("id < 3").pandas()
    table.append(frame.assign(id=frame["id"] + 10))
    table.append(pl.DataFrame({"id": [20, 21, 22], "v": [[1.0, 2.0, 3.0], None, [4.0, 5.0, 6.0]]}))
    table.append(pa.table({"id": [30, 31, 32], "v": pa.array(vectors.to_pylist(), pa.large_list(pa.float64()))}))
    with atoll.Writer(table, "w") as writer:
        writer.step(0, None, {"id": np.arange(40, 43), "v": frame.sort_values("id")["v"]})
    found = table.polars().sort("id")["v"].to_list()
    assert len(found) == 15
    for start in range(0, 15, 3):
        assert found[start : start + 3] == [[1.0, 2.0, 3.0], None, [4.0, 5.0, 6.0]]
    with pytest.raises(InvalidInputError, match='column "v", row 1: .* vectors of 3 .* one of 2 was given'):
        table.append(pl.DataFrame({"id": [50, 51], "v": [[1.0, 2.0, 3.0], [4.0, 5.0]]}))


def test_an_array_that_lies_across_is_told_how_it_is_turned(tmp_path: Path) -> None:
    table = table_of(tmp_path, "float64[3]")
    across = {"id": np.arange(4), "v": np.zeros((3, 4))}
    for given in (across, dict(reversed(across.items()))):
        with pytest.raises(InvalidInputError, match="3") as error:
            table.append(given)
        assert "v.T" in error.value.hint
    with atoll.Writer(table, "w") as writer, pytest.raises(InvalidInputError, match="the same length") as error:
        writer.step(0, None, across)
    assert "v.T" in error.value.hint
    table.append({"id": np.arange(4), "v": across["v"].T})
    with pytest.raises(InvalidInputError, match="has 4 rows") as error:
        table.append({"id": np.arange(4), "v": np.zeros((5, 3))})
    assert error.value.hint is None


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("timestamp[ns]", np.array([1_000, 1_001], dtype="M8[ps]")),
        ("timestamp[s]", np.array([0, 2**62], dtype="M8[h]")),
        ("timestamp[s]", np.array([0, -(2**58)], dtype="M8[m]")),
        ("date32", np.array([0, 2**60], dtype="M8[M]")),
        ("duration[s]", np.array([0, 2**63 - 1], dtype="m8[W]")),
        ("duration[s]", np.array([0, 1 << 57], dtype="m8[h]")),
    ],
)
def test_times_of_a_unit_that_a_table_lacks_are_refused_where_they_would_be_cut_or_wrap_around(
    tmp_path: Path, kind: str, values: np.ndarray
) -> None:
    table = table_of(tmp_path, kind)
    with pytest.raises(InvalidInputError, match='column "v", row 1'):
        table.append({"id": [0, 1], "v": values})
    assert table.count() == 0


@pytest.mark.parametrize("dtype", ["M8", "m8", "m8[Y]", "m8[M]"])
def test_times_without_a_unit_and_durations_of_no_length_are_refused(tmp_path: Path, dtype: str) -> None:
    table = table_of(tmp_path, "duration[s]" if dtype[0] == "m" else "timestamp[s]")
    with pytest.raises(InvalidInputError, match='column "v": a table cannot hold'):
        table.append({"id": [0], "v": np.zeros(1, dtype=dtype)})


def test_types_of_python_and_polars_describe_columns(tmp_path: Path) -> None:
    described = {
        "id": (int, "int64", False),
        "at": (datetime.datetime, "timestamp[us]", False),
        "day": (datetime.date, "date32", False),
        "took": (datetime.timedelta, "duration[us]", False),
        "hour": (np.dtype("M8[h]"), "timestamp[s]", False),
        "n": (pl.UInt16, "uint16", True),
        "ms": (pl.Datetime("ms"), "timestamp[ms]", True),
        "name": (pl.Categorical, "utf8", True),
        "pos": (pl.Array(pl.Float32, 3), "fixed_size_list[float32?, 3]", True),
    }
    with atoll.open(tmp_path / "store") as store:
        schema = {name: given for name, (given, _, _) in described.items()}
        table = store.create_table("t", schema, id="id", index="id")
        assert table.schema.fields() == [(name, kind, may) for name, (_, kind, may) in described.items()]
        table.add_column("x", pl.Float64)
        frame = pl.DataFrame({"id": [1], "at": [DAY], "day": [DAY.date()], "took": [DAY - DAY], "hour": [DAY], "x": [0.5]})
        table.append(frame)
        assert (table.min("at"), table.min("x"), table.min("n")) == (DAY, 0.5, None)
        made = store.create_table("like", frame.schema, id="id", index="id")
        made.append(frame)
        with pytest.raises(InvalidInputError, match='"no"'):
            store.create_table("no", {"id": int, "no": pl.Time}, id="id", index="id")


def test_integers_of_which_some_need_all_bits_are_integers(tmp_path: Path) -> None:
    table = table_of(tmp_path, "uint64")
    table.append({"id": [1, 2], "v": [np.uint64(2**63 + 1), 3]})
    assert sorted(table.numpy()["v"].tolist()) == [3, 2**63 + 1]


def test_a_masked_value_in_a_list_says_nothing_of_the_type_of_the_others(tmp_path: Path) -> None:
    hidden = list(np.ma.array([1, 2**60 + 1], mask=[True, False]))
    with atoll.open(tmp_path / "masked") as store:
        table = store.create_table("t", {"k": "int64", "n": "int64?"}, id="k", index="k")
        table.append({"k": [1, 2], "n": hidden})
        assert table.arrow().to_pydict()["n"] in ([None, 2**60 + 1], [2**60 + 1, None])
        made = store.create_table("made", {"k": [1, 2], "n": hidden}, id="k", index="k")
        assert {name: kind for name, kind, *_ in made.schema.fields()}["n"] == "int64"


def test_objects_of_pandas_that_have_no_type_are_refused_as_a_list_is(tmp_path: Path) -> None:
    with atoll.open(tmp_path / "objects") as store:
        table = store.create_table("t", {"k": "int64", "name": "utf8"}, id="k", index="k")
        for given in (["a", 7], pd.Series(["a", 7], dtype="object")):
            with pytest.raises(InvalidInputError, match='column "name"'):
                table.append({"k": [1, 2], "name": given})
        with pytest.raises(InvalidInputError, match='column "name"'):
            table.append(pd.DataFrame({"k": [1, 2], "name": pd.Series(["a", 7], dtype="object")}))


def test_the_least_and_the_greatest_value_are_exact(tmp_path: Path) -> None:
    kinds = {"id": "int64", "x": "float64", "big": "int64", "at": "timestamp[us]", "name": "utf8"}
    table = atoll.open(tmp_path / "store").create_table("t", kinds, id="id", index=("x", "at"))
    assert (table.min("x"), table.max("big")) == (None, None)
    times = [DAY + datetime.timedelta(microseconds=each) for each in (3, 1, 4, 0, 5)]
    values = {"x": [0.5, float("nan"), -2.0, float("inf"), 1.0], "big": [2**60 + each for each in range(5)]}
    table.append({"id": range(5), **values, "at": times, "name": list("abcde")})
    assert (table.min("x"), table.max("x")) == (-2.0, float("inf"))
    # A double would round it.
    assert (table.min("big"), table.max("big")) == (2**60, 2**60 + 4)
    assert (table.min("at"), table.max("at")) == (DAY, DAY + datetime.timedelta(microseconds=5))
    assert table.box(x=(0, 1)).max("x") == 0.5
    assert table.where("x is nan").min("x") is None
    assert table.where("big > 0", "name <> 'a'").min(atoll.col("id")) == 1
    first = table.first(2)
    assert first.max("id") == max(first.numpy()["id"])
    with pytest.raises(InvalidInputError, match="only numbers and times"):
        table.min("name")
    with pytest.raises(NotFoundError, match="y"):
        table.max("y")


WIDTHS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]


@pytest.mark.parametrize("given", [*WIDTHS, "float64"])
@pytest.mark.parametrize("kind", [*WIDTHS, "float32", "float64"])
def test_every_width_is_taken_as_far_as_its_values_fit_and_refused_with_the_first_row_that_does_not(
    tmp_path: Path, given: str, kind: str
) -> None:
    def ends(name: str) -> tuple[int, int]:
        return (int(np.iinfo(name).min), int(np.iinfo(name).max)) if "int" in name else (-(2**63), 2**63)

    def fits(value: int) -> bool:
        return ends(kind)[0] <= value <= ends(kind)[1] if "int" in kind else int(np.dtype(kind).type(value)) == value

    near = [end + by for name in WIDTHS for end in ends(name) for by in (-1, 0, 1)] + [0, 1, 2**24 + 1, 2**53 + 1]
    there = [value for value in near if ends(given)[0] <= value <= ends(given)[1] and int(np.dtype(given).type(value)) == value]
    good, bad = [value for value in there if fits(value)], [value for value in there if not fits(value)]
    table = table_of(tmp_path, f"{kind}?")
    # What lies under a mask is no value, whether it fits or not.
    values = np.ma.masked_array(np.array([*good, *bad[:1]], dtype=given), mask=[False] * len(good) + [True] * len(bad[:1]))
    table.append({"id": range(len(values)), "v": values})
    found = table.numpy()
    held = found["v"][np.argsort(found["id"])].tolist()
    assert held == good + [None] * len(bad[:1])
    for value in bad:
        with pytest.raises(InvalidInputError, match=rf'column "v", row 2: {value}(\.0)? does not fit {kind} exactly'):
            table.append({"id": range(4), "v": np.array([0, 0, value, value], dtype=given)})


def test_another_width_takes_no_more_memory_than_the_rows_that_come_of_it() -> None:
    code = """
import array, resource
from atoll import _atoll
rows = 2_000_000
with atoll.open("mem:") as store:
    table = store.create_table("t", {"id": "int64", "n": "int32"}, id="id", index="id")
    ids, n = array.array("i", bytes(4 * rows)), array.array("q", bytes(8 * rows))
    given = _atoll.rows([("id", "int32", ids, None, None), ("n", "int64", n, None, None)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = table._native.conformed(given)
    print(made.nbytes, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""
    with child(code) as measured:
        told, failed = measured.communicate(timeout=120)
    assert measured.returncode == 0, failed
    made, more = map(int, told.split())
    assert more < 2 * made
