"""What the ranks of a communicator do together, so that what fails on one fails on all.

Invariant: every rank takes part in as many exchanges, whatever failed: nobody waits for one that went away.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import InvalidInputError, UnavailableError

Told = TypeVar("Told")


def all_or_none(comm: Any, do: Callable[[], Told]) -> Told:
    """What every rank does. If one fails, all fail: nobody waits for one that went away."""
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
    """Refuses, on all ranks, what they do not all say alike."""
    for rank, other in enumerate(comm.allgather(said)):
        if other != said:
            raise InvalidInputError(f"{what}: rank {comm.Get_rank()} gives {said!r}, and rank {rank} {other!r}")


def _portable(error: BaseException | None) -> Exception | None:
    """An error as it can be told to other ranks: some cannot be pickled, and Ctrl-C or `exit` of one is not theirs."""
    if isinstance(error, Exception):
        with contextlib.suppress(Exception):
            return pickle.loads(pickle.dumps(error))
    return None if error is None else UnavailableError(f"another rank failed: {type(error).__name__}: {error}")


def told_by_first(comm: Any, ask: Callable[[], Told]) -> Told:
    """What rank 0 finds out, on every rank. If it fails, all fail: nobody waits for a message that never comes."""
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
