"""What was measured so far, and what was found wrong or had to be left out."""

import math
from dataclasses import asdict, dataclass, field


@dataclass
class Measured:
    """Figures by key, and what belongs beside them."""

    figures: dict[str, float] = field(default_factory=dict)
    peers: dict[str, dict[str, float]] = field(default_factory=dict)
    """What each program did, in the unit that the figure is made of."""
    missed: list[str] = field(default_factory=list)
    """Keys of what was measured and came to no end: there is no figure, and the bar does not hold."""
    wrong: list[str] = field(default_factory=list)
    """Answers that were not the truth."""
    left_out: list[str] = field(default_factory=list)
    """What could not run here, and what would make it run."""
    notes: list[str] = field(default_factory=list)
    detail: dict[str, object] = field(default_factory=dict)
    """Everything single, for a file."""

    def record(self, key: str, figure: float | None, peers: dict[str, float] | None = None) -> None:
        """Keeps a figure; none, or one that is no number, counts as not measured."""
        if figure is not None and math.isfinite(figure):
            self.figures[key] = figure
            self.missed = [each for each in self.missed if each != key]
        if peers:
            self.peers[key] = {name: value for name, value in peers.items() if math.isfinite(value)}

    def miss(self, key: str) -> None:
        """Keeps that what was measured came to no end."""
        if key not in self.missed:
            self.missed.append(key)

    def as_json(self) -> dict[str, object]:
        """All of it, for a file."""
        return asdict(self)

    def take(self, earlier: dict[str, object]) -> None:
        """Begins with what an earlier run of other phases measured and wrote to a file."""
        for name, each in earlier.items():
            mine = getattr(self, name)
            if isinstance(mine, dict):
                mine.update(each)
            else:
                mine.extend(line for line in each if line not in mine)


def median(values: list[float]) -> float:
    """The median; not a number for none."""
    return quantile(values, 0.5)


def quantile(values: list[float], share: float) -> float:
    """The value that `share` of all are at most, linear between neighbours; not a number for none."""
    if not values:
        return math.nan
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ranked) - 1)
    if place == below or ranked[below] == ranked[above]:
        # What is without end has no difference to its neighbour.
        return ranked[below]
    return ranked[below] + (ranked[above] - ranked[below]) * (place - below)
