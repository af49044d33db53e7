"""What was pickled, in the process where it is unpickled: known by its place, and opened at its first use.

Invariant: unpickling opens nothing. Where it fails nobody is told: a pool of processes waits for ever for a worker that
ended while it took its task; what fails at the first use, in the task itself, is raised to whoever gave the task.
"""

from __future__ import annotations

import functools
from typing import Any

from . import _atoll
from ._store import Store, Stores, open_here
from ._table import Table


def reopened_store(url: str, read_only: bool) -> Store:
    """A store that was pickled: the one that is open here, or one that opens itself."""
    store = open_here(url, read_only)
    return store if store is not None else Store(url, None, read_only=read_only)


def reopened_stores(places: tuple[tuple[str, bool], ...]) -> Stores:
    """Stores that were pickled."""
    return Stores([reopened_store(*place) for place in places])


def reopened_table(place: tuple[Any, ...], name: str) -> Table:
    """A table that was pickled: of one store, or of several."""
    store = reopened_store(*place) if isinstance(place[0], str) else reopened_stores(place)
    return _Reopened(store, name)


class _Reopened(Table):
    """A table that opens itself when something is asked of it."""

    def __init__(self, store: Store | Stores, name: str) -> None:
        # The native half is made below, and kept under the same name from then on.
        super().__init__(None, store)  # type: ignore[arg-type]
        del self._native
        self._called = name

    @functools.cached_property
    def _native(self) -> _atoll.Table:  # type: ignore[override]
        return self._store.table(self._called)._native

    @property
    def name(self) -> str:
        return self._called

    def __repr__(self) -> str:
        # Also where it cannot be opened: this is what a traceback shows.
        is_open = "_native" in self.__dict__
        return super().__repr__() if is_open else f'<atoll table "{self._called}", not opened yet>'
