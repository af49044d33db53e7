"""Ranks of `atoll.Writer` that disagree, with a communicator: every rank raises, and none waits for another."""

import threading
from collections.abc import Callable
from typing import Any

import numpy
import pytest

import atoll
from atoll.errors import InvalidInputError

#: Ends a rank that would wait forever; a healthy rank never comes near it.
SECONDS_MAX = 20


class Exchange:
    """The state shared by two threads that stand for two MPI ranks."""

    def __init__(self) -> None:
        self.meeting, self.told = threading.Barrier(2, timeout=SECONDS_MAX), [None, None]


class Comm:
    """The part of an mpi4py communicator that a writer uses, for two threads; `test_writer_mpi` has a real one."""

    def __init__(self, rank: int, exchange: Exchange) -> None:
        self.rank, self._exchange = rank, exchange

    def Get_rank(self) -> int:  # noqa: N802 - as mpi4py calls it
        return self.rank

    def Get_size(self) -> int:  # noqa: N802 - as mpi4py calls it
        return 2

    def allgather(self, own: Any) -> list[Any]:
        self._exchange.told[self.rank] = own
        self._exchange.meeting.wait()
        told = list(self._exchange.told)
        self._exchange.meeting.wait()
        return told

    def bcast(self, own: Any, root: int) -> Any:
        return self.allgather(own)[root]


def on_ranks(do: Callable[[Comm], Any]) -> list[BaseException | None]:
    """Call it on two ranks, and return what each raised."""
    exchange, raised = Exchange(), [None, None]

    def run(rank: int) -> None:
        try:
            do(Comm(rank, exchange))
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            raised[rank] = error

    ranks = [threading.Thread(target=run, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    return raised


@pytest.fixture
def table(store: atoll.Store) -> atoll.Table:
    """An empty table."""
    return store.create_table("toy", {"pid": "int64", "step": "int64"}, id=("pid", "step"), index="step")


@pytest.mark.parametrize(
    "differing",
    [
        lambda rank: {"run": f"run-{rank}"},
        lambda rank: {"attempt": 3 if rank else None},
        lambda rank: {"attempt": 3 + rank},
        lambda rank: {"buffer_bytes": rank},
        lambda rank: {"run": "a" if rank else 7},
        lambda rank: {"rank": rank, "size": 2 + rank},
    ],
)
def test_what_ranks_do_not_agree_on_is_refused_on_all(table: atoll.Table, differing: Callable) -> None:
    raised = on_ranks(lambda comm: atoll.Writer(table, **{"run": "a", "comm": comm} | differing(comm.rank)).close())
    assert [type(error) for error in raised] == [InvalidInputError] * 2, raised
    assert not table.runs()


def test_ranks_may_have_their_attempt_in_types_of_their_own(table: atoll.Table) -> None:
    attempts = [1, numpy.int64(1)]
    raised = on_ranks(lambda comm: atoll.Writer(table, "a", comm=comm, attempt=attempts[comm.rank]).close())
    assert raised == [None, None]


def test_a_wrong_name_does_not_lose_the_rows_of_its_rank(table: atoll.Table) -> None:
    """If the other run existed already, rank 1's rows would count as written by that run's attempt."""
    on_ranks(lambda comm: _write(table, "b", comm))
    raised = on_ranks(lambda comm: _write(table, "ab"[comm.rank], comm))
    assert [type(error) for error in raised] == [InvalidInputError] * 2, raised


def _write(table: atoll.Table, run: str, comm: Comm) -> None:
    with atoll.Writer(table, run, comm=comm) as writer:
        writer.step(0, None, {"pid": [comm.rank]})
        writer.flush(SECONDS_MAX)
