"""Programs that take part in a phase together.

Invariant: whatever happens in the phase, every program that was opened is closed. A rival that fails is out of the phase, and
takes its figures with it; a failure of Atoll's ends the phase.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from ..bench import Bench, told
from .base import Peer, RivalFailed, Unavailable, of_rival

_Found = TypeVar("_Found")


def built(bench: Bench, phase: str, programs: Iterable[Peer]) -> list[Peer]:
    """Those that have the rows now; a rival that cannot be loaded is none of them."""
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
    """All of them open at once."""
    together = Together(bench, phase, programs)
    with ExitStack() as stack:
        for program in [*together.there]:
            # Before it is opened: what began to open is closed as well.
            stack.callback(together.close, program)
            with together.judged(program):
                program.open()
        yield together


class Together:
    """The programs of a phase that did not fail so far."""

    def __init__(self, bench: Bench, phase: str, programs: Iterable[Peer]) -> None:
        self.there = [*programs]
        self._bench, self._phase = bench, phase

    @contextmanager
    def judged(self, program: Peer) -> Iterator[None]:
        """What a rival does wrong in here puts it out of the phase; what Atoll does wrong goes on."""
        try:
            with of_rival(program.name):
                yield
        except Unavailable as missing:
            # It was built, so it is installed.
            self._drop(program, f"{program.name}: {missing}")
        except RivalFailed as failed:
            self._drop(program, str(failed))

    def alone(self, program: Peer, act: Callable[[], _Found]) -> _Found | None:
        """What comes of it while this program is open, and then closed; nothing if that puts it out of the phase."""
        with self.judged(program):
            try:
                program.open()
                found = act()
            finally:
                program.close()
            return found
        return None

    def close(self, program: Peer) -> None:
        """Closes one that is not out of the phase: that one is closed already."""
        if program in self.there:
            with self.judged(program):
                program.close()

    def kept(self, figures: dict[str, float]) -> dict[str, float]:
        """The figures of programs that came to the end."""
        names = {program.name for program in self.there}
        return {name: figure for name, figure in figures.items() if name in names}

    def _drop(self, program: Peer, why: str) -> None:
        self._bench.fail(self._phase, why, ())
        self.there.remove(program)
        try:
            # What it left running would disturb the others.
            program.close()
        except Exception as error:  # noqa: BLE001: it is out, and the others go on
            self._bench.fail(self._phase, f"{program.name}, closed after it failed: {error!r}", ())
