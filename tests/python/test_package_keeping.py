"""The contents of a table: deletes, snapshots, and what a vacuum removes and keeps."""

import threading

import numpy
import pytest

import atoll
from conftest import particles


def test_info_tells_what_is_there(table: atoll.Table) -> None:
    info = table.info()
    assert (info.name, info.rows, info.blocks, info.cubes, info.steps) == ("run", 5_000, 1, 0, 1)
    assert info.version == table.version() and info.bytes > 5_000 * 8
    table.pack(whole=True)
    assert table.info().blocks == 0 and table.info().cubes > 0 and table.info().rows == 5_000


def test_deletes_take_what_meets_all_that_is_said(store: atoll.Store) -> None:
    made = particles(100, seed=2)
    table = store.create_table("run", made, id=("pid", "step"), index="x")
    for run in ("a", "b"):
        for step in range(3):
            offset = 1_000 * (step + 3 * (run == "b"))
            table.append({**made, "pid": made["pid"] + offset}, run=run, step=step)
    before = table.version()
    near = int((made["x"] < 0.5).sum())
    version = table.delete(atoll.col("x") < 0.5, run="a", steps=(1, None))
    assert version == table.version()
    assert table.count() == 600 - 2 * near
    table.delete(run="b", steps=(None, 2))
    assert [(step.run, step.step) for step in table.steps()] == [("a", 0), ("a", 1), ("a", 2), ("b", 2)]
    assert table.as_of(before).count() == 600
    with pytest.raises(atoll.errors.InvalidInputError, match="needs a condition"):
        table.delete()
    with pytest.raises(atoll.errors.InvalidInputError, match="needs a condition"):
        table.delete("x > 0", all=True)
    with pytest.raises(atoll.errors.NotFoundError, match="did you mean|no run"):
        table.delete(run="c")
    with pytest.raises(atoll.errors.InvalidInputError):
        table.delete("x >")
    table.delete(all=True)
    assert table.count() == 0


def test_a_vacuum_takes_old_versions_away_and_leaves_what_a_snapshot_keeps(table: atoll.Table) -> None:
    kept = table.create_snapshot("before")
    assert table.create_snapshot("before") == kept, "doing it again changes nothing"
    rows = table.numpy()
    table.delete("x < 0.5")
    gone = table.version()
    left = table.count()
    table.pack(whole=True)
    with pytest.raises(atoll.errors.ConflictError, match="before"):
        table.create_snapshot("before", version=gone)
    done = table.vacuum()
    assert done.oldest >= gone
    # Nothing of the first version may go: it lies in one block, which the snapshot needs.
    numpy.testing.assert_array_equal(table.as_of("before").numpy()["x"], rows["x"])
    with pytest.raises(atoll.errors.NotFoundError, match="gone"):
        table.as_of(gone).count()
    assert table.snapshots() == {"before": kept}
    # A version that a snapshot keeps can get a second name.
    assert table.create_snapshot("again", version=kept) == kept
    table.delete_snapshot("before")
    table.vacuum()
    assert len(table.as_of("again").read()) == 5_000
    table.delete_snapshot("again")
    assert table.vacuum().objects > 0
    with pytest.raises(atoll.errors.NotFoundError, match="gone"):
        table.as_of(kept).count()
    with pytest.raises(atoll.errors.NotFoundError, match="no snapshot"):
        table.as_of("again")
    with pytest.raises(atoll.errors.NotFoundError, match="no snapshot"):
        table.delete_snapshot("again")
    assert table.count() == left
    assert table.vacuum().objects == 0


def test_queries_beside_packing_and_vacuums_always_answer_right(store: atoll.Store) -> None:
    made = particles(4_000, seed=4)
    table = store.create_table("run", made, id=("pid", "step"), sample_key="pid", index="x")
    for step in range(8):
        rows = slice(500 * step, 500 * (step + 1))
        table.append({name: values[rows] for name, values in made.items()}, run="a", step=step)
    expected = table.box(x=(0.2, 0.6)).numpy()["x"]
    is_over, wrong = threading.Event(), []

    def look() -> None:
        # Each reader has its own handle, which does not know what the others do.
        reader = atoll.open(store.url).table("run")
        while not is_over.is_set():
            found = reader.box(x=(0.2, 0.6)).numpy()["x"]
            if not numpy.array_equal(found, expected):
                wrong.append(len(found))

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for _ in range(15):
        table.pack(whole=True)
        # A pack without work makes no version, so each round deletes something that no reader asks for.
        table.delete("x > 2")
        table.append({**made, "x": made["x"] + 3, "pid": made["pid"] + 10_000})
        table.delete("x > 2")
        table.vacuum()
    is_over.set()
    for reader in readers:
        reader.join(timeout=60)
    assert wrong == []


def test_steps_without_an_end_are_all_later_ones(store: atoll.Store) -> None:
    table = store.create_table("last", {"id": "int64"}, id="id", index="id")
    for step in (1, 2**64 - 1):
        table.append({"id": [step % 1000]}, run="a", step=step)
    table.delete(run="a", steps=(2, None))
    assert [step.step for step in table.steps("a")] == [1]
