"""What was measured so far, and what was wrong or had to be left out."""

import math
from collections.abc import Collection
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True)
class Origin:
    """The origin of a figure."""

    phase: str
    commit: str
    rows: int
    minutes: float


@dataclass
class Measured:
    """Figures by key, with their context."""

    now: Origin | None = None
    """The origin of the figures that are recorded next."""
    figures: dict[str, float] = field(default_factory=dict)
    origins: dict[str, dict[str, object]] = field(default_factory=dict)
    """The origin of each figure."""
    earlier: list[str] = field(default_factory=list)
    """Keys of figures that another run measured."""
    peers: dict[str, dict[str, float]] = field(default_factory=dict)
    """The value of each program, in the unit behind the figure."""
    disturbed: dict[str, float] = field(default_factory=dict)
    """Keys measured while others used too much of the machine for times to be judged, with the share that they used."""
    missed: list[str] = field(default_factory=list)
    """Keys whose measurement did not complete: there is no figure, and the bar does not hold."""
    wrong: list[str] = field(default_factory=list)
    """Answers that differ from the truth."""
    failed: list[str] = field(default_factory=list)
    """Phases and rivals that did not complete, with their errors."""
    left_out: list[str] = field(default_factory=list)
    """What could not run here, and what would make it run."""
    notes: list[str] = field(default_factory=list)
    detail: dict[str, object] = field(default_factory=dict)
    """Every single value, for a file."""

    def record(self, key: str, figure: float | None, peers: dict[str, float] | None = None) -> None:
        """Records a figure; none, or one that is not a finite number, counts as not measured."""
        if figure is not None and math.isfinite(figure):
            self.figures[key] = figure
            self._is_of_now(key)
            self.missed = [each for each in self.missed if each != key]
        if peers:
            self.peers[key] = {name: value for name, value in peers.items() if math.isfinite(value)}

    def miss(self, key: str) -> None:
        """Records that a measurement did not complete."""
        self._is_of_now(key)
        if key not in self.missed:
            self.missed.append(key)

    def fail(self, phase: str, why: str, keys: Collection[str]) -> None:
        """Records that a phase did not complete: none of its bars holds, whatever was recorded before."""
        self.failed.append(f"{phase}: {why}")
        for key in keys:
            self.miss(key)

    def disturb(self, phase: str, share: float) -> None:
        """Records that others used this share of the machine during a phase of this run."""
        own = [key for key, origin in self.origins.items() if origin["phase"] == phase and key not in self.earlier]
        self.disturbed.update(dict.fromkeys(own, share))

    def is_well(self) -> bool:
        """Whether everything requested completed, or was left out because something is not installed, and no answer was
        wrong.
        """
        return not self.wrong and not self.failed

    def as_json(self) -> dict[str, object]:
        """Everything in the form for a file."""
        return {name: each for name, each in asdict(self).items() if name != "now"}

    def take(self, earlier: dict[str, object], *, phases: Collection[str], rows: int) -> None:
        """Starts with what an earlier run, with the same number of rows, measured and wrote to a file.

        Figures of this run's own phases are not taken: if one of these fails, it has no figure. Wrong answers stay
        recorded.
        """
        origins, left = earlier.get("origins", {}), []
        for key in [*earlier["figures"], *earlier.get("missed", [])]:
            origin = origins.get(key)
            if origin is None or origin["rows"] != rows:
                left.append(key)
            elif origin["phase"] not in phases:
                self._take(earlier, key, origin)
        if left:
            self.notes.append(f"not taken from the earlier run, of other rows or of nobody knows which: {', '.join(left)}")
        self.wrong += earlier["wrong"]
        self.failed += [line for line in earlier.get("failed", []) if line.partition(":")[0] not in phases]
        self.left_out += [line for line in earlier["left_out"] if line.partition(":")[0] not in phases]
        self.notes += [line for line in earlier["notes"] if line not in self.notes]
        self.detail["earlier"] = earlier["detail"]

    def _take(self, earlier: dict[str, object], key: str, origin: dict[str, object]) -> None:
        if key in earlier.get("missed", []):
            self.missed.append(key)
        else:
            self.figures[key] = earlier["figures"][key]
        if key in earlier["peers"]:
            self.peers[key] = earlier["peers"][key]
        if key in earlier.get("disturbed", {}):
            self.disturbed[key] = earlier["disturbed"][key]
        self.origins[key] = origin
        self.earlier.append(key)

    def _is_of_now(self, key: str) -> None:
        self.earlier = [each for each in self.earlier if each != key]
        self.disturbed.pop(key, None)
        if self.now is not None:
            self.origins[key] = asdict(self.now)


def median(values: list[float]) -> float:
    """The median; not a number if there are no values."""
    return quantile(values, 0.5)


def quantile(values: list[float], share: float) -> float:
    """The value that `share` of all values do not exceed, interpolated linearly; not a number if there are no values.
    """
    if not values:
        return math.nan
    ranked = sorted(values)
    place = share * (len(ranked) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ranked) - 1)
    if place == below or ranked[below] == ranked[above]:
        # The difference between two infinite values is undefined.
        return ranked[below]
    return ranked[below] + (ranked[above] - ranked[below]) * (place - below)
