"""Which runs a query is of: names, or where several stores are asked as one, names of each store.

Runs of one name in two stores are two runs: a sweep may have a store for each temperature, with a run "main" in each.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

#: A run by its name, or by the place of its store as well.
OfRun = str | tuple[int, str]


def runs_wanted(names: Iterable[str], found: Sequence[Sequence[str]]) -> tuple[OfRun, ...]:
    """The runs of these names, wherever they are, and those that were found in each store."""
    if len(found) < 2:
        return tuple(dict.fromkeys((*names, *(name for of_store in found for name in of_store))))
    wanted = list(names)
    return tuple(dict.fromkeys((place, name) for place, of_store in enumerate(found) for name in (*wanted, *of_store)))


def runs_in_both(known: tuple[OfRun, ...] | None, wanted: tuple[OfRun, ...]) -> tuple[OfRun, ...]:
    """Those of ``wanted`` that are in ``known`` as well; all of them for ``None``."""
    if known is None:
        return wanted
    if known and isinstance(known[0], tuple) and not (wanted and isinstance(wanted[0], tuple)):
        return tuple(run for run in known if run[1] in wanted)
    return tuple(run for run in wanted if run in known or (isinstance(run, tuple) and run[1] in known))


def run_told(run: OfRun) -> str:
    """A run as it is told: of several stores with the place of its own, from 0 on."""
    return run if isinstance(run, str) else f"{run[1]} of store {run[0]}"
