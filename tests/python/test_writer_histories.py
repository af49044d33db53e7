"""Many histories of starts, kills and restarts of `atoll.Writer`: no run starts over, mixes states or gets stuck."""

import json
import os
import random
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_writer_ranks import Killed

from atoll import errors
from atoll._agreement import Agreement

HISTORIES = int(os.environ.get("WRITER_HISTORIES", "60"))
#: The state that no attempt has computed anything from.
NOTHING = "nothing"


class Notes:
    """The native half of a table: the notes of its ranks. Its process may be killed before it writes a note."""

    def __init__(self) -> None:
        self.cells: dict[int, str] = {}
        self.is_killed = False

    def rank_notes(self, run: str, attempt: int) -> dict[int, str]:
        return dict(self.cells)

    def set_rank_notes(self, text: str, run: str, attempt: int, rank: int) -> None:
        if self.is_killed:
            raise Killed
        self.cells[rank] = json.dumps(json.loads(text))


class History:
    """One run: its table, its files, and the answers that its starts got."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance, self.folder, self.notes = random.Random(seed), folder, Notes()
        #: The state of each complete step of the table.
        self.table: dict[int, str] = {}
        #: The steps of which every rank that names checkpoints has noted one, with the state that they hold.
        self.noted: dict[int, str] = {}
        #: The steps of which a rank has noted a checkpoint: files kept aside count if there are none.
        self.own: dict[int, set[int]] = {rank: set() for rank in range(3)}
        self.attempt, self.is_cut, self.has_asides = 0, False, False
        self.mode = self.chance.choice(["alone", "own", "shared"])
        self.is_at_top = self.chance.random() < 0.3
        #: Whether a checkpoint comes before its step, as at the top of a loop; and how often a file is kept aside.
        self.is_before, self.asides = self.often(0.3), self.chance.choice([0, 0, 0.1, 0.8])
        self.resumes_first = self.often(0.7)
        self.told: list[object] = []

    def often(self, share: float) -> bool:
        return self.chance.random() < share

    def path(self, step: int | str, rank: int) -> Path:
        """Return the path of a rank's checkpoint; for the mark in place of the step, the rank's pattern."""
        return self.folder / (f"state.{step}.{rank}" if self.mode == "own" else f"state.{step}")

    @property
    def last(self) -> int | None:
        return max(self.table, default=None)

    def begin(self) -> None:
        """Run one start, from its first question to its end."""
        self.attempt += 1
        size = {"alone": 1, "own": 2, "shared": self.chance.choice([1, 2, 3])}[self.mode]
        ranks = [Agreement(SimpleNamespace(_native=self.notes), "a", self.attempt, rank, size) for rank in range(size)]
        [rank.begin(self.last) for rank in ranks if size > 1]
        is_asked = self.resumes_first or self.attempt > 1
        try:
            self.compute(ranks, self.ask(ranks) if is_asked else None)
        except Killed:
            self.notes.is_killed = False
            # The paths of a rank that never asked and never named a file are unknown: it may be refused.
            self.is_cut |= not is_asked and self.mode == "own"
        except errors.ConflictError as error:
            self.told.append(str(error))
            raise

    def ask(self, ranks: list[Agreement]) -> int | None:
        """Let all ranks ask, in some order; check that they get the same answer, and return it."""
        # A rank that finds no notes takes what is there, so no rank may write a file before all have asked.
        is_at_top = self.is_at_top and (self.last is None or any(self.own.values()))
        order, answers, refusals = self.chance.sample(range(len(ranks)), len(ranks)), {}, []
        for rank in order:
            self.notes.is_killed = self.often(0.03)
            try:
                chosen = ranks[rank].resume(self.path("{step}", rank), self.last)
            except errors.ConflictError as error:
                # Other ranks may get a checkpoint all the same, but of no other step.
                refusals.append(error)
                answers[rank] = int(re.search(r"from step (\d+)", str(error))[1])
                self.notes.is_killed = False
                continue
            finally:
                assert len(set(answers.values())) <= 1, "ranks are answered alike"
            self.notes.is_killed = False
            answers[rank] = None if chosen is None else chosen.step
            self.told.append((self.attempt, rank, answers[rank]))
            assert len(set(answers.values())) == 1, "ranks are answered alike"
            self.own[rank] = {step for step in self.own[rank] if step <= (answers[rank] or -1)}
            assert answers[rank] is not None or not self.passed_over(), f"{self.passed_over()} were named"
            state = NOTHING if chosen is None else chosen.path.read_text()
            assert state == self.state(answers[rank] or 0), "what it goes on from is what the table has"
            if is_at_top and (rank == 0 or self.mode == "own"):
                self.write(answers[rank] or 0, rank, state)
                ranks[rank].note(self.path(answers[rank] or 0, rank), None)
            if self.often(0.05):
                raise Killed
        if refusals:
            raise refusals[0]
        self.is_cut = False
        return answers[0]

    def state(self, step: int) -> str:
        return self.table.get(step, NOTHING)

    def passed_over(self) -> list[int]:
        """Return the steps of the table whose checkpoints all ranks named: no start may begin over them."""
        return [step for step, state in self.noted.items() if self.table.get(step) == state]

    def compute(self, ranks: list[Agreement], begun: int | None) -> None:
        """Give steps and name checkpoints, until the end or a kill."""
        step, last = begun or 0, None
        for _ in range(self.chance.randrange(12)):
            step += 10
            if self.is_before:
                self.name_all(ranks, step, last)
            self.table = {known: state for known, state in self.table.items() if known < step}
            self.table[step] = self.computed(step)
            self.noted = {known: state for known, state in self.noted.items() if self.state(known) == state}
            last = step
            for rank in range(len(ranks)):
                self.keep_aside(ranks[rank], rank, step)
            if not self.is_before:
                self.name_all(ranks, step, last)

    def computed(self, step: int) -> str:
        """Return the state of a step as this attempt computes it."""
        return f"step {step} of attempt {self.attempt}"

    def name_all(self, ranks: list[Agreement], step: int, last: int | None) -> None:
        """Write the checkpoints of a step, on the ranks that name any; `last` is the step that was given last."""
        if step % 20:
            return
        naming = range(len(ranks)) if self.mode == "own" else [0]
        for rank in self.chance.sample(naming, len(naming)):
            self.name(ranks[rank], rank, step, last)
        if last is not None:
            self.noted[step] = self.computed(step)

    def name(self, agreement: Agreement, rank: int, step: int, last: int | None) -> None:
        """Write a rank's checkpoint, with kills before and after it is named; keep the newest two."""
        if self.often(0.05):
            raise Killed
        self.write(step, rank, self.computed(step))
        self.notes.is_killed = self.often(0.05)
        agreement.note(self.path(step, rank), last)
        self.own[rank].add(step)
        if self.often(0.03):
            raise Killed
        named = self.path("*", rank).name
        files = sorted((file for file in self.folder.glob(named) if "superseded" not in file.name), key=step_in)
        [file.unlink() for file in files[:-2]]

    def keep_aside(self, agreement: Agreement, rank: int, step: int) -> None:
        """Keep a file aside, which `resume` does not ask for, with kills before and after it is noted."""
        if self.often(self.asides):
            self.notes.is_killed, self.has_asides = self.often(0.03), True
            name = self.chance.choice([f"diag.{step}", "final", f"best-{self.chance.choice('abc')}"])
            agreement.note(self.folder / f"{name}.{rank}", step)
            if self.often(0.03):
                raise Killed

    def write(self, step: int, rank: int, state: str) -> None:
        """Write a file as a checkpoint is written: all of it or nothing."""
        part = self.folder / "part"
        part.write_text(state)
        part.replace(self.path(step, rank))


