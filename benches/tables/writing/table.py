"""Atoll: each step is appended, and acknowledged as its store does by default, or synced where requested."""

from ..asked import written
from ..data.rows import INDEX, SCHEMA
from ..peers.base import Unavailable
from .base import Frame, Writer


class AtollWriter(Writer):
    """One rank that appends to a table of its own."""

    name = "atoll"

    def start(self, frame: Frame) -> None:
        try:
            import atoll
        except ImportError as missing:
            raise Unavailable(f"the Python package atoll is not installed: {missing}") from missing
        self._store = atoll.open(self.folder / "store")
        self._table = self._store.create_table("run", SCHEMA, id=("pid", "step"), index=INDEX)
        self._table.begin("run", 1)

    def step(self, frame: Frame) -> None:
        self._table.append(frame, run="run", step=int(frame["step"][0]))
        if self.is_synced:
            self._store.sync()

    def finish(self) -> None:
        del self._table
        self._store.close()

    def wrong(self, frames: list[Frame]) -> list[str]:
        import atoll

        rows = sum(len(frame["pid"]) for frame in frames)
        with atoll.open(self.folder / "store", create=False) as store:
            return written.wrong(store.table("run"), frames.__getitem__, len(frames), rows)
