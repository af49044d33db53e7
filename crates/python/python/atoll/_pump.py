"""The bounded queue between a simulation and its table, and the thread that empties it.

Invariant: the steps that wait, and the one being appended, take at most `bytes_max`, or are one single step.
Invariant: nothing is appended after an error: no step may become visible without the earlier ones.
Invariant: in a forked child, which does not have the thread, calls raise; they neither wait nor take the lock, which
might never be released there.
"""

from __future__ import annotations

import os
import threading
import time as clock
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

from .errors import TimedOutError, UnavailableError, UnsupportedError

if TYPE_CHECKING:
    from ._columns import Kept


@dataclass(frozen=True, slots=True)
class Step:
    """One step of one rank, on its way to the table."""

    step: int
    time: float | None
    columns: Mapping[str, Kept]
    bytes: int


class Pump:
    """Appends steps in order, one at a time, on a thread of its own."""

    def __init__(self, append: Callable[[Step], None], bytes_max: int) -> None:
        self._append, self._bytes_max = append, bytes_max
        self._bytes = 0
        self._longest = 0.0
        self._waiting: deque[Step] = deque()
        self._is_appending = self._is_ending = False
        self._error: BaseException | None = None
        #: The traceback of the error as the thread left it, without what its frames held.
        self._trace: TracebackType | None = None
        self._is_told = False
        self._process = os.getpid()
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="atoll.Writer", daemon=True)
        self._thread.start()

    @property
    def error(self) -> BaseException | None:
        """The error that ended the thread; reading it counts as reporting it."""
        self._is_told = True
        return self._error

    @property
    def longest(self) -> float:
        """The longest time that an append took, in seconds."""
        return self._longest

    def check(self) -> None:
        """Raise the error of the thread, if there was one."""
        if self._is_forked:
            raise UnsupportedError.hinted(
                "this process was forked from the one that made the writer, and does not have its thread",
                "make the writer in the process that gives it steps",
            )
        if self._error is not None:
            self._is_told = True
            # Each raise adds its frames to the traceback: added to the last one, they would keep the arrays of every step
            # that was refused.
            raise self._error.with_traceback(self._trace)

    def check_untold(self, note: str) -> None:
        """Raise the error of the thread, with a note, unless it has been reported."""
        if self._error is not None and not self._is_told and not self._is_forked:
            self._error.add_note(note)
            self.check()

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._process

    def reserve(self, room: int) -> None:
        """Reserve `room` bytes of the buffer, waiting until they are free; a larger step waits until it is empty.

        Raises if the writer is closed, also if that happens during the wait.
        """
        self.check()
        with self._news:
            self._news.wait_for(
                lambda: self._error or self._is_ending or self._bytes == 0 or self._bytes + room <= self._bytes_max
            )
            self.check()
            if self._is_ending:
                raise _closed()
            self._bytes += room

    def release(self, room: int) -> None:
        """Release room that was reserved for a step that will not come."""
        with self._news:
            self._bytes -= room
            self._news.notify_all()

    def put(self, step: Step) -> None:
        """Queue a step whose room was reserved; release the room and raise if the writer was closed meanwhile."""
        with self._news:
            if self._is_ending:
                # Another thread or a signal handler closed the writer while the step was copied: the thread that would
                # append the step may have ended.
                self._bytes -= step.bytes
                self._news.notify_all()
                raise _closed()
            self._waiting.append(step)
            self._news.notify_all()

    def drain(self, ends: float | None) -> None:
        """Wait until everything is appended; `ends` is a reading of the monotonic clock."""
        self.check()
        with self._news:
            left = None if ends is None else max(0.0, ends - clock.monotonic())
            is_idle = self._news.wait_for(lambda: self._error or not (self._waiting or self._is_appending), left)
            self.check()
            if not is_idle:
                raise TimedOutError(f"{len(self._waiting) + self._is_appending} steps still wait to be written")

    def finish(self) -> None:
        """Append the remaining steps and end the thread. An error is kept for `check`, not raised."""
        if self._is_forked:
            return
        self.end()
        self._thread.join()

    def end(self) -> None:
        """Let the thread end once everything is appended, without waiting for it."""
        with self._news:
            self._is_ending = True
            self._news.notify_all()

    def is_own_thread(self) -> bool:
        """Whether the caller is the pump's own thread."""
        return threading.current_thread() is self._thread

    def _run(self) -> None:
        try:
            while (step := self._next()) is not None:
                started = clock.monotonic()
                self._append(step)
                self._longest = max(self._longest, clock.monotonic() - started)
                # Drop the step before its room is free: otherwise it would occupy memory outside the buffer.
                room, step = step.bytes, None
                self._done(room)
        except BaseException as error:  # noqa: BLE001 - raised again by the next call of the simulation
            # Frames of the traceback must not keep the arrays of the step.
            step = None
            _clear_frames(error)
            with self._news:
                self._error, self._trace = error, error.__traceback__
                self._waiting.clear()
                self._is_appending = False
                self._news.notify_all()

    def _next(self) -> Step | None:
        with self._news:
            self._news.wait_for(lambda: self._waiting or self._is_ending)
            if not self._waiting:
                return None
            self._is_appending = True
            return self._waiting.popleft()

    def _done(self, room: int) -> None:
        with self._news:
            self._bytes -= room
            self._is_appending = False
            self._news.notify_all()


def _closed() -> UnavailableError:
    return UnavailableError.hinted(
        "this writer is closed", "give steps before close(), or within the with; a new writer continues the run"
    )


def _clear_frames(error: BaseException) -> None:
    """Drop what the frames hold that an error came through, and those of the errors that led to it."""
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            traceback.clear_frames(each.__traceback__)
            left += [led for led in (each.__cause__, each.__context__) if led is not None]
