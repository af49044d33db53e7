"""Phases of the bench of tables judge what they time: a fault in what is measured is told, and is no good figure."""

import queue
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))

from tables.phases import live
from tables.phases.live_writer import Appended


class _Watched:
    """A table that can be sampled; following it fails."""

    def __init__(self) -> None:
        self._native = SimpleNamespace(follow=self._follow)

    def _follow(self, last: int, seconds: float) -> int:
        raise OSError("the connection is gone")

    def sample(self, share: float) -> "_Watched":
        return self

    def read(self) -> SimpleNamespace:
        return SimpleNamespace(work=SimpleNamespace(rows_touched=1, rows_returned=1))

    def info(self) -> SimpleNamespace:
        return SimpleNamespace(blocks=0)


def test_a_follower_that_fails_fails_the_phase(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "_box", lambda bench: None)
    monkeypatch.setattr(live, "_as_query", lambda table, box: table)
    appended: queue.Queue = queue.Queue()
    appended.put(Appended(began=1.0, acknowledged=1.1, version=4, rows=1))
    store = SimpleNamespace(table=lambda name: _Watched())
    with pytest.raises(OSError, match="the connection is gone"):
        live._watched(None, store, SimpleNamespace(is_alive=lambda: True), appended, 1)
