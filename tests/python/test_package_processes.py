"""Threads and other processes: the package does in each of them what its user would expect."""

import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy
import pyarrow
import pytest

import atoll
from atoll import _atoll
from conftest import PREFIX, child


def test_many_threads_ask_at_once(table: atoll.Table) -> None:
    wanted = len(table.where("x < 0.5").read())
    found = []
    threads = [threading.Thread(target=lambda: found.append(len(table.where("x < 0.5").read()))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [wanted] * 16


def test_a_forked_child_is_told_so_and_harms_nothing(table: atoll.Table) -> None:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            table.read()
        except atoll.errors.UnsupportedError as error:
            os.write(writer, error.hint.encode())
        finally:
            # Its inherited handles are dropped without closing what the parent still uses.
            del table
            os._exit(0)
    os.close(writer)
    assert "spawn" in os.read(reader, 1_000).decode()
    assert os.waitpid(pid, 0)[1] == 0
    assert len(table.read()) == 5_000
    table.append({name: values[:0] for name, values in table.limit(0).numpy().items()})


@pytest.mark.parametrize("end", ["close", "exit"])
def test_a_writer_in_a_forked_child_says_so_and_the_child_ends(store: atoll.Store, end: str) -> None:
    table = store.create_table("forked", {"pid": "int64"}, id="pid", index="pid")
    parent = atoll.Writer(table, "a")
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        told = 0
        try:
            for call in (lambda: parent.step(1, None, {"pid": [1]}), lambda: parent.flush(timeout=5), parent.close):
                try:
                    call()
                except atoll.errors.UnsupportedError:
                    told += 1
            if end == "exit":
                # What Python does at exit, without ending the process of the test.
                parent._finish()
            os.write(writer, str(told).encode())
        finally:
            os._exit(0)
    os.close(writer)
    told = os.read(reader, 10).decode()
    assert os.waitpid(pid, 0)[1] == 0
    assert told == "3"
    parent.step(1, None, {"pid": [7]})
    parent.close()
    assert table.numpy()["pid"].tolist() == [7]


def test_queries_and_tables_travel_to_other_processes(store: atoll.Store, table: atoll.Table) -> None:
    query = table.where("x < 0.5").sample(0.3).select("x")
    assert len(pickle.loads(pickle.dumps(query)).read()) == len(query.read())
    assert pickle.loads(pickle.dumps(table))._store is store
    code = """
import pickle
query = pickle.load(sys.stdin.buffer)
print(len(query.read()), query.table.name)
"""
    command = [sys.executable, "-c", PREFIX + code]
    told = subprocess.run(command, input=pickle.dumps(query), capture_output=True, check=True, timeout=60)
    assert told.stdout.decode().split() == [str(len(query.read())), "run"]
    for url in ("mem:", "mem:?memory=64MiB"):
        with atoll.open(url) as memory:
            with pytest.raises(atoll.errors.UnsupportedError, match="memory"):
                pickle.dumps(memory)


def test_a_store_is_opened_with_the_limits_that_it_was_pickled_with(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, opened = {"memory_bytes": 96 << 20, "keep_seconds": 7}, []
    native = atoll._store._atoll.Store

    def opening(url: str, **words: object) -> object:
        opened.append((url, words))
        return native.open(url, **words)

    with atoll.open(tmp_path / "s", **limits) as store, atoll.open([tmp_path / "s"], **limits) as several:
        url = store.url
        made = store.create_table("t", {"id": "int64"}, id="id", index="id")
        kept = [pickle.dumps(each) for each in (store, several, made)]
    del made
    watched = SimpleNamespace(Store=SimpleNamespace(open=opening), union=_atoll.union)
    monkeypatch.setattr(atoll._store, "_atoll", watched)
    for once, ask in zip(kept, (atoll.Store.tables, atoll.Stores.tables, atoll.Table.count), strict=True):
        # Its own pickle has the limits, too.
        found = pickle.loads(pickle.dumps(pickle.loads(once)))
        ask(found)
        (found.store if isinstance(found, atoll.Table) else found).close()
        del found
    assert opened == [(url, {"read_only": False, "create": False, **limits})] * 3


def test_a_child_process_writes_while_this_one_reads(store: atoll.Store, table: atoll.Table) -> None:
    code = """
import array
table = atoll.open(sys.argv[1]).table("points")
table.append({"id": memoryview(array.array("q", range(1000)))}, run="other", step=0)
"""
    points = store.create_table("points", {"id": "int64"}, id="id", index="id")
    with child(code, store.url) as writing:
        _, told = writing.communicate(timeout=60)
        assert writing.returncode == 0, told
    assert sorted(points.numpy()["id"].tolist()) == list(range(1000))


def test_nothing_but_python_is_needed_to_write_and_ask(tmp_path) -> None:
    code = """
class Refuse:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in ("numpy", "pyarrow", "pandas", "polars", "duckdb", "matplotlib"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
table = atoll.open(sys.argv[1]).create_table("t", {"id": int, "name": str}, id="id", index="id")
table.append({"id": [1, 2, 3], "name": ["a", None or "b", "c"]})
print(len(table.box(id=(1, 3)).read()))
try:
    table.numpy()
except atoll.errors.UnsupportedError as error:
    print(error.hint)
"""
    with child(code, tmp_path / "s") as bare:
        told, failed = bare.communicate(timeout=60)
        assert told.split("\n")[:2] == ["2", "pip install numpy"], failed


def test_what_is_appended_is_copied_before_append_returns(store: atoll.Store) -> None:
    table = store.create_table("points", {"id": "int64", "x": "float64"}, id="id", index="x")
    ids, xs = numpy.arange(10), numpy.zeros(10)
    for batch in range(5):
        xs[:] = batch
        ids[:] = range(batch * 10, batch * 10 + 10)
        table.append({"id": ids, "x": xs})
    found = table.numpy()
    assert (found["x"] == found["id"] // 10).all()


@pytest.fixture
def mixed(store: atoll.Store) -> atoll.Table:
    """A table with every kind of column, with missing values."""
    kinds = {"pos": "float32[3]?", "at": "timestamp[us]?", "name": "utf8?", "hash": "uint64?", "is": "bool?"}
    table = store.create_table("mixed", {"id": "int64", **kinds}, id="id", index="id")
    at = numpy.array(["2026-01-01", "NaT", "1969-01-01"], dtype="M8[us]")
    pos = pyarrow.array([[0.5, 1, 2], None, [6, 7, 8]], pyarrow.list_(pyarrow.float32(), 3))
    rest = {"name": ["a", None, ""], "hash": [2**64 - 1, None, 0], "is": [True, None, False]}
    table.append({"id": [1, 2, 3], "pos": pos, "at": at, **rest}, run="a")
    table.append({"id": [4, 5]}, run="a")
    table.add_column("charge", "float32", unit="e", description="partial charge")
    return table


def test_answers_and_schemas_travel_as_they_are(mixed: atoll.Table) -> None:
    whole = mixed.read()
    answers = [whole, mixed.unordered().read(), mixed.where("id > 9").read(), list(whole.batches(2))[1]]
    for answer in answers:
        found = pickle.loads(pickle.dumps(answer))
        assert pyarrow.table(found).equals(pyarrow.table(answer), check_metadata=True)
        assert (found.version, found.work, repr(found)) == (answer.version, answer.work, repr(answer))
        assert found._ordered == answer._ordered
    (refined,) = mixed.refine(mean="id")
    found = pickle.loads(pickle.dumps(refined))
    assert (found.cut, found.is_last, found.estimate, len(found.batch)) == (1.0, True, refined.estimate, 5)
    schema = pickle.loads(pickle.dumps(mixed.schema))
    assert schema == mixed.schema
    assert pyarrow.schema(schema).field("charge").metadata == {b"unit": b"e", b"description": b"partial charge"}


def test_a_pool_reads_splits_and_sends_their_rows_back(table: atoll.Table) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        found = pool.map(atoll.Query.read, table.select("pid").splits(2))
    assert sum(len(answer) for answer in found) == 5_000
