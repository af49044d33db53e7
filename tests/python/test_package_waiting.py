"""Calls that wait: Ctrl-C stops them, other threads run meanwhile, and steps arrive as they become complete."""

import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import atoll
from conftest import child, particles


def test_ctrl_c_stops_a_call_that_waits(store: atoll.Store, table: atoll.Table) -> None:
    code = """
import threading
table = atoll.open(sys.argv[1]).table("run")
version, soon = table.version(), threading.Event()
def tell():
    soon.wait()
    print("waiting", flush=True)
threading.Thread(target=tell, daemon=True).start()
# The other thread has its turn when this one lets go of the interpreter lock: once it waits.
sys.setswitchinterval(60)
try:
    soon.set()
    table._native.follow(version, 3600.0)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""
    took = []
    # The machine may be busy; the test is about the delay that Atoll adds.
    while len(took) < 20 and min(took, default=1.0) >= 0.1:
        with child(code, store.url) as waiting:
            assert waiting.stdout.readline() == "waiting\n", waiting.stderr.read()
            began = time.monotonic()
            waiting.send_signal(signal.SIGINT)
            assert waiting.stdout.readline() == "stopped\n", waiting.stderr.read()
            took.append(time.monotonic() - began)
            assert waiting.wait(timeout=30) == 0
    assert min(took) < 0.1, took


#: Tells of the beginning of a wait from another thread, which has its turn once the main one lets go of the interpreter
#: lock.
TELLING = """
import signal, threading
soon = threading.Event()
def tell():
    soon.wait()
    print("waiting", flush=True)
threading.Thread(target=tell, daemon=True).start()
"""


def stopped(code: str, *words: object, then: Callable[[], None] = lambda: None) -> tuple[float, str]:
    """Stop a call that waits; return how many seconds that took, and what the process printed after ``then()``."""
    with child(TELLING + code, *words) as waiting:
        # A call that goes on after the signal fails the test instead of hanging it.
        late = threading.Timer(60.0, waiting.kill)
        late.start()
        try:
            assert waiting.stdout.readline() == "waiting\n", waiting.stderr.read()
            began = time.monotonic()
            waiting.send_signal(signal.SIGINT)
            assert waiting.stdout.readline() == "stopped\n", waiting.stderr.read()
            took = time.monotonic() - began
            then()
            rest = waiting.stdout.read()
            assert waiting.wait(timeout=30) == 0, waiting.stderr.read()
        finally:
            late.cancel()
            waiting.kill()
    return took, rest


ASKS = {
    "rows": "table.read()",
    "batches": "list(table.batches())",
    "batches in no order": "list(table.unordered().batches())",
    "an estimate": "table.sample(0.5).mean('x')",
    "a count": "table.where('x < 0.5').count()",
}


@pytest.mark.parametrize("ask", ASKS.values(), ids=list(ASKS))
def test_ctrl_c_stops_a_question_to_an_owner_that_does_not_answer(tmp_path: Path, ask: str) -> None:
    owning = """
table = atoll.open(sys.argv[1]).create_table("run", {"id": int, "x": float}, id="id", index="x")
table.append({"id": list(range(1000)), "x": [number / 1000 for number in range(1000)]})
print("open", flush=True)
time.sleep(3600)
"""
    asking = f"""
table, owner = atoll.open(sys.argv[1]).table("run"), int(sys.argv[2])
assert table.count() == 1000
os.kill(owner, signal.SIGSTOP)
while "\\nState:\\tT" not in open(f"/proc/{{owner}}/status").read():
    time.sleep(0.001)
# Until its other threads have stopped too.
time.sleep(0.05)
sys.setswitchinterval(60)
try:
    soon.set()
    {ask}
except KeyboardInterrupt:
    print("stopped", flush=True)
print(len(table.read()), flush=True)
"""
    with child(owning, tmp_path / "owned") as owner:
        try:
            assert owner.stdout.readline() == "open\n", owner.stderr.read()
            took = []
            while len(took) < 20 and min(took, default=1.0) >= 0.1:
                found = stopped(asking, tmp_path / "owned", owner.pid, then=lambda: os.kill(owner.pid, signal.SIGCONT))
                took.append(found[0])
                # The handle still works once the owner answers again.
                assert found[1] == "1000\n"
        finally:
            owner.kill()
    assert min(took) < 0.1, took


def test_ctrl_c_stops_a_flush_that_waits_for_another_rank_and_loses_no_step(table: atoll.Table) -> None:
    code = """
table, attempt = atoll.open(sys.argv[1]).table("run"), int(sys.argv[2])
made = table.select("pid", "x", "pos", "type").limit(1).numpy()
writer = atoll.Writer(table, "ranks", rank=0, size=2, attempt=attempt)
writer.step(0, 0.0, made)
try:
    # Until its own rows are written.
    writer.flush(1.0)
except atoll.errors.TimedOutError:
    pass
