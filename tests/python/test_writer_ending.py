"""The end of an `atoll.Writer`: closed, forgotten, or ended with its program."""

import gc
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from writer_tables import Failing, Gated

import atoll
from atoll import errors
from atoll._columns import copies

ROWS = 100
COLUMNS = {"pid": "int64", "step": "int64", "x": "float64"}


@pytest.fixture
def table(store) -> atoll.Table:
    """An empty table."""
    return store.create_table("run", COLUMNS, id=("pid", "step"), index=("x", "step"))


def rows() -> dict[str, numpy.ndarray]:
    """Make the rows of a step."""
    return {"pid": numpy.arange(ROWS), "x": numpy.full(ROWS, 0.5)}


def steps_of(table: atoll.Table) -> dict[int, int]:
    """Return the number of rows of each visible step."""
    steps, counts = numpy.unique(table.numpy()["step"], return_counts=True)
    return dict(zip(steps.tolist(), counts.tolist(), strict=True))


def test_a_closed_writer_says_so(table):
    writer = atoll.Writer(table, "a")
    writer.close()
    with pytest.raises(errors.UnavailableError, match="closed") as raised:
        writer.step(1, None, rows())
    assert "before close()" in raised.value.hint


def test_a_close_that_was_interrupted_can_be_called_again_and_waits(table, monkeypatch):
    gated = Gated(table)
    writer = atoll.Writer(gated, "a")
    writer.step(1, None, rows())

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(writer._pump._thread, "join", interrupted)
        writer.close()
    again = threading.Thread(target=writer.close, daemon=True)
    again.start()
    again.join(0.2)
    assert again.is_alive(), "its step is not written yet"
    gated.allowed.release()
    again.join(30)
    assert steps_of(table) == {1: ROWS}


def test_a_step_that_is_copied_while_the_writer_is_closed_is_refused_and_takes_no_room(table, monkeypatch):
    writer = atoll.Writer(table, "a")

    def closing(columns: dict) -> dict:
        # As a signal handler, or another thread, in the middle of the copy.
        writer.close()
        return copies(columns)

    monkeypatch.setattr("atoll.writer.copies", closing)
    with pytest.raises(errors.UnavailableError, match="closed") as raised:
        writer.step(1, None, rows())
    assert "before close()" in raised.value.hint
    assert writer._pump._bytes == 0
    writer.flush(timeout=5)
    writer.close()
    assert table.steps() == []


def test_a_step_that_waits_for_room_is_refused_as_soon_as_the_writer_is_closed(table):
    gated = Gated(table)
    writer = atoll.Writer(gated, "a", buffer_bytes=1)
    writer.step(1, None, rows())
    refused = threading.Event()

    def give() -> None:
        with pytest.raises(errors.UnavailableError, match="closed"):
            writer.step(2, None, rows())
        refused.set()

    giving = threading.Thread(target=give, daemon=True)
    giving.start()
    assert not refused.wait(0.2), "there is no room yet"
    closing = threading.Thread(target=writer.close, daemon=True)
    closing.start()
    assert refused.wait(30), "it waits for the step before it"
    gated.allowed.release()
    closing.join(30)
    assert not closing.is_alive()
    assert steps_of(table) == {1: ROWS}


def test_a_writer_that_is_forgotten_still_writes_what_it_was_given(table):
    gated = Gated(table)
    writer = atoll.Writer(gated, "a")
    for step in range(3):
        writer.step(step, None, rows())
    gated.allowed.release(3)
    del writer
    gc.collect()
    assert steps_of(table) == {0: ROWS, 1: ROWS, 2: ROWS}


def test_a_program_that_ends_without_closing_loses_nothing(tmp_path: Path):
    program = f"""
import atoll, numpy
schema = {{"pid": "int64", "step": "int64"}}
table = atoll.open({str(tmp_path)!r}).create_table("t", schema, id=("pid", "step"), index="step")
writer = atoll.Writer(table, "a")
for step in range(20):
    writer.step(step, None, {{"pid": numpy.arange(50_000)}})
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    with atoll.open(tmp_path) as store:
        assert store.table("t").count() == 20 * 50_000


@pytest.mark.parametrize("start", ["fork", "forkserver", "spawn"])
def test_a_process_of_multiprocessing_that_ends_without_closing_loses_nothing(tmp_path: Path, start: str):
    program = tmp_path / "program.py"
    program.write_text(f"""
