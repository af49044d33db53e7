"""The machine: its description, how calm it is, and the precedence of this run over builds in other terminals."""

import ctypes
import os
import platform
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path

from .bench import told

BUSY = 0.2
"""The share of the machine's time that others may use before figures are no longer worth quoting."""
_PATIENCE_SECONDS = 120
_LOOK_SECONDS = 2.0


def described() -> str:
    """One line about this machine."""
    cpu = platform.processor() or platform.machine()
    for line in _lines("/proc/cpuinfo"):
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} x {cpu}, {memory:.0f} GiB, {platform.system()} {platform.release()}"


_DEATH_SIGNAL = 1
"""The number of the setting in prctl(2) on Linux."""


def end_with_parent() -> None:
    """Makes this process end with its parent, however that ends: a leftover writer would disturb the next bench."""
    if platform.system() == "Linux":
        ctypes.CDLL(None, use_errno=True).prctl(_DEATH_SIGNAL, signal.SIGKILL)


def ending_with_parent(sign: signal.Signals) -> Callable[[], None] | None:
    """A function for a child process to run at its start, so that this signal ends the child with its parent; none if
    the system lacks this.
    """
    if platform.system() != "Linux":
        return None
    # Looked up here: between fork and exec nothing may be loaded, because locks of other threads stay held for ever
    # there.
    control = ctypes.CDLL(None, use_errno=True).prctl
    number = int(sign)

    def end() -> None:
        control(_DEATH_SIGNAL, number)

    return end


def go_first() -> None:
    """Gives this terminal's work precedence, if the system groups work by terminal and permits it."""
    try:
        Path("/proc/self/autogroup").write_text("-8")
    except OSError:
        told("priority not raised: builds beside this run will show")


def wait_for_calm(seconds: float = _PATIENCE_SECONDS) -> str | None:
    """Waits until little else runs, up to a time limit; warns if others are still busy then."""
    until = time.monotonic() + seconds
    while (busy := _busy()) > BUSY and time.monotonic() < until:
        told(f"waiting for a calm machine: {busy:.0%} busy with other work")
    return f"the machine was {busy:.0%} busy with other work: do not quote these times" if busy > BUSY else None


def _busy() -> float:
    """The share of all processors' time that is in use at present."""
    before = _times()
    time.sleep(_LOOK_SECONDS)
    after = _times()
    if not before or not after:
        return 0.0
    used, whole = _used(before, after)
    return used / max(1, whole)


def _used(before: list[int], after: list[int]) -> tuple[int, int]:
    """The ticks between two looks in which processors were in use, and all of them."""
    spent = [now - then for now, then in zip(after, before, strict=True)]
    return sum(spent) - sum(spent[3:5]), sum(spent)


class Beside:
    """What other processes do to the machine from here on, apart from this process and all that it started, and from
    the `servers` that outlive whoever started them.
    """

    def __init__(self, servers: Collection[int] = ()) -> None:
        self._servers = servers
        self.begin()

    def begin(self) -> None:
        """Begins anew: whatever ran before this moment does not count."""
        self._times, self._own = _times(), _own_ticks(*self._servers)

    def share(self) -> float:
        """The share of all processors' time since then that other processes used, or that the host of a virtual machine
        took.
        """
        used, whole = _used(self._times, _times())
        return max(0.0, (used - (_own_ticks(*self._servers) - self._own)) / max(1, whole))


def _own_ticks(*servers: int) -> int:
    """Clock ticks of this process and these servers, of their living descendants, and of the ended ones that these have
    waited for.
    """
    parents, ticks = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        # The name of a program may contain anything, even a bracket.
        for line in _lines(str(folder / "stat"))[:1]:
            words = line.rpartition(")")[2].split()
            parents[int(folder.name)], ticks[int(folder.name)] = int(words[1]), sum(map(int, words[11:15]))
    own = {os.getpid(), *servers}
    while more := {process for process, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(ticks.get(process, 0) for process in own)


def _times() -> list[int]:
    """Clock ticks of all processors by activity; empty if the system does not report them."""
    first = next(iter(_lines("/proc/stat")), "")
    return [int(word) for word in first.split()[1:9]]


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
