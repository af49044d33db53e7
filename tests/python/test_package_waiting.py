"""Calls that wait: Ctrl-C stops them, other threads run meanwhile, and steps arrive as they become complete."""

import math
import signal
import threading
import time

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
