"""Tables on a ring of three real nodes: they behave as in a folder, also while a node is killed."""

import os
import pickle
import subprocess
import threading

import numpy
import pytest
from conftest import Ring, child

import atoll

STEPS, ROWS = 60, 500
COLUMNS = {"pid": "int64", "step": "int64", "x": "float64", "pos": "float32[3]", "type": "int32"}


def rows(step: int) -> dict[str, numpy.ndarray]:
    """Make the rows that a simulation has of a step; always the same."""
    random = numpy.random.default_rng(step)
    return {
        "pid": numpy.arange(ROWS),
        "x": random.uniform(size=ROWS),
        "pos": random.normal(size=(ROWS, 3)).astype("float32"),
        "type": random.integers(1, 4, size=ROWS).astype("int32"),
    }


def of_step(step: int) -> dict[str, numpy.ndarray]:
    """Make the same rows with the column that a writer would add."""
    return {**rows(step), "step": numpy.full(ROWS, step)}


def made(store: atoll.Store) -> atoll.Table:
    """An empty table."""
    return store.create_table("run", COLUMNS, id=("pid", "step"), sample_key="pid", index=("x", "step"))


def in_order(query: atoll.Query) -> dict[str, numpy.ndarray]:
    """Return the rows of an answer, ordered by their id."""
    given = query.numpy()
    order = numpy.lexsort((given["pid"], given["step"]))
    return {name: values[order] for name, values in given.items()}


def assert_same(one: atoll.Table, other: atoll.Table) -> None:
    """Check that both tables answer alike, row by row and to the last digit."""
    assert one.count() == other.count() == STEPS * ROWS
    for ask in (
        lambda table: table.sample(1.0),
        lambda table: table.sample(0.05),
        lambda table: table.box(x=(0.2, 0.4), step=(10, 50)),
        lambda table: table.box(x=(0.2, 0.7)).first(200),
        lambda table: table.where("type = 2").sample(0.3),
    ):
        mine, theirs = in_order(ask(one)), in_order(ask(other))
        assert len(mine["pid"]) > 0
        for name, values in theirs.items():
            numpy.testing.assert_array_equal(mine[name], values, err_msg=name)
    mine, theirs = (table.sample(0.2).mean("x") for table in (one, other))
    assert (mine.value, mine.low, mine.high) == (theirs.value, theirs.low, theirs.high)


def test_a_table_comes_to_a_ring_and_back_as_it_is(ring: Ring, store: atoll.Store) -> None:
    local = made(store)
    for step in range(STEPS):
        local.append(of_step(step), run="ab"[step % 2], step=step, time=step / 2)
    local.set_attributes({"deck": "tube.in"}, run="a")
    local.pack(whole=True)
    with atoll.open(ring.url) as nodes:
        copied = local.copy_to(nodes, "arrived")
        assert copied.rows == STEPS * ROWS and copied.copied == copied.objects and copied.version == local.version()
        there = nodes.table("arrived")
        assert_same(local, there)
        assert there.steps() == local.steps() and there.attributes(run="a") == {"deck": "tube.in"}
        with pytest.raises(atoll.errors.ConflictError, match="already"):
            local.copy_to(nodes, "arrived")
        there.append(of_step(STEPS), run="a", step=STEPS)
        there.copy_to(store, "back", version=copied.version)
        there.create_snapshot("now")
        assert there.copy_to(store, "now", version="now").version == there.version()
        nodes.drop_table("arrived")
    assert_same(local, store.table("back"))


def test_a_run_loses_and_doubles_nothing_when_a_node_is_killed_while_it_is_written(
    ring: Ring, store: atoll.Store
) -> None:
    expected = made(store)
    looks: list[int] = []
    is_over = threading.Event()

    def look() -> None:
        with atoll.open(ring.url, read_only=True) as seen:
            table = seen.table("run")
            while not is_over.is_set():
                looks.append(table.count())

    with atoll.open(ring.url) as opened:
        table = made(opened)
        with atoll.Writer(expected, "a") as writer:
            for step in range(STEPS):
                writer.step(step, step / 10, rows(step))
        looking = threading.Thread(target=look)
        looking.start()
        with atoll.Writer(table, "a") as writer:
            for step in range(STEPS):
                writer.step(step, step / 10, rows(step))
                if step == STEPS // 3:
                    writer.flush(60)
                    ring.kill(1)
            writer.flush(60)
            assert writer.longest_append > 0.3, "nobody waited for the others to take over"
        is_over.set()
        looking.join()
        assert table.last_complete("a") == STEPS - 1
        assert looks == sorted(looks), "a look saw less than one before it"
        assert all(seen % ROWS == 0 for seen in looks), "a look saw half of a step"
        assert_same(table, expected)
        packed = table.pack(whole=True)
        assert packed.rows == STEPS * ROWS
        assert_same(table, expected)
    with atoll.open(ring.url, create=False) as opened:
        assert opened.tables() == ["run"]
        assert_same(opened.table("run"), expected)
        opened.drop_table("run")
        assert opened.tables() == []


def test_another_process_follows_a_run_over_the_death_of_a_node(ring: Ring) -> None:
    code = """
with atoll.open(sys.argv[1], read_only=True) as store:
    for found in store.table("run").follow("a", from_start=True):
        print(found.step, flush=True)
        if found.step == int(sys.argv[2]):
            break
"""
    with atoll.open(ring.url) as opened:
        table = made(opened)
        following = child(code, ring.url, STEPS - 1)
        with atoll.Writer(table, "a") as writer:
            for step in range(STEPS):
                writer.step(step, step / 10, rows(step))
                if step == STEPS // 2:
                    writer.flush(60)
                    ring.kill(2)
        out, error = following.communicate(timeout=60)
        assert following.returncode == 0, error
        assert [int(line) for line in out.split()] == list(range(STEPS))


def test_a_value_as_long_as_a_store_takes_is_written_and_read(ring: Ring) -> None:
    random = numpy.random.default_rng(1)
    count = 3_000_000
    given = {"pid": numpy.arange(count), "step": numpy.zeros(count, dtype="int64"), "x": random.uniform(size=count)}
    with atoll.open(ring.url) as opened:
        table = opened.create_table("long", given, id="pid", index="x")
        table.append(given)
        assert table.pack(whole=True).rows == count
        assert table.count() == count
        wanted = int(((given["x"] >= 0.25) & (given["x"] < 0.5)).sum())
        assert table.box(x=(0.25, 0.5)).count() == wanted
        assert table.mean("x").value == pytest.approx(given["x"].mean())


def test_tables_of_a_keyspace_are_its_own(ring: Ring) -> None:
    make = [os.environ["PROGRAM_UNDER_TEST"], "ring", "keyspace", "create", "scratch", "--copies", "1"]
    subprocess.run([*make, "--store", ring.url], check=True, timeout=120, capture_output=True)
    urls = [ring.url, ring.url.replace("/?", "/scratch?")]
    for step, url in enumerate(urls):
        with atoll.open(url) as opened:
            made(opened).append({**rows(step), "step": numpy.full(ROWS, step)})
    for step, url in enumerate(urls):
        with atoll.open(url, create=False) as opened:
            table = pickle.loads(pickle.dumps(opened.table("run")))
            assert table.count() == ROWS
            numpy.testing.assert_array_equal(in_order(table.sample(1.0))["x"], rows(step)["x"])
    with pytest.raises(atoll.errors.NotFoundError, match='no keyspace "nothing"'):
        atoll.open(ring.url.replace("/?", "/nothing?"))
