"""Atoll itself, used through its Python package as its users do."""

from pathlib import Path

import pyarrow as pa

from ..asked.question import ALL, Question
from ..data.dataset import Dataset
from .base import Peer, Unavailable

MEMORY_BYTES = 4 << 30
"""About the memory that PostgreSQL gets for shared buffers and cache."""


class AtollTable(Peer):
    """A table that was loaded before."""

    name = "atoll"

    def __init__(self, dataset: Dataset, store: Path | str, table: str) -> None:
        super().__init__(dataset, dataset.folder)
        self._place, self._name = store, table
        self._store = self._table = None

    def build(self) -> None:
        try:
            import atoll  # noqa: F401
        except ImportError as missing:
            raise Unavailable(f"the Python package atoll is not installed: {missing}") from missing

    def open(self) -> None:
        import atoll

        self._store = atoll.open(self._place, create=False, memory_bytes=MEMORY_BYTES)
        self._table = self._store.table(self._name)

    def close(self) -> None:
        # A table that is still referenced would keep the store open.
        self._table = None
        store, self._store = self._store, None
        if store is not None:
            store.close()

    def bytes_on_disk(self) -> int:
        if isinstance(self._place, str):
            raise NotImplementedError("a server tells its own size")
        return occupied(self._place)

    def ask(self, question: Question) -> pa.Table:
        asked = self._table.query()
        if (expression := question.expression()) is not None:
            asked = asked.where(expression)
        if question.cut < ALL:
            asked = asked.sample(question.share)
        if question.limit is not None:
            asked = asked.first(question.limit)
        # No rival puts its rows in the order of their weights.
        return asked.unordered().arrow()


def occupied(folder: Path) -> int:
    """The bytes that a store's files occupy on disk, without holes."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())
