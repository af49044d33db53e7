"""Attributes: notes on a store, a table, its runs and their steps; the periodic cell is one of them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, SupportsIndex

from . import _atoll
from ._cell import Cell
from ._convert import check_text, label, whole
from ._expression import literal
from .errors import InvalidInputError, UnsupportedError

#: The attribute that holds a cell.
_CELL = "cell"


class Noted:
    """The methods of a table for attributes."""

    _native: _atoll.Table

    def attributes(self, *, run: str | None = None, step: SupportsIndex | None = None) -> dict[str, Any]:
        """Return the attributes of the table, of a run, or of a step of a run; empty if there are none.

        For several stores as one, stores without any attributes are left out; raises ``UnsupportedError`` where the
        others differ.
        """
        noted = [known for known in self._noted_of_each(run, step) if known]
        return value_of_all(noted, "what is noted of it") if noted else {}

    def set_attributes(
        self,
        attributes: Mapping[str, Any],
        *,
        run: str | None = None,
        step: SupportsIndex | None = None,
        replace: bool = False,
    ) -> None:
        """Set attributes of the table, of a run, or of a step.

        Values are texts, numbers, truth values, and lists and mappings of these. Other attributes stay, also those that
        other writers set at the same time. A value of ``None`` removes an attribute; ``replace=True`` removes every
        attribute that is not named, including those set by imports and writers. A number that JSON does not have, such
        as NaN, is kept as a text. Attributes are not versioned: of several writers of one attribute, the last one wins.
        Neither the run nor the step has to exist yet.
        """
        known = self.attributes(run=run, step=step) if replace else ()
        self._native.note(changes_of(attributes, known), run, _checked_step(run, step))

    def cell(self, *, run: str | None = None, step: SupportsIndex | None = None) -> Cell | None:
        """Return the periodic cell of a step, of its run if the step has none, or else of the table.

        Raises ``UnsupportedError`` for several stores as one whose cells differ.
        """
        places: list[tuple[str | None, SupportsIndex | None]] = [(None, None)]
        places += [] if run is None else [(run, None)]
        places += [] if step is None else [(run, step)]
        of_stores: list[Any] = []
        for place in places:
            of_place = [noted.get(_CELL) for noted in self._noted_of_each(*place)]
            nearer = of_stores or [None] * len(of_place)
            of_stores = [other if own is None else own for own, other in zip(of_place, nearer, strict=True)]
        if run is not None and len(of_stores) > 1:
            # Ignore the stores that do not have the run.
            found = self._native.runs_of_each(f"run = {literal(run)}")
            of_stores = [cell for cell, runs in zip(of_stores, found, strict=True) if runs] or of_stores
        kept = value_of_all(of_stores, "their periodic cell")
        return None if kept is None else Cell._of(kept)

    def set_cell(self, cell: Cell | None, *, run: str | None = None, step: SupportsIndex | None = None) -> None:
        """Set the periodic cell of the table, of a run, or of a step; ``None`` removes it. Other attributes stay."""
        if not isinstance(cell, Cell | None):
            raise InvalidInputError.hinted(f"{cell!r} is not a cell", "write atoll.Cell((10, 10, 10)), with the length of each axis")
        self.set_attributes({_CELL: None if cell is None else cell._kept()}, run=run, step=step)

    def run_attributes(self, run: str) -> dict[str, str]:
        """Return the attributes of a run, such as the program and its options, as texts; empty if there are none."""
        return self._native.run_attributes(label(run, "run"))

    def set_run_attributes(self, run: str, attributes: Mapping[str, str]) -> None:
        """Set attributes of a run to texts, like :meth:`set_attributes`. A number that reads the same stays one."""
        known = self.run_attributes(run)
        self.set_attributes({name: text for name, text in attributes.items() if known.get(name) != text}, run=run)

    def _noted_of_each(self, run: str | None, step: SupportsIndex | None) -> list[dict[str, Any]]:
        return [json.loads(noted) for noted in self._native.attributes(run, _checked_step(run, step))]


def changes_of(attributes: Mapping[str, Any], replaced: Iterable[str]) -> str:
    """Return changes as the native half takes them: the replaced attributes are removed unless they have new values."""
    changes: dict[str, Any] = {}
    for key, value in attributes.items():
        name = str(key)
        check_text(name, "the name of an attribute")
        changes[name] = None if value is None else _as_json(name, value)
    return json.dumps(dict.fromkeys(replaced) | changes)


def value_of_all(of_stores: list[Any], what: str) -> Any:
    """Return the value on which all stores agree; there is at least one store."""
    if any(other != of_stores[0] for other in of_stores):
        raise UnsupportedError.hinted(
            f"the stores are opened as one, but {what} differs between them",
            "query each by itself, as atoll.open(url).table(name), or give the one to use: cell=",
        )
    return of_stores[0]


def _checked_step(run: str | None, step: SupportsIndex | None) -> int | None:
    if step is not None and run is None:
        raise InvalidInputError.hinted("a step belongs to a run", "say which: run=")
    if run is not None:
        label(run, "run")
    return None if step is None else whole(step, "step")


def _as_json(name: str, value: Any) -> Any:
    """Convert a value to what JSON has: NumPy numbers become numbers, and numbers that JSON lacks become texts."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, str):
        check_text(value, f'attribute "{name}"')
        return value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        for key in value:
            check_text(str(key), f'a key of attribute "{name}"')
        return {str(key): _as_json(name, item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(name, item) for item in value]
    raise InvalidInputError.hinted(
        f'attribute "{name}" is of type {type(value).__name__}, which cannot be stored',
        "texts, numbers, truth values, and lists and mappings of these can; str(value) makes a text of it",
    )
