"""Splits: a query divided among readers, in this process and in others."""

import multiprocessing
import pickle
from pathlib import Path

import numpy
import pytest
from conftest import child, particles

import atoll

SCHEMA = {"pid": "int64", "step": "int64", "x": "float64", "pos": "float32[3]", "type": "int32"}


@pytest.fixture
def table(store: atoll.Store) -> atoll.Table:
    made = store.create_table("run", SCHEMA, id=["pid", "step"], index=["x", "step"])
    for step in range(8):
        rows = particles(500, step, steps=1)
        made.append(rows | {"step": numpy.full(500, step, dtype="int64")}, run="a", step=step)
    return made


def rows_of(query: atoll.Query) -> list[tuple[int, int]]:
    found = query.read().numpy()
    return sorted(zip(found["step"].tolist(), found["pid"].tolist(), strict=True))


def test_splits_together_are_the_query(table: atoll.Table) -> None:
    for query in (table.query(), table.where("x < 0.3"), table.box(step=(2, 5)).sample(0.4), table.unordered()):
        splits = query.splits(3)
        assert len(splits) == 3
        assert all(split.host is None and split.version == table.version() for split in splits)
        assert sorted(row for split in splits for row in rows_of(split)) == rows_of(query)
        assert sum(split.count() for split in splits) == query.count()
        assert sum(len(batch) for split in splits for batch in split.batches(100)) == query.count()
    total = sum(split.sum("x").value for split in table.splits(5))
    assert total == pytest.approx(table.read().numpy()["x"].sum())


def test_splits_are_asked_in_other_processes_and_of_the_version_in_which_they_were_made(table: atoll.Table) -> None:
    splits, expected = table.select("pid", "step").splits(4), rows_of(table.query())
    table.append(particles(100, 99, steps=1) | {"step": numpy.full(100, 8, dtype="int64")}, run="a", step=8)
    assert all(pickle.loads(pickle.dumps(split)).objects == split.objects for split in splits)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(rows_of, splits)
    assert sorted(row for rows in found for row in rows) == expected


def test_what_cannot_be_divided_is_told(table: atoll.Table) -> None:
    for wrong in (table.first(5), table.limit(5)):
        with pytest.raises(atoll.errors.InvalidInputError, match="cannot be divided"):
            wrong.splits(2)
    for readers in (0, -1, True, "two"):
        with pytest.raises(atoll.errors.InvalidInputError, match="reader"):
            table.splits(readers)
    (split, *_) = table.splits(2)
    assert "here, about" in repr(split)
    assert table.where("x > 100").splits(5)[0].read().arrow().num_rows == 0


FORKED = """
import multiprocessing
def rows(split):
    return split.count()
table = atoll.open(sys.argv[1]).table("run")
with multiprocessing.get_context("fork").Pool(2) as pool:
    try:
        pool.map_async(rows, table.splits(2)).get(timeout=20)
    except (atoll.errors.UnsupportedError, multiprocessing.TimeoutError) as error:
        print(type(error).__name__, getattr(error, "hint", None))
"""


def test_a_pool_that_forks_raises_why_it_cannot_ask_instead_of_waiting_for_ever(table: atoll.Table) -> None:
    with child(FORKED, table.store.url) as asking:
        told, failed = asking.communicate(timeout=60)
    assert told.startswith("UnsupportedError start processes with multiprocessing"), told + failed


def test_what_cannot_be_opened_is_unpickled_and_raises_at_its_first_use(tmp_path: Path) -> None:
    for name in ("north", "south"):
        with atoll.open(tmp_path / name) as store:
            store.create_table("run", SCHEMA, id=["pid", "step"], index=["x", "step"])
    with atoll.open(tmp_path / "north") as one, atoll.open([tmp_path / "north", tmp_path / "south"]) as several:
        pickled = pickle.dumps([one, several, one.table("run"), several.table("run").where("x < 1")])
    (tmp_path / "north").rename(tmp_path / "moved")
    for _ in range(2):
        one, several, table, query = pickle.loads(pickled)
        assert (table.name, "not opened" in repr(table), "not opened" in repr(query)) == ("run", True, True)
        for ask in (one.tables, several.tables, table.count, query.count):
            with pytest.raises(atoll.errors.NotFoundError, match="north"):
                ask()
        pickled = pickle.dumps([one, several, table, query])
    (tmp_path / "moved").rename(tmp_path / "north")
    assert (one.tables(), several.tables(), table.count(), query.count()) == (["run"], ["run"], 0, 0)
    assert repr(table).endswith("pid, step, x, pos, type>")