import atoll, multiprocessing, numpy
def work():
    global writer
    schema = {{"pid": "int64", "step": "int64"}}
    table = atoll.open({str(tmp_path / "store")!r}).create_table("t", schema, id=("pid", "step"), index="step")
    writer = atoll.Writer(table, "a")
    for step in range(20):
        writer.step(step, None, {{"pid": numpy.arange(50_000)}})
if __name__ == "__main__":
    child = multiprocessing.get_context({start!r}).Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0
""")
    subprocess.run([sys.executable, program], check=True, timeout=60)
    with atoll.open(tmp_path / "store") as store:
        assert store.table("t").count() == 20 * 50_000


@pytest.mark.parametrize("last", ["int64", "float64"])
def test_a_writer_that_its_own_thread_collects_loses_nothing(tmp_path: Path, last: str):
    # Halves fit no integer column.
    divisor = 1 if last == "int64" else 2
    program = f"""
import atoll, numpy, threading
class Collecting:
    def __init__(self, table):
        self.table, self.go, self.collected = table, threading.Semaphore(0), threading.Event()
    def append(self, data, **named):
        self.go.acquire()
        if named["step"] == 1:
            # What the collection of garbage does where a thread happens to allocate; errors of it are printed.
            try:
                finish()
            except Exception:
                pass
            self.collected.set()
        return self.table.append(data, **named)
    def __getattr__(self, name):
        return getattr(self.table, name)
table = atoll.open({str(tmp_path)!r}).create_table("t", {{"pid": "int64"}}, id="pid", index="pid")
collecting = Collecting(table)
writer = atoll.Writer(collecting, "a")
finish = writer._finish
for step in range(1, 4):
    writer.step(step, None, {{"pid": numpy.arange(5) if step < 3 else numpy.arange(5).astype({last!r}) / {divisor}}})
collecting.go.release()
collecting.collected.wait()
collecting.go.release(2)
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert ("not closed" in ended.stderr) == (last == "float64"), ended.stderr
    with atoll.open(tmp_path) as store:
        assert [step.step for step in store.table("t").steps()] == ([1, 2, 3] if last == "int64" else [1, 2])


def test_a_program_that_ends_without_closing_is_told_what_is_not_written(tmp_path: Path):
    program = f"""
import atoll, numpy
table = atoll.open({str(tmp_path)!r}).create_table("t", {{"pid": "int32"}}, id="pid", index="pid")
writer = atoll.Writer(table, "a")
writer.step(1, None, {{"pid": numpy.arange(5)}})
writer.step(2, None, {{"pid": numpy.arange(5) / 2}})
"""
    ended = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    assert "InvalidInputError" in ended.stderr
    assert "run 'a'" in ended.stderr and "not closed" in ended.stderr


def test_a_forgotten_writer_tells_its_error(table, monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: told.append(type(unraisable.exc_value)))
    failing = Failing(table)
    failing.allowed.release(2)
    writer = atoll.Writer(failing, "a")
    for step in range(2):
        writer.step(step, None, rows())
    del writer
    gc.collect()
    assert told == [errors.OutOfSpaceError]


def test_an_error_that_was_raised_is_not_told_again_at_the_end(table):
    failing = Failing(table)
    failing.allowed.release(1)
    writer = atoll.Writer(failing, "a")
    writer.step(1, None, rows())
    with pytest.raises(errors.OutOfSpaceError):
        writer.flush()
    writer._finish()


def frames_of(call: Callable[[], object]) -> int:
    """Return the number of frames in the traceback of the error that a call raises."""
    try:
        call()
    except errors.OutOfSpaceError as error:
        return len(list(traceback.walk_tb(error.__traceback__)))
    raise AssertionError("nothing was raised")


def test_an_error_that_is_raised_again_and_again_keeps_no_arrays(table):
    failing = Failing(table)
    failing.allowed.release(1)
    writer = atoll.Writer(failing, "a")
    given = numpy.full(ROWS, 0.5)
    arrays = [weakref.ref(given)]
    writer.step(1, None, {**rows(), "x": given}, give=True)
    del given
    frames_of(writer.flush)
    gc.collect()
    assert arrays[0]() is None, "the traceback keeps the step that failed"
    frames = set()
    for step in range(2, 6):
        given = numpy.full(ROWS, 0.5)
        arrays.append(weakref.ref(given))
        columns = {**rows(), "x": given}
        frames.add(frames_of(lambda step=step, columns=columns: writer.step(step, None, columns, give=True)))
    del given, columns
    assert len(frames) == 1, "the traceback grows"
    frames_of(writer.close)
    gc.collect()
    assert [array() for array in arrays] == [None] * 5, "the traceback keeps the steps that were refused"
