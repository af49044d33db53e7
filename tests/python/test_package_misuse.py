"""Wrong arguments raise Atoll's own errors, which say what was passed and what would be right."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import atoll
from atoll.errors import AtollError, InvalidInputError, UnsupportedError

MISUSES = {
    "a side of a box": lambda t: t.box((0, 1)),
    "a point needs a number for each axis": lambda t: t.near(0, 1),
    "each of a point is a number": lambda t: t.near(("a",), 1),
    "a radius is a number": lambda t: t.near((0,), "near"),
    "a share, such as 0.1, is a number, not '10%'": lambda t: t.sample("10%"),
    "a share, such as 0.1, is a number, not None": lambda t: t.window(0.1, None),
    "not 3": lambda t: t.delete(run="a", steps=3),
    "not slice": lambda t: t.delete(run="a", steps=slice(1, 3)),
    r"not \[3\]": lambda t: t.delete(run="a", steps=[3]),
    r"not \[3, 4\]": lambda t: t.delete(run="a", steps=[3, 4]),
    r"not \{3, 4\}": lambda t: t.delete(run="a", steps={3, 4}),
    r"not range\(3, 9, 2\)": lambda t: t.delete(run="a", steps=range(3, 9, 2)),
    r"not \(3, 4, 5\)": lambda t: t.delete(run="a", steps=(3, 4, 5)),
    "the first step is a whole number": lambda t: t.delete(run="a", steps=(False, 4)),
    r"not names of runs: \(\['a', 'b'\],\)": lambda t: t.of_runs(["a", "b"]),
    "copied to a store, not to 'other'": lambda t: t.copy_to("other"),
    "a Writer needs a table, not <atoll store": lambda t: atoll.Writer(t.store, run="w"),
    "confidence is a number": lambda t: t.mean("x", confidence="high"),
    "confidence is a number, not 'all'": lambda t: t.group_means("x", "id", confidence="all"),
    "confidence is a number, not 'most'": lambda t: t.within(relative=0.1, confidence="most"),
    "a share, such as 0.5, is a number": lambda t: t.quantile("x", "median"),
    "relative is a number": lambda t: t.within(relative="1%").mean("x"),
    "an edge of a bin is a number": lambda t: t.histogram("x", ["a", "b"]),
    "a time is a number": lambda t: t.at(time="now"),
    "time is a number": lambda t: t.append({"id": [2], "x": [0.5]}, time="now"),
    'table "points" has the column x: float64': lambda t: t.add_column("x", "float32"),
    "run is a text, not 1": lambda t: t.append({"id": [2], "x": [0.5]}, run=1),
    "run is a text, not 2": lambda t: atoll.Writer(t, run=2),
    "run is a text, not 3": lambda t: t.begin(3),
    "run is a text, not 4": lambda t: t.steps(4),
    "run is a text, not 5": lambda t: t.last_complete(5),
    "run is a text, not 6": lambda t: t.delete(run=6),
    "run is a text, not 7": lambda t: t.attributes(run=7),
    "run is a text, not 8": lambda t: t.load([], run=8),
    "run is a text, not 9": lambda t: t.follow(run=9, from_start=True),
    "run is a text, not 10": lambda t: t.follow(10),
    "the name of a snapshot is a text, not 3": lambda t: t.create_snapshot(3),
    "the name of a column is a text, not 3": lambda t: t.add_column(3, "float64"),
    "the name of a table is a text, not 3": lambda t: t.store.table(3),
    "the name of a table is a text, not 4": lambda t: t.store.create_table(4, {"id": "int64"}, id="id", index="id"),
    'column "x" is a single float': lambda t: t.append({"id": [2], "x": 7.0}),
    'column "x" is a single NoneType': lambda t: t.append({"id": [2], "x": None}),
    'column "x" is a single type': lambda t: t.append({"id": [2], "x": str}),
    'column "id" is a single datetime': lambda t: t.append({"id": datetime(2026, 1, 1), "x": [0.5]}),
    r'column "x" has shape \(\)': lambda t: t.append({"id": [2], "x": np.float64(7)}),
    'column "n": 3 is neither a type nor an example': lambda t: t.store.create_table("u", {"n": 3}, id="n", index="n"),
    'id must name columns, not 5': lambda t: t.store.create_table("u", {"id": "int64"}, id=5, index="id"),
    'index must name columns, not None': lambda t: t.store.create_table("u", {"id": "int64"}, id="id", index=None),
}


@pytest.fixture
def points(store: atoll.Store) -> atoll.Table:
    table = store.create_table("points", {"id": "int64", "x": "float64"}, id="id", index="x")
    table.append({"id": [1], "x": [0.5]}, run="a", step=3)
    return table


@pytest.mark.parametrize("told", MISUSES)
def test_what_is_given_in_place_of_something_else_is_named(points: atoll.Table, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told):
        MISUSES[told](points)
    assert points.count() == 1


def test_a_single_value_is_refused_with_what_to_give_instead(points: atoll.Table) -> None:
    with pytest.raises(InvalidInputError, match='column "x"') as error:
        points.append({"id": [2, 3], "x": 7})
    assert "a value for each row" in error.value.hint


def test_numbers_of_numpy_are_numbers(points: atoll.Table) -> None:
    assert points.near((np.float32(0.5),), np.float32(0.1)).count() == 1
    assert points.sample(np.float32(1)).mean("x", confidence=np.float64(0.9)).value == 0.5
    points.append({"id": [2], "x": [0.5]}, run="a", step=np.int64(4), time=np.float32(0.5))
    assert points.steps("a")[-1].time == 0.5


def test_a_table_is_made_in_one_store(points: atoll.Table, tmp_path: Path) -> None:
    with atoll.open(tmp_path / "other") as other:
        other.create_table("points", {"id": "int64", "x": "float64"}, id="id", index="x")
        with atoll.open([points.store.url, other.url]) as several, pytest.raises(UnsupportedError, match='"new"'):
            several.create_table("new", {"id": "int64"}, id="id", index="id")


@pytest.mark.parametrize("frame", [pl.DataFrame, pd.DataFrame, pa.table])
def test_a_writer_takes_frames_as_append_does(points: atoll.Table, frame: Callable) -> None:
    with atoll.Writer(points, "w") as writer:
        writer.step(0, 0.0, frame({"id": [10, 11], "x": [0.25, 0.75]}))
        writer.step(1, 0.0, np.array([(12, 0.5)], dtype=[("id", "i8"), ("x", "f8")]))
        for wrong in (5, "rows", [1, 2], None):
            with pytest.raises(AtollError, match="cannot read a step from"):
                writer.step(2, 0.0, wrong)
    assert sorted(points.of_runs("w").numpy()["id"].tolist()) == [10, 11, 12]


def test_a_path_may_begin_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for place in ("~/runs/a", Path("~/runs/b")):
        atoll.open(place).close()
    assert sorted(path.name for path in (tmp_path / "home" / "runs").iterdir()) == ["a", "b"]
    assert len(atoll.open("~/runs/*").urls) == len(atoll.open(["~/runs/a", Path("~/runs/b")]).urls) == 2
    with pytest.raises(InvalidInputError, match="nobody-of-that-name") as error:
        atoll.open("~nobody-of-that-name/results")
    assert '"./~nobody' in error.value.hint
    atoll.open("./~").close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home", "~"]


def test_a_store_that_was_opened_by_a_relative_url_stays_that_store_in_another_folder(tmp_path: Path, monkeypatch) -> None:
    here = tmp_path / "100 % here"
    (here / "work").mkdir(parents=True)
    monkeypatch.chdir(here)
    with atoll.open("runs") as store:
        store.create_table("t", {"id": "int64", "x": "float64"}, id="id", index="x").append({"id": [1], "x": [0.5]})
    with atoll.open("file:./runs?mode=read") as store:
        assert store.url == f"file:{tmp_path}/100%20%25%20here/runs?mode=read"
        monkeypatch.chdir("work")
        # A reader that has no owner to ask refreshes its view of the store from time to time.
        assert store.table("t").count() == 1
        with atoll.open(store.url) as again:
            assert again.table("t").count() == 1
