"""Threads and other processes: the package does in each what its user would expect."""

import os
import pickle
import subprocess
import sys
import threading

import numpy
import pytest

import atoll
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
            # What it inherited goes with it, without closing what the parent still uses.
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
                # What Python does as it ends, without the end of the test's own process.
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
    with atoll.open("mem:") as memory:
        with pytest.raises(atoll.errors.UnsupportedError, match="memory"):
            pickle.dumps(memory)


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
