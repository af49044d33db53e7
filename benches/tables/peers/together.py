"""Programs that take part in a phase together.

Invariant: whatever happens in the phase, every program that was opened is closed. A rival that fails leaves the phase
together with its figures; a failure of Atoll's ends the phase.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from ..bench import Bench, told
from .base import Peer, RivalFailed, Unavailable, of_rival

_Found = TypeVar("_Found")


def built(bench: Bench, phase: str, programs: Iterable[Peer]) -> list[Peer]:
    """Builds the programs; returns those that have the rows, without rivals that cannot be loaded."""
    there = []
    for program in programs:
        told(f"  building {program.name}")
        try:
            with of_rival(program.name):
                program.build()
        except Unavailable as missing:
            bench.leave_out(program.name, missing)
        except RivalFailed as failed:
            bench.fail(phase, str(failed), ())
        else:
            there.append(program)
    return there


@contextmanager
def opened(bench: Bench, phase: str, programs: Iterable[Peer]) -> Iterator["Together"]:
    """Opens all programs for the duration of the block."""
    together = Together(bench, phase, programs)
    with ExitStack() as stack:
        for program in [*together.there]:
            # Registered before it is opened, so that a program that opened only in part is closed as well.
            stack.callback(together.close, program)
            with together.judged(program):
                program.open()
        yield together


class Together:
    """The programs of a phase that have not failed so far."""

    def __init__(self, bench: Bench, phase: str, programs: Iterable[Peer]) -> None:
        self.there = [*programs]
        self._bench, self._phase = bench, phase

    @contextmanager
    def judged(self, program: Peer) -> Iterator[None]:
        """Removes a rival from the phase if it fails in the block; a failure of Atoll's is raised."""
        try:
            with of_rival(program.name):
                yield
        except Unavailable as missing:
            # It was built, so it is installed.
            self._drop(program, f"{program.name}: {missing}")
        except RivalFailed as failed:
            self._drop(program, str(failed))

    def alone(self, program: Peer, act: Callable[[], _Found]) -> _Found | None:
        """The result of `act` while only this program is open; none if the program fails and leaves the phase."""
        with self.judged(program):
            try:
                program.open()
                found = act()
            finally:
                program.close()
            return found
        return None

    def close(self, program: Peer) -> None:
        """Closes a program, unless it has left the phase: then it is closed already."""
        if program in self.there:
            with self.judged(program):
                program.close()

    def kept(self, figures: dict[str, float]) -> dict[str, float]:
        """The figures of programs that completed the phase."""
        names = {program.name for program in self.there}
        return {name: figure for name, figure in figures.items() if name in names}

    def _drop(self, program: Peer, why: str) -> None:
        self._bench.fail(self._phase, why, ())
        self.there.remove(program)
        try:
            # Whatever it left running would disturb the others.
            program.close()
        except Exception as error:  # noqa: BLE001: it is out, and the others go on
            self._bench.fail(self._phase, f"{program.name}, closed after it failed: {error!r}", ())
