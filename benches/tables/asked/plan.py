"""The questions of a run: each class of the table of bars, chosen by how many rows the boxes really have."""

import hashlib
import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .boxes import boxes
from .question import Question
from .truth import Answer, Truth

LARGE = 100_000
"""The number of rows from which a box is large."""

SMALL = (500, 2_000)
"""The number of rows of a box of about a thousand."""

_GLOBAL_SHARES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.015, 0.03, 0.1)
FIRST = 1_000


@dataclass
class Plan:
    """Questions by class, and the true answer to every one of them, by name."""

    counted: dict[str, list[Question]] = field(default_factory=dict)
    timed: dict[str, list[Question]] = field(default_factory=dict)
    truth: dict[str, Answer] = field(default_factory=dict)

    def answer_all(self, truth: Truth) -> None:
        """Computes the answers that are still missing."""
        for question in [*_flat(self.counted), *_flat(self.timed)]:
            if question.name not in self.truth:
                self.truth[question.name] = truth.answer(question)


def _flat(classes: dict[str, list[Question]]) -> Iterable[Question]:
    return (question for questions in classes.values() for question in questions)


def plan(truth: Truth, *, count: int = 1_000, timed: int = 3, seed: int = 1) -> Plan:
    """Chooses the questions from `count` boxes; `timed` boxes of each size are timed."""
    asked = boxes(truth.columns, count, seed)
    made = Plan()
    for question in asked:
        made.truth[question.name] = truth.answer(question)
    rows = {question.name: made.truth[question.name].rows for question in asked}
    large = [question for question in asked if rows[question.name] >= LARGE]
    small = [question for question in asked if SMALL[0] <= rows[question.name] <= SMALL[1]]
    everything = Question("everything")
    made.counted = {
        "global": [everything.sample(share) for share in _GLOBAL_SHARES],
        "large": large,
        "large 10 %": [question.sample(0.1) for question in large],
        "small": small,
        "large first": [question.first(FIRST) for question in large],
        "filter": _filters(truth, 100, seed),
        "all boxes": asked,
    }
    made.timed = _timed(asked, rows, len(truth.columns["pid"]), timed)
    made.timed["first"] = [_told(truth, each) for each in made.timed["first"] if truth.is_first_clear(each)]
    made.answer_all(truth)
    return made


def kept_plan(folder: Path, truth: Truth, *, count: int, timed: int) -> Plan:
    """The same plan, read from a file next to the rows if this very code wrote one: computing the truth takes minutes.
    """
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))))
    file = folder / f"plan-{count}-{timed}-{code.hexdigest()[:16]}.pickle"
    if not file.exists():
        unfinished = file.with_suffix(".part")
        unfinished.write_bytes(pickle.dumps(plan(truth, count=count, timed=timed)))
        unfinished.rename(file)
    return pickle.loads(file.read_bytes())


def _timed(asked: list[Question], rows: dict[str, int], all_rows: int, count: int) -> dict[str, list[Question]]:
    """The boxes nearest to a tenth of all rows (a million of ten), to a hundred thousand and to a thousand rows."""

    def nearest(wanted: int) -> list[Question]:
        found = [question for question in asked if rows[question.name] > 0]
        return sorted(found, key=lambda question: abs(np.log(rows[question.name] / wanted)))[:count]

    largest = nearest(all_rows // 10)
    middle = nearest(min(LARGE, all_rows // 100))
    everything = Question("everything")
    return {
        "full": largest,
        "ten percent": [question.sample(0.1) for question in largest],
        "first": [question.first(FIRST) for question in largest],
        "global 0.01 %": [everything.sample(0.0001)],
        "global 1.5 %": [everything.sample(0.015)],
        "middle": middle,
        "middle 10 %": [question.sample(0.1) for question in middle],
        "small": nearest(1_000),
    }


def _told(truth: Truth, question: Question) -> Question:
    return replace(question, told=int(truth.columns["prio"][truth.places(question)].max()) + 1)


def _filters(truth: Truth, count: int, seed: int) -> list[Question]:
    """Conditions on columns without an index, with a sample of 1 %."""
    random = np.random.default_rng(seed + 1)
    found = []
    for place in range(count):
        column = ("vx", "vy", "vz")[int(random.integers(3))]
        bound = float(truth.columns[column][int(random.integers(len(truth.columns[column])))])
        where = (("type", "=", int(random.integers(1, 3))), (column, "<", bound))
        found.append(Question(f"filter {place}", where=where).sample(0.01))
    return found


def entities(truth: Truth, count: int, seed: int) -> list[int]:
    """Particles whose whole path is queried."""
    random = np.random.default_rng(seed + 2)
    known = np.unique(truth.columns["pid"])
    return sorted(int(pid) for pid in random.choice(known, size=min(count, len(known)), replace=False))
