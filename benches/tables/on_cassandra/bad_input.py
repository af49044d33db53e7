"""Bad input: what a cluster can do wrong to Atoll. Each case must end in an error that names the cause, with nothing
lost.

Every case states what the message must contain. A case that ends otherwise is printed and counted.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from ..bench import Bench, told
from .cluster import Cluster
from .suite import ran_test

_KEYSPACE = "input"
_NEWER = "input_newer"
_TABLE = "kept"
_ROWS = 1_000
_SCHEMA = pa.schema([pa.field("pid", pa.int32(), nullable=False), pa.field("x", pa.float32(), nullable=False)])


@dataclass
class _Case:
    """An action, and the words that its error must contain."""

    name: str
    act: Callable[[], object]
    words: tuple[str, ...]


def run(bench: Bench, folder: Path, port: int) -> None:
    """Runs the cases on temporary clusters: one node without passwords, one node with them, and two nodes whose clocks
    differ.
    """
    wrong: list[str] = []
    plain = Cluster(folder / "input", 1, "768M", port)
    with _started(plain):
        _fill(plain)
        for case in _cases(bench, plain):
            wrong += _judged(case)
        wrong += _tested(plain)
        wrong += _kept(plain)
    guarded = Cluster(folder / "input-guarded", 1, "768M", port, ("--auth",))
    with _started(guarded):
        for case in _refused(guarded):
            wrong += _judged(case)
    clocks = Cluster(folder / "input-clocks", 2, "512M", port)
    with _started(clocks):
        wrong += _judged(_far_off(clocks))
    bench.measured.detail["bad input, wrong"] = wrong
    bench.measured.notes += [f"bad input: {each}" for each in wrong]
    bench.measured.record("input", len(wrong))


def _tested(cluster: Cluster) -> list[str]:
    """Altered tables, and a node that hangs in the middle of batches: tests with a model of the permitted outcomes."""
    said, failed = ran_test(cluster, "input-tests", "cassandra_input")
    if failed is None:
        return ["altered tables and time-outs in the middle of a batch: the tests did not run"]
    named = [line for line in said.splitlines() if line.startswith("test ") and line.endswith("FAILED")]
    # A test program may fail without naming any of its tests as failed.
    return named or [f"cassandra_input failed, see input-tests.log ({number + 1})" for number in range(failed)]


@contextmanager
def _started(cluster: Cluster) -> Iterator[None]:
    cluster.down(keep=False)
    cluster.up()
    try:
        yield
    finally:
        cluster.down(keep=False)


def _judged(case: _Case) -> list[str]:
    try:
        case.act()
    except Exception as error:  # noqa: BLE001: whatever comes is judged by its words
        said = f"{type(error).__name__}: {error} {getattr(error, '__notes__', '')}"
        told(f"  {case.name}: {said}")
        missing = [word for word in case.words if word.lower() not in said.lower()]
        return [f"{case.name}: nothing about {missing} in: {said}"] if missing else []
    told(f"  {case.name}: no error")
    return [f"{case.name}: no error"]


def _fill(cluster: Cluster, keyspace: str = _KEYSPACE) -> None:
    import atoll

    with atoll.open(cluster.url(keyspace)) as store:
        table = store.create_table(_TABLE, _SCHEMA, id=("pid",), index=("x",))
        table.append({"pid": np.arange(_ROWS, dtype=np.int32), "x": np.arange(_ROWS, dtype=np.float32)})


def _kept(cluster: Cluster) -> list[str]:
    """After all that, every row must still be there."""
    import atoll

    with atoll.open(cluster.url(_KEYSPACE), create=False) as store:
        rows = len(store.table(_TABLE).query().read())
    return [] if rows == _ROWS else [f"of {_ROWS:,} rows {rows} are left"]


def _open(url: str) -> None:
    import atoll

    with atoll.open(url, create=False) as store:
        len(store.table(_TABLE).query().read())


def _cases(bench: Bench, cluster: Cluster) -> Iterator[_Case]:
    nobody = f"cassandra://127.0.0.1:{cluster.port + 9}/{_KEYSPACE}"
    yield _Case("no node answers", lambda: _open(nobody), (f"127.0.0.1:{cluster.port + 9}",))
    yield _Case("no such keyspace", lambda: _open(cluster.url("nothing_here")), ("nothing_here",))
    yield _Case("a keyspace's name that cannot be", lambda: _open(cluster.url("it's")), ("keyspace",))
    yield _Case("an unknown option", lambda: _open(cluster.url(_KEYSPACE, "consistancy=quorum")), ("consistancy",))
    _fill(cluster, _NEWER)
    newer = f"UPDATE {_NEWER}.meta SET number = 99 WHERE name = 'format'"
    bench.run_counter("cassandra-run", "--contacts", cluster.contacts, "--statement", newer)
    yield _Case("a keyspace of a newer Atoll", lambda: _open(cluster.url(_NEWER)), ("newer",))
    cluster.pause(1, paused=True)
    try:
        yield _Case(
            "the node hangs", lambda: _open(cluster.url(_KEYSPACE, "connect-time-out=3s&time-out=3s")), ("127.0.0.1",)
        )
    finally:
        cluster.pause(1, paused=False)


def _far_off(cluster: Cluster) -> _Case:
    """A table with rows, and then a node whose clock is an hour ahead."""
    _fill(cluster)
    cluster.control("kill", 2)
    cluster.control("start", 2, "--clock-ahead", 3_600)

    def pack() -> None:
        import atoll

        with atoll.open(cluster.url(_KEYSPACE), create=False) as store:
            # A pack takes a lease, which ends by the nodes' clocks.
            store.table(_TABLE).pack(whole=True)

    return _Case("a clock that is an hour off", pack, ("clock", "127.0.0."))


def _refused(cluster: Cluster) -> Iterator[_Case]:
    url = cluster.url(_KEYSPACE)
    yield _Case("no user where one is needed", lambda: _open(url), ("user",))
    password = cluster.folder / "password"
    password.write_text("wrong\n")
    password.chmod(0o600)
    guarded = cluster.url(_KEYSPACE, f"password-file={password}", user="cassandra")
    yield _Case("a wrong password", lambda: _open(guarded), ("password",))
