"""The runs that a query is restricted to: names or, for several stores queried as one, names within each store.

Runs of one name in two stores are two runs: a sweep may have a store for each temperature, with a run "main" in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: A run by name, or by the position of its store and its name.
OfRun = str | tuple[int, str]


def runs_wanted(names: Iterable[str], found: Sequence[Sequence[str]]) -> tuple[OfRun, ...]:
    """Return the runs of these names, in every store, and the runs that were found in each store."""
    if len(found) < 2:
        return tuple(dict.fromkeys((*names, *(name for of_store in found for name in of_store))))
    wanted = list(names)
    return tuple(dict.fromkeys((place, name) for place, of_store in enumerate(found) for name in (*wanted, *of_store)))


def runs_in_both(known: tuple[OfRun, ...] | None, wanted: tuple[OfRun, ...]) -> tuple[OfRun, ...]:
    """Return those of ``wanted`` that are also in ``known``; all of them for ``None``."""
    if known is None:
        return wanted
    if known and isinstance(known[0], tuple) and not (wanted and isinstance(wanted[0], tuple)):
        return tuple(run for run in known if run[1] in wanted)
    return tuple(run for run in wanted if run in known or (isinstance(run, tuple) and run[1] in known))


def run_told(run: OfRun) -> str:
    """Format a run; for several stores, with the position of its store, from 0 on."""
    return run if isinstance(run, str) else f"{run[1]} of store {run[0]}"
