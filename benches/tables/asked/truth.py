"""True answers, computed by scanning plain columns.

Invariant: nothing here is shared with a program under test, except for the definition of the weights.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from operator import eq, ge, gt, le, lt, ne

import numpy as np

from ..data.weights import priorities, weights
from .question import ALL, Question

_SIGNS = {"<": lt, "<=": le, ">": gt, ">=": ge, "=": eq, "<>": ne}


@dataclass(frozen=True)
class Answer:
    """What identifies an answer: the number of rows, and sums over them."""

    rows: int
    sum_pid: int
    sum_step: int
    sum_vz: float

    @classmethod
    def of(cls, columns: Mapping[str, np.ndarray]) -> "Answer":
        """The answer that consists of these rows."""
        pid, step, vz = columns["pid"], columns["step"], columns["vz"]
        return cls(
            len(pid), int(pid.sum(dtype=np.int64)), int(step.sum(dtype=np.int64)), float(vz.sum(dtype=np.float64))
        )

    def agrees(self, other: "Answer") -> bool:
        """Whether both describe the same rows; sums of floats may differ by the order of addition."""
        if (self.rows, self.sum_pid, self.sum_step) != (other.rows, other.sum_pid, other.sum_step):
            return False
        return abs(self.sum_vz - other.sum_vz) <= 1e-9 * max(1.0, self.rows)

    def as_json(self) -> dict[str, float]:
        """The answer in the form that is written to files."""
        return asdict(self)


class Truth:
    """All rows in the order of steps, ready to be scanned."""

    def __init__(self, columns: Mapping[str, np.ndarray]) -> None:
        self.columns = dict(columns)
        weight = weights(columns["pid"], columns["step"])
        self.columns["prio"] = priorities(weight)
        self._weight = weight

    def places(self, question: Question) -> np.ndarray:
        """The positions of the answer's rows, lightest first if there is a limit."""
        low, high = self._span(question)
        rows = slice(low, high)
        holds = np.ones(high - low, dtype=bool)
        for column, sign, value in question.conditions():
            if column != "step":
                stored = self.columns[column]
                holds &= _SIGNS[sign](stored[rows], stored.dtype.type(value))
        if question.cut < ALL:
            holds &= self.columns["prio"][rows] < question.cut
        found = np.flatnonzero(holds) + low
        if question.limit is not None:
            found = found[np.argsort(self._weight[found], kind="stable")[: question.limit]]
        return found

    def answer(self, question: Question) -> Answer:
        """The answer itself."""
        found = self.places(question)
        return Answer.of({name: self.columns[name][found] for name in ("pid", "step", "vz")})

    def is_first_clear(self, question: Question) -> bool:
        """Whether 31 bits of the weight distinguish the last row within the limit from the next one."""
        both = self.places(question.first((question.limit or 0) + 1))
        return len(both) < 2 or self.columns["prio"][both[-1]] != self.columns["prio"][both[-2]]

    def _span(self, question: Question) -> tuple[int, int]:
        """The range of rows with the wanted steps; rows are in the order of steps, so the range is contiguous."""
        steps = self.columns["step"]
        low, high = 0, len(steps)
        for column, sign, value in question.conditions():
            if column == "step":
                if sign not in (">=", "<"):
                    raise ValueError(f"steps are asked for as half-open intervals, not by {sign}")
                bound = int(np.searchsorted(steps, value))
                low, high = (max(low, bound), high) if sign == ">=" else (low, min(high, bound))
        return low, max(low, high)