def step_in(path: Path) -> int:
    return int(path.name.split(".")[1])


def away(history: History) -> None:
    """A start while another disk is mounted in place of the checkpoints: it fails, unless there were none."""
    hidden = history.folder.with_name("hidden")
    history.folder.rename(hidden)
    history.folder.mkdir()
    was = (dict(history.table), dict(history.noted))
    try:
        history.begin()
    except errors.ConflictError:
        assert was == (history.table, history.noted)
        shutil.rmtree(history.folder)
        hidden.rename(history.folder)
    else:
        shutil.rmtree(hidden)


def cut(history: History) -> None:
    """A start after the last steps were deleted."""
    first = history.chance.randrange(0, (history.last or 0) + 20)
    history.table = {step: state for step, state in history.table.items() if step < first}
    history.is_cut = True
    begin(history)


def lose(history: History) -> None:
    """A start after a checkpoint was removed, or one that still matches the table was brought back."""
    kept = history.folder.with_name("kept")
    kept.mkdir(exist_ok=True)
    for file in sorted(kept.iterdir()):
        there = history.folder / file.name
        if not there.exists() and file.read_text() == history.state(step_in(file)):
            file.replace(there)
    files = [file for file in history.folder.glob("state.*") if "superseded" not in file.name]
    if files:
        lost = history.chance.choice(sorted(files))
        lost.replace(kept / lost.name)
        history.is_cut = True
    begin(history)


def begin(history: History) -> None:
    """A start. If steps or checkpoints were deleted, it may fail, and the next one too."""
    for _ in range(2):
        try:
            return history.begin()
        except errors.ConflictError:
            # Files kept aside count where there is nothing else.
            if not history.is_cut and not (history.has_asides and not any(history.own.values())):
                raise
    # Then delete all steps, and the notes with them.
    history.table, history.notes, before = {}, Notes(), len(history.told)
    history.own, history.has_asides = {rank: set() for rank in range(3)}, False
    history.begin()
    assert all(told[2] is None for told in history.told[before:])


@pytest.fixture
def seed() -> int:
    """The first seed, printed when a test fails; `WRITER_SEEDS=17 pytest` begins with another one."""
    return int(os.environ.get("WRITER_SEEDS", "0"))


def test_no_history_of_kills_begins_over_mixes_or_stops(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch):
    for number in range(seed, seed + HISTORIES):
        folder = tmp_path / str(number)
        (folder / "restart").mkdir(parents=True)
        history = History(number, folder / "restart")
        try:
            monkeypatch.setattr("atoll._agreement.NOTED_MAX", history.chance.choice([2, 3, 50]))
            for _ in range(history.chance.randrange(2, 9)):
                chosen = history.chance.choices([away, cut, lose, begin], [15, 10, 15, 60])[0]
                chosen(history)
        except (AssertionError, errors.ConflictError) as error:
            files = sorted(file.name for file in history.folder.iterdir())
            error.add_note(f"replay with WRITER_SEEDS={number}: {history.mode}, {history.told}, {files}")
            raise
        shutil.rmtree(folder)
