"""Child processes of the bench, and waits.

Invariant: every wait is bounded and names what did not come, and no process outlives the one that started it.
"""

import contextlib
import multiprocessing
import queue
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess

from . import machine

CONTEXT = multiprocessing.get_context("spawn")
_LOOK_SECONDS = 0.2
"""How often a wait checks whether the process that it waits for still runs."""
_CLOSED_SECONDS, _KILLED_SECONDS = 60.0, 60.0
"""How long a process may take to end after it has answered or was killed."""


class NotDone(RuntimeError):
    """What was waited for did not come."""


def answer_of(target: Callable, *given: object, seconds: float, what: str) -> object:
    """Runs `target` in a process of its own, and returns its answer within `seconds`."""
    return answers_of(target, [given], seconds=seconds, what=what)[0]


def answers_of(target: Callable, each: Sequence[tuple], *, seconds: float, what: str) -> list:
    """Runs `target` in one process for each argument tuple, all at once, and returns the answers within `seconds`;
    raises if one of them raises.
    """
    answers, found, ends = CONTEXT.Queue(), {}, time.monotonic() + seconds
    started = [
        CONTEXT.Process(target=_answer, args=(answers, number, target, given), daemon=True)
        for number, given in enumerate(each)
    ]
    with running(*started):
        while len(found) < len(started):
            others = [child for number, child in enumerate(started) if number not in found]
            number, answer, failed = next_of(answers, others, seconds=ends - time.monotonic(), what=what)
            if failed is not None:
                raise NotDone(f"{what}: {failed}")
            found[number] = answer
        for child in started:
            # The process closes what it has open, if it can.
            child.join(_CLOSED_SECONDS)
    return [found[number] for number in range(len(started))]


@contextlib.contextmanager
def running(*children: BaseProcess) -> Iterator[None]:
    """Starts the processes; at the end of the block, however it ends, kills those that still run."""
    try:
        for child in children:
            child.start()
        yield
    finally:
        for child in children:
            if child.pid is not None:
                child.kill()
                child.join(_KILLED_SECONDS)


def next_of(answers, children: Sequence[BaseProcess], *, seconds: float, what: str) -> object:  # noqa: ANN001: of whichever context
    """The next answer of these processes; raises if one of them ends first, or if the time is up."""
    ends = time.monotonic() + seconds
    while True:
        # Determined first: a process that has ended may have answered before.
        ended = [child.exitcode for child in children if not child.is_alive()]
        try:
            return answers.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            if ended:
                raise NotDone(f"{what}: its process ended with {ended[0]}, and said nothing") from None
            if time.monotonic() >= ends:
                raise NotDone(f"{what}: nothing came in {seconds:.0f} s") from None


def until(is_so: Callable[[], bool], *, seconds: float, what: str) -> None:
    """Waits until `is_so` returns true; raises if it does not within `seconds`."""
    ends = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() >= ends:
            raise NotDone(f"{what}: not after {seconds:.0f} s")
        time.sleep(0.05)


def _answer(answers, number: int, target: Callable, given: tuple) -> None:  # noqa: ANN001: of whichever context
    machine.end_with_parent()
    try:
        answers.put((number, target(*given), None))
    except Exception:
        answers.put((number, None, traceback.format_exc()))
