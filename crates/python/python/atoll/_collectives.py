"""Operations that the ranks of a communicator do together, so that a failure on one rank is a failure on all.

Invariant: every rank takes part in the same number of exchanges, whatever failed: no rank waits for one that has left.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import InvalidInputError, UnavailableError

Told = TypeVar("Told")


def all_or_none(comm: Any, do: Callable[[], Told]) -> Told:
    """Call `do` on every rank. If it fails on one, it fails on all: no rank waits for one that has left."""
    done: list[Told] = []
    error: BaseException | None = None
    try:
        done.append(do())
    except BaseException as caught:  # noqa: BLE001 - passed on whole
        error = caught
    errors = comm.allgather(_portable(error))
    if error is not None:
        raise error
    for rank, other in enumerate(errors):
        if other is not None:
            other.add_note(f"on rank {rank}")
            raise other
    return done[0]


def check_alike(comm: Any, said: str, what: str) -> None:
    """Refuse, on all ranks, a value that is not the same on all of them."""
    for rank, other in enumerate(comm.allgather(said)):
        if other != said:
            raise InvalidInputError(f"{what}: rank {comm.Get_rank()} gives {said!r}, and rank {rank} {other!r}")


def _portable(error: BaseException | None) -> Exception | None:
    """Make an error fit for other ranks: some cannot be pickled, and Ctrl-C or `exit` of one rank is not theirs."""
    if isinstance(error, Exception):
        with contextlib.suppress(Exception):
            return pickle.loads(pickle.dumps(error))
    return None if error is None else UnavailableError(f"another rank failed: {type(error).__name__}: {error}")


def told_by_first(comm: Any, ask: Callable[[], Told]) -> Told:
    """Call `ask` on rank 0, and return its result on every rank. If it fails, it fails on all ranks."""
    told: tuple[Any, Exception | None] = (None, None)
    own: BaseException | None = None
    if comm.Get_rank() == 0:
        try:
            told = (ask(), None)
        except BaseException as caught:  # noqa: BLE001 - passed on whole
            own, told = caught, (None, _portable(caught))
    value, error = comm.bcast(told, root=0)
    if own is not None:
        raise own
    if error is not None:
        raise error
    return value
