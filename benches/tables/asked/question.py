"""A question: a box, a condition, and a share or a number of rows, in a form that every adapter can translate.

Bounds of float columns are 32-bit floats, so that no program has to widen a column to compare it.
"""

from dataclasses import dataclass, field, replace

from ..data.rows import PRIORITY_BITS

ALL = 1 << PRIORITY_BITS
"""The cut that takes every row."""

Interval = tuple[float | None, float | None]
"""Half-open: includes the lower bound and excludes the upper one; none means no bound."""


@dataclass(frozen=True)
class Question:
    """The rows whose index columns lie in `box`, that satisfy `where`, and whose priority is below `cut`; only the
    first `limit`.

    `told` is a cut that selects exactly those first rows. No real user knows it before asking; the peer that is named
    after it gets it all the same.
    """

    name: str
    box: dict[str, Interval] = field(default_factory=dict)
    where: tuple[tuple[str, str, float], ...] = ()
    cut: int = ALL
    limit: int | None = None
    told: int | None = None

    @property
    def share(self) -> float:
        """The share of all rows; exact in a 64-bit float, so that every program draws the same sample."""
        return self.cut / ALL

    def sample(self, share: float) -> "Question":
        """The same question on a sample, at the next share that peers can draw."""
        return replace(self, name=f"{self.name}, {share:.4%}", cut=round(share * ALL))

    def first(self, rows: int) -> "Question":
        """The same question for the first `rows` rows by priority."""
        return replace(self, name=f"{self.name}, first {rows}", limit=rows)

    def conditions(self) -> list[tuple[str, str, float]]:
        """Box and condition together, as (column, operator, value); all must hold."""
        found = []
        for column, (low, high) in self.box.items():
            found += [(column, ">=", low)] if low is not None else []
            found += [(column, "<", high)] if high is not None else []
        return found + list(self.where)

    def expression(self) -> str | None:
        """The conditions in Atoll's grammar, which agrees with SQL here; none if there are no conditions."""
        return " and ".join(f"{column} {sign} {value!r}" for column, sign, value in self.conditions()) or None
