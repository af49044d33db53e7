"""Tables: rows with a schema, of which every sample of every region is cheap."""

from __future__ import annotations

import html
import threading
from typing import TYPE_CHECKING, Any

from . import _atoll
from ._convert import rows
from ._query import Asking, Query
from .errors import InvalidInputError

if TYPE_CHECKING:
    from ._store import Store


class Table(Asking):
    """A table of a store; made by :meth:`Store.create_table`, opened by :meth:`Store.table`.

    Everything that can be asked of a query can be asked of a table: ``t.box(...)``, ``t.sample(0.01)``, ``t.arrow()``.
    Can be pickled: what is pickled is the place of the store and the name.
    """

    def __init__(self, native: _atoll.Table, store: Store) -> None:
        self._native = native
        self._store = store
        self._attempts: dict[str, int] = {}
        self._own_turn = threading.Lock()
        self._own_step = 0

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    @property
    def columns(self) -> list[str]:
        """Names of its columns, in their order."""
        return self._native.columns

    @property
    def schema(self) -> _atoll.Schema:
        """Its columns; ``pyarrow.schema(t.schema)`` and others read it (``__arrow_c_schema__``)."""
        return self._native.schema

    @property
    def id(self) -> list[str]:
        """The columns that name a row."""
        return self._native.roles[0]

    @property
    def sample_key(self) -> list[str]:
        """The columns that name a unit of sampling."""
        return self._native.roles[1]

    @property
    def index(self) -> list[str]:
        """The columns that boxes are about."""
        return self._native.roles[2]

    @property
    def store(self) -> Store:
        """The store it lies in."""
        return self._store

    def version(self) -> int:
        """The number of the version that is current; every edit makes the next."""
        return self._native.version()

    def query(self) -> Query:
        """The query for all of it."""
        return Query(self)

    def begin(self, run: str, ranks: int = 1, *, attempt: int = 1) -> int:
        """Begins an attempt of a run, and says which: from now on only it may append to the run.

        ``ranks`` writers append to each step, and a step is visible once all of them have. Steps that the attempt
        writes replace those of earlier attempts from there on. Beginning it again is harmless.

        Raises ``ConflictError`` where a later attempt has begun.
        """
        self._native.begin(run, attempt, ranks)
        self._attempts[run] = attempt
        return attempt

    def append(
        self,
        data: Any,
        *,
        run: str | None = None,
        step: int | None = None,
        rank: int = 0,
        attempt: int | None = None,
    ) -> int:
        """Appends rows, and says which version has them.

        ``data`` is a mapping of column names to arrays (shape (n,), or (n, k) for vectors), a data frame, or anything
        that speaks Arrow. It is copied before this returns. Columns that may be null can be left out; integers
        may have another width, if every value fits; nothing is rounded.

        Without ``run`` the rows go to a run of this process's own, as its next step. With ``run``, a ``step`` is needed,
        and the attempt is the one that :meth:`begin` began here, or the first. Appending a step again changes nothing.

        Raises ``InvalidInputError`` where the rows do not fit the table, ``ConflictError`` where another attempt of
        the run has begun meanwhile.
        """
        held = rows(data)
        if run is None:
            return self._append_own(held)
        if attempt is None:
            attempt = self._attempts[run] if run in self._attempts else self.begin(run)
        if step is None:
            raise InvalidInputError.hinted(f'rows of run "{run}" belong to a step', "say which: append(data, run=..., step=7)")
        return self._native.append(run, attempt, step, rank, held)

    def _append_own(self, held: _atoll.Rows) -> int:
        """Appends to the run that is this process's own: no other writes to it, so its steps can be counted here."""
        run = f"append-{self._native.session:032x}"
        with self._own_turn:
            if self._own_step == 0:
                self._native.begin(run, 1, 1)
            version = self._native.append(run, 1, self._own_step, 0, held)
            self._own_step += 1
        return version

    def __reduce__(self) -> tuple[Any, ...]:
        from ._store import reopened_table

        return reopened_table, (self._store._place(), self.name)

    def __repr__(self) -> str:
        return f'<atoll table "{self.name}": {", ".join(self.columns)}>'

    def _repr_html_(self) -> str:
        roles = {"id": self.id, "sample key": self.sample_key, "index": self.index}

        def of(column: str) -> str:
            return ", ".join(role for role, columns in roles.items() if column in columns)

        body = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(kind)}{' or null' if nullable else ''}</td>"
            f"<td>{of(name)}</td></tr>"
            for name, kind, nullable in self.schema.fields()
        )
        head = "<tr><th>column</th><th>type</th><th>role</th></tr>"
        return f"<p>Table <b>{html.escape(self.name)}</b></p><table><thead>{head}</thead><tbody>{body}</tbody></table>"
