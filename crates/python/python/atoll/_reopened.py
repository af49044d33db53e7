"""Unpickled stores and tables: known by their place, and opened at their first use.

Invariant: unpickling opens nothing. An error in unpickling is never reported: a pool of processes waits forever for a
worker that ended while it took its task. An error at the first use, in the task itself, is raised to the caller of the
pool.
"""

from __future__ import annotations

import functools
from typing import Any

from . import _atoll
from ._store import Store, Stores, open_here
from ._table import Table


def reopened_store(
    url: str, read_only: bool, memory_bytes: int | None = None, keep_seconds: int | None = None
) -> Store:
    """Return the store of a pickle: the one that is open in this process, or one that opens itself, with its limits."""
    store = open_here(url, read_only)
    if store is not None:
        return store
    return Store(url, None, read_only=read_only, memory_bytes=memory_bytes, keep_seconds=keep_seconds)


def reopened_stores(places: tuple[tuple[Any, ...], ...]) -> Stores:
    """Return the stores of a pickle."""
    return Stores([reopened_store(*place) for place in places])


def reopened_table(place: tuple[Any, ...], name: str) -> Table:
    """Return the table of a pickle: of one store, or of several."""
    store = reopened_store(*place) if isinstance(place[0], str) else reopened_stores(place)
    return _Reopened(store, name)


class _Reopened(Table):
    """A table that opens itself at its first use."""

    def __init__(self, store: Store | Stores, name: str) -> None:
        # The native half is created below, at its first use, and then cached under the same name.
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
        # Must not open the table, which may fail: a traceback shows this text.
        return super().__repr__() if self._is_open else f'<atoll table "{self._called}", not opened yet>'

    def _repr_html_(self) -> str | None:
        return super()._repr_html_() if self._is_open else None

    @property
    def _is_open(self) -> bool:
        return "_native" in self.__dict__
