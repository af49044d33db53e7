"""Tables for tests of `atoll.Writer` that write only when they are told to, or fail."""

import threading

import atoll
from atoll import errors


class Gated:
    """A table that appends only as often as it is allowed to, and remembers what it appended."""

    def __init__(self, table: atoll.Table) -> None:
        self._table, self.allowed, self.given = table, threading.Semaphore(0), []

    def append(self, data, **named):
        self.allowed.acquire()
        self.given.append((named["step"], data))
        return self._table.append(data, **named)

    def __getattr__(self, name):
        return getattr(self._table, name)


class Failing(Gated):
    """A gated table whose disk is full while step 1 is written."""

    def append(self, data, **named):
        self.allowed.acquire()
        if named["step"] == 1:
            raise errors.OutOfSpaceError("no space left")
        self.given.append(named["step"])
        return self._table.append(data, **named)
