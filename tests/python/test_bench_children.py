"""Processes of the tables bench: one that hangs, ends or fails is reported by its task, and is not left running."""

import multiprocessing
import os
import queue
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))

from tables.bench import Bench
from tables.children import NotDone, answer_of, answers_of, next_of, until
from tables.data.rows import SCHEMA
from tables.data.tube import Tube
from tables.phases import live, packing, sustained


def _twice(number: int) -> int:
    return number * 2


def _hangs(*given: object) -> None:
    threading.Event().wait()


def _fails(*given: object) -> None:
    raise OSError("no space left")


def _vanishes() -> None:
    os._exit(3)


def test_answers_come_in_the_order_of_the_questions():
    assert answers_of(_twice, [(1,), (2,)], seconds=60.0, what="twice") == [2, 4]


def test_a_process_that_hangs_fails_or_vanishes_is_told_and_ended():
    with pytest.raises(NotDone, match="a word: nothing came in 1 s"):
        answer_of(_hangs, seconds=1.0, what="a word")
    with pytest.raises(NotDone, match="(?s)a word: .*no space left"):
        answer_of(_fails, seconds=60.0, what="a word")
    with pytest.raises(NotDone, match="a word: its process ended with 3"):
        answer_of(_vanishes, seconds=60.0, what="a word")
    assert multiprocessing.active_children() == []


def test_what_was_said_before_the_end_is_heard():
    said: queue.Queue = queue.Queue()
    said.put("ready")
    ended = SimpleNamespace(is_alive=lambda: False, exitcode=0)
    assert next_of(said, [ended], seconds=0.0, what="a word") == "ready"
    with pytest.raises(NotDone, match="ended with 0"):
        next_of(said, [ended], seconds=60.0, what="a word")


def test_a_wait_has_an_end_that_says_what_was_awaited():
    looks = iter([False, True])
    until(lambda: next(looks), seconds=60.0, what="a table without blocks")
    with pytest.raises(NotDone, match="a table without blocks: not after 0 s"):
        until(lambda: False, seconds=0.0, what="a table without blocks")


def _bench(folder: Path) -> Bench:
    """A bench of a small tube, which gives up after a moment."""
    frames = list(Tube(steps=3, particles=500).frames())
    batches = [pa.RecordBatch.from_pydict({name: frame[name] for name in SCHEMA.names}, schema=SCHEMA) for frame in frames]
    rows = sum(batch.num_rows for batch in batches)
    dataset = SimpleNamespace(rows=rows, batches=lambda: iter(batches))
    return Bench(folder, Path(), dataset, None, None, is_quick=False, commit="0", minutes=0.01)


def test_a_writer_that_hangs_does_not_go_on_beside_the_next_phase(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sustained, "_TABLE_ROWS", 1_000)
    monkeypatch.setattr(sustained, "_PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(sustained, "_write", _hangs)
    with pytest.raises(NotDone, match="sustained writing"):
        sustained.run(_bench(tmp_path))
    assert multiprocessing.active_children() == []
    assert list(tmp_path.iterdir()) == []


def test_writers_that_fail_are_told_with_the_reason_and_leave_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(packing, "_append", _fails)
    with pytest.raises(NotDone, match="(?s)four writers.*no space left"):
        packing._many_appends(_bench(tmp_path))
    assert multiprocessing.active_children() == []
    # The folder with its socket is removed together with the error, which holds the table.
    assert not any(path.is_dir() for path in tmp_path.iterdir())


def test_a_packing_that_stands_still_ends_the_wait_for_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sustained, "_PATIENCE_SECONDS", 0.0)
    table = SimpleNamespace(info=lambda: SimpleNamespace(blocks=151))
    with pytest.raises(NotDone, match="no more than 150 steps"):
        sustained._wait_for_blocks(table, 150)


def test_a_writer_that_acknowledges_nothing_ends_the_phase(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "_STUCK_SECONDS", -1.0)
    work = SimpleNamespace(rows_touched=1, rows_returned=1)
    table = SimpleNamespace(
        sample=lambda share: SimpleNamespace(read=lambda: SimpleNamespace(work=work)),
        info=lambda: SimpleNamespace(blocks=0),
    )
    box = live.LastSteps(None, [1])
    hangs, follower = SimpleNamespace(is_alive=lambda: True), SimpleNamespace(done=lambda: False)
    with pytest.raises(NotDone, match="0 of 7 steps"):
        live._sampled(box, table, hangs, queue.Queue(), 7, follower)