sys.setswitchinterval(60)
try:
    soon.set()
    writer.flush()
except KeyboardInterrupt:
    print("stopped", flush=True)
writer.close()
"""
    took = []
    while len(took) < 20 and min(took, default=1.0) >= 0.1:
        attempt = len(took) + 1
        took.append(stopped(code, table.store.url, attempt)[0])
        made = table.select("pid", "x", "pos", "type").limit(1).numpy()
        with atoll.Writer(table, "ranks", rank=1, size=2, attempt=attempt) as other:
            other.step(0, 0.0, made)
            other.flush(60.0)
        assert [step.rows for step in table.steps("ranks")] == [2]
    assert min(took) < 0.1, took


#: Lazy producers of rows. In C, no Python code runs between two batches, and each takes a few milliseconds; Python code
#: gets the signal itself, and what it raises reaches Atoll as a text.
PRODUCERS = {
    "in C": "map(operator.itemgetter(0), zip(itertools.repeat(batch, 20_000), map(sum, itertools.repeat(range(200_000)))))",
    "in Python": "(time.sleep(0.01) or batch for _ in range(20_000))",
}


@pytest.mark.parametrize("made", PRODUCERS.values(), ids=list(PRODUCERS))
def test_ctrl_c_stops_the_reading_of_a_lazy_producer_and_keeps_nothing(tmp_path: Path, made: str) -> None:
    code = f"""
import itertools, operator, pyarrow
table = atoll.open(sys.argv[1]).create_table("run", {{"id": int}}, id="id", index="id")
batch = pyarrow.record_batch({{"id": [1]}})
rows = pyarrow.RecordBatchReader.from_batches(batch.schema, {made})
sys.setswitchinterval(60)
try:
    soon.set()
    table.append(rows, run="r")
except KeyboardInterrupt:
    print("stopped", flush=True)
print(table.count(), flush=True)
"""
    took, rest = stopped(code, tmp_path / "store")
    # All of its batches take a minute or more.
    assert took < 10, took
    assert rest == "0\n"


def test_other_threads_run_while_a_call_waits(table: atoll.Table) -> None:
    version, waiting = table.version(), threading.Event()

    def wait() -> None:
        waiting.set()
        table._native.follow(version, 3600.0)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    waiting.wait()
    # If the waiting call held the interpreter lock, nothing here would run, and no next version would be made.
    made = table.limit(0).read().numpy()
    table.append(made)
    waiter.join(timeout=30)
    assert not waiter.is_alive()



def test_steps_arrive_as_they_become_complete(store: atoll.Store) -> None:
    made = particles(100, seed=3)
    table = store.create_table("run", made, id=("pid", "step"), index="x")
    table.append(made, run="old", step=0)
    arrived = table.follow()
    table.begin("live", ranks=2)

    def write() -> None:
        for step in range(3):
            for rank in (0, 1):
                # Each rank has its own particles.
                part = {**made, "pid": made["pid"] + 1_000 * (2 * step + rank + 1)}
                table.append(part, run="live", step=step, time=step / 2, rank=rank)

    writer = threading.Thread(target=write)
    writer.start()
    found = [next(arrived) for _ in range(3)]
    writer.join()
    assert [(step.run, step.step, step.time, step.rows) for step in found] == [
        ("live", step, step / 2, 200) for step in range(3)
    ]
    assert next(table.follow("old", from_start=True)).step == 0


def test_who_follows_lists_each_step_once_and_not_all_of_them_with_every_version(store: atoll.Store) -> None:
    table = store.create_table("t", {"x": "float64"}, id=("x",), index=("x",))
    native, listed = table._native, []

    class Counting:
        """A table that counts the steps that are listed."""

        def __getattr__(self, name: str) -> object:
            return getattr(native, name)

        def steps(self, *words: object) -> list:
            found = native.steps(*words)
            listed.extend(found)
            return found

    table._native = Counting()
    table.begin("a", ranks=2)
    arrived, steps = table.follow("a"), 20
    for step in range(steps):
        for rank in (0, 1):
            table.append({"x": [step + rank / 2]}, run="a", step=step, rank=rank)
        assert next(arrived).step == step
    assert len(listed) <= 2 * steps, len(listed)
    # A later attempt that writes a step again yields it again, but no step that it has not written.
    table.begin("a", ranks=1)
    for step in (7, 8):
        table.append({"x": [float(step)]}, run="a", step=step)
        found = next(arrived)
        assert (found.step, found.attempt) == (step, 2)


def test_a_step_whose_time_is_no_number_comes_once(store: atoll.Store) -> None:
    table = store.create_table("t", {"x": "float64"}, id=("x",), index=("x",))
    table.append({"x": [1.0]}, run="a", step=0, time=math.nan)
    arrived = table.follow(from_start=True)
    assert next(arrived).step == 0
    table.append({"x": [2.0]}, run="a", step=1, time=1.0)
    assert next(arrived).step == 1
