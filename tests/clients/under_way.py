"""Makes a client's checks again and again while nodes come and go, for the clients in Python.

README.md has the rules, which the programs in other languages follow in their own words. Each attempt at a check has
keys of its own, so that what an attempt left behind when it was interrupted does not confuse the next one.

Invariant: a round counts only when every check of it held, and the last round begins after the nodes have changed.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# The first words of errors by which a node says that a command may succeed later, or that it does not know its fate.
LATER = r"\b(?:MOVED|ASK|CLUSTERDOWN|LOADING|TRYAGAIN|NOREPLICAS|UNKNOWN)\b"
# These also depend on which node leads what, and slots may move while they are made.
OF_LEADERS = ("scan", "moved")

ATTEMPTS_SECONDS_MAX = 30
RETRY_SECONDS = 0.02
# Between rounds, so that the writers keep most of the machine.
PAUSE_SECONDS = 0.3
# By then every node has heard who leads a slot now.
HEARD_SECONDS_MAX = 3


class Later(Exception):
    """The check has to begin again: it could not be made with the nodes as they are known."""


class SentTwice(Exception):
    """The answer is that to a command which the client sent again after it had been carried out."""


class Failed(Exception):
    """A check does not hold; names it."""


def same(actual: object, expected: object) -> None:
    if actual != expected:
        raise AssertionError(f"{str(actual)[:200]!r} instead of {str(expected)[:200]!r}")


@dataclass(frozen=True)
class Turn:
    """One attempt at a check. Number 0 is the one before nodes change, which has the plain keys."""

    number: int = 0
    # Whether a connection may end now. A client then sends a command again by itself, and cannot know whether it was
    # carried out before.
    may_send_twice: bool = False

    def key(self, name: str) -> str:
        return f"again-{self.number}-{name}" if self.number else name

    def tagged(self, tag: str, name: object) -> str:
        """Keys of one tag share a slot."""
        return f"{{{self.key(tag)}}}{name}"

    def once(self, actual: object, expected: object, twice: object) -> None:
        """Checks the answer to a command that answers differently, in this known way, when it is carried out twice."""
        if self.may_send_twice and actual != expected and actual == twice:
            raise SentTwice(f"{actual!r} instead of {expected!r}")
        same(actual, expected)


class UnderWay:
    """A thread that makes the checks, round after round."""

    def __init__(
        self,
        checks: Mapping[str, Callable[[Turn], None]],
        is_later: Callable[[Exception], bool],
        leaders: Callable[[], object],
    ) -> None:
        self.checks, self.is_later, self.leaders = checks, is_later, leaders
        self.is_over = threading.Event()
        self.attempts = 0
        self.rounds = 0
        self.sent_twice = 0
        self.at_end: list[str] = []
        self.met: Counter[str] = Counter()
        self.failed: Exception | None = None
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def ended(self) -> dict[str, object]:
        """Waits for one more whole round, and returns what there is to report."""
        self.is_over.set()
        self.thread.join()
        if self.failed:
            raise SystemExit(f"while nodes changed: {self.failed}")
        return {"checks_under_way": self.rounds, "checks_at_end": self.at_end, "sent_twice": self.sent_twice}

    def run(self) -> None:
        try:
            is_last = False
            while not is_last:
                is_last = self.is_over.is_set()
                self.at_end = self.round(is_last=is_last)
                self.rounds += 1
                if not is_last:
                    self.is_over.wait(PAUSE_SECONDS)
        except Exception as error:
            self.failed = error

    def round(self, *, is_last: bool) -> list[str]:
        for name, check in self.checks.items():
            self.make(name, check, is_last=is_last)
        return list(self.checks)

    def make(self, name: str, check: Callable[[Turn], None], *, is_last: bool) -> None:
        until = time.monotonic() + ATTEMPTS_SECONDS_MAX
        while True:
            self.attempts += 1
            why = self.attempt(name, check, Turn(self.attempts, may_send_twice=not is_last))
            if why is None:
                return
            self.met[f"{name}: {type(why).__name__}: {why}"[:80]] += 1
            if time.monotonic() > until:
                raise Failed(f"{name}: not made in {ATTEMPTS_SECONDS_MAX} s: {type(why).__name__}: {why}")
            time.sleep(RETRY_SECONDS)

    def attempt(self, name: str, check: Callable[[Turn], None], turn: Turn) -> Exception | None:
        """Why the check has to begin again; none if it holds. Raises if it does not hold."""
        before = None
        try:
            before = self.leaders() if name in OF_LEADERS else None
            check(turn)
        except SentTwice as error:
            self.sent_twice += 1
            return error
        except AssertionError as error:
            if name in OF_LEADERS and self.have_changed(before):
                return error
            raise Failed(f"{name}: {error}") from error
        except Exception as error:
            if self.is_later(error):
                return error
            raise Failed(f"{name}: {type(error).__name__}: {error}") from error
        return None

    def have_changed(self, before: object) -> bool:
        """Whether slots have other leaders than before, or get them shortly: a node may not have heard yet."""
        until = time.monotonic() + HEARD_SECONDS_MAX
        while time.monotonic() < until:
            try:
                if self.leaders() != before:
                    return True
            except Exception as error:
                if not self.is_later(error):
                    raise
            time.sleep(RETRY_SECONDS)
        return False
