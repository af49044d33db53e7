"""The bars: for each the target that must hold, the goal, and the measured figure.

Invariant: a bar without a figure does not hold, and fails only if its measurement did not complete. A figure without a
target neither holds nor fails, and neither does a time that was measured while others kept the machine busy.
"""

from dataclasses import asdict, dataclass

from .measured import Measured


@dataclass(frozen=True)
class Bar:
    """One line of the table of bars."""

    key: str
    """The key under which a phase records the figure."""
    text: str
    unit: str
    target: float | None
    """What must hold; none for a figure that is only reported."""
    goal: float | None
    more_is_better: bool = False
    is_count: bool = False
    """Whether it counts something that a busy machine does not change: rows, requests or bytes."""
    goal_key: str | None = None
    """The key of the figure that the goal is about, if it is another one than what must hold is about."""

    def meets(self, bound: float, figure: float) -> bool:
        """Whether a figure is at least as good as a bound."""
        return figure >= bound if self.more_is_better else figure <= bound


def at_least(key: str, text: str, unit: str, target: float, goal: float) -> Bar:
    """A bar for which more is better."""
    return Bar(key, text, unit, target, goal, more_is_better=True)


def _count(
    key: str, text: str, unit: str, target: float | None, goal: float | None, goal_key: str | None = None
) -> Bar:
    """A bar that noise does not affect."""
    return Bar(key, text, unit, target, goal, is_count=True, goal_key=goal_key)


@dataclass(frozen=True)
class Row:
    """A bar and its figure, as other programs read them."""

    bar: str
    figure: float | None
    unit: str
    target: float | None
    goal: float | None
    holds: bool | None
    peers: dict[str, float]
    earlier: dict[str, object] | None = None
    """Phase, commit, rows and minutes of a figure that another run measured."""
    disturbed: float | None = None
    """How much of the machine others used meanwhile, if the figure is not judged because of that."""
    of_goal: float | None = None
    """The figure that the goal is about."""

    def as_json(self) -> dict:
        """The form for a file; the field `earlier` is only present for a figure of an earlier run, and `of_goal` only
        where the goal is about another figure than the target.
        """
        found = asdict(self)
        del found["disturbed"]
        if self.of_goal is None or self.of_goal == self.figure:
            del found["of_goal"]
        if self.earlier is None:
            del found["earlier"]
        return found


_CLASSES = {
    "global": "global samples",
    "large": "boxes of 100 K rows and more",
    "large 10 %": "10 % of those boxes",
    "small": "boxes of 1,000 rows",
    "large first": "first 1000 of those of 100 K",
    "filter": "conditions on other columns",
    "entity": "entity path",
}
"""The classes of counted questions, in the words of the table."""


def _bytes(name: str, words: str) -> list[Bar]:
    target, goal = (10, 4) if name == "large first" else (2, 1.3)
    text = f"bytes read / returned, {words}"
    return [_count(f"bytes {name} {what}", f"{text}, {what}", "x", target, goal) for what in ("median", "p95")]


def _requests(name: str, words: str) -> list[Bar]:
    text = f"requests a query less 1 per 25 K rows returned (goal: 100 K), {words}"
    return [
        _count(f"requests {name} {what}", f"{text}, {what}", "", 40, 15, goal_key=f"goal requests {name} {what}")
        for what in ("median", "p95")
    ]


TOUCHED = [
    _count("touched global median", "rows touched / returned, global samples, median", "x", 1.1, 1.05),
    _count("touched global p95", "rows touched / returned, global samples, p95", "x", 1.1, 1.05),
    _count("touched large median", "rows touched / returned, boxes of 100 K rows and more, median", "x", 1.6, 1.2),
    _count("touched large p95", "rows touched / returned, boxes of 100 K rows and more, p95", "x", 2.2, 1.5),
    _count("touched large 10 % median", "rows touched / returned, 10 % of those boxes, median", "x", 2.5, 1.6),
    _count("touched large 10 % p95", "rows touched / returned, 10 % of those boxes, p95", "x", 5, 2.5),
    _count("touched small median", "rows touched / returned, boxes of 1,000 rows, median", "x", 35, 10),
    _count("touched small p95", "rows touched / returned, boxes of 1,000 rows, p95", "x", 80, 30),
    _count("touched large first median", "rows touched / returned, first 1000 of those of 100 K, median", "x", 10, 4),
    _count("touched large first p95", "rows touched / returned, first 1000 of those of 100 K, p95", "x", 20, 8),
    _count("touched entity median", "rows touched / returned, entity path, median", "x", 120, 25),
    _count("touched entity p95", "rows touched / returned, entity path, p95", "x", 200, 60),
    *(bar for name, words in _CLASSES.items() for bar in _bytes(name, words)),
    *(bar for name, words in {"all boxes": "all boxes", **_CLASSES}.items() for bar in _requests(name, words)),
]
"""Counts of work, which do not depend on the store."""

_WHILE_WRITING = [
    _count("live touched global", "while writing: rows touched / returned, global 1 %", "x", 2, 1.2),
    _count("live touched box", "while writing: rows touched / returned, 10 % of a 100 K-row box", "x", 5, 2),
    Bar("live backlog", "while writing: backlog not packed after 10 minutes, seconds of input", "s", 60, 10),
    Bar("live visible", "while writing: visible after a step's write, p95", "ms", 500, 100),
]

_WARM = [
    at_least("first over postgis 3-d", "first 1000 of a 1 M-row box, warm, against PostGIS 3-D", "x", 200, 500),
    at_least("first over postgis 4-d", "first 1000 of a 1 M-row box, warm, against a 4-D index told the cut", "x", 2, 7),
    at_least("first over duckdb table", "first 1000 of a 1 M-row box, warm, against DuckDB's table", "x", 4, 10),
    at_least("cold first over postgis 3-d", "first 1000 of a 1 M-row box, cold, against PostGIS 3-D", "x", 47, 100),
    at_least("global over spark", "1.5 % of everything, warm, against Spark", "x", 100, 200),
    at_least("global over duckdb table", "1.5 % of everything, warm, against DuckDB's table", "x", 10, 20),
    at_least("ten percent over best", "10 % of a 1 M-row box, warm, against the best rival", "x", 1.5, 3),
    Bar("full time over best", "full 1 M-row box, warm: time over the best rival's", "x", 1.3, 1.0),
    Bar("cold time over best", "every query, cold: time over the best rival's, the worst", "x", 2, 1.0),
]

_WRITING = [
    at_least("write over hdf5", "acknowledged writing against raw HDF5, equally durable", "x", 0.5, 0.8),
    at_least("write over adios2", "acknowledged writing against ADIOS2 BP5, equally durable", "x", 0.5, 0.8),
    at_least("write over dump", "acknowledged writing against LAMMPS' dump", "x", 1, 3),
    at_least("write over csv", "acknowledged writing against CSV", "x", 5, 10),
    at_least("write sustained", "sustained 10 minutes to the packed state, against raw append", "x", 0.5, 0.8),
    at_least("pack rate", "packing, one core", "rows/s", 500_000, 1_000_000),
    _count("pack bytes", "bytes written per user byte over 10,000 steps of 1,000 rows", "x", 6, 3),
    _count("appends objects", "10,000 appends of 100 rows, 4 writers, idle: objects over a bulk import's", "x", 2, 1.2),
    Bar("appends queries", "10,000 appends of 100 rows, 4 writers, idle: query time over it", "x", 1.3, 1.1),
    _count("space", "space over z-ordered Parquet with zstd, priority included", "x", 1.3, 1.0),
    Bar("slow-down", "slow-down of the simulation, as many spinning ranks as cores", "%", 10, 3),
    Bar("slow-down deferred", "slow-down of the simulation, packing deferred", "%", 5, 2),
]

_REST = [
    _count("tolerance decoded", "tolerance query: rows decoded over the planned units", "x", 2, 1.3),
    _count("tolerance rows", "tolerance query: rows given to the estimator over them, only told", "x", None, None),
    Bar("tolerance exact", "tolerance query: time over the exact answer's, the worst", "x", 1, 1),
    Bar("runs creation", "10,000 runs of 1,000 rows: creation by one writer", "s", 60, 10),
    Bar("runs listing", "10,000 runs of 1,000 rows: listing", "s", 1, 0.2),
    Bar("runs first query", "10,000 runs of 1,000 rows: first query", "s", 1, 0.2),
]

_COLD = ("cold first over postgis 3-d", "cold time over best")

OF_PHASE = {
    "tolerance": ("tolerance decoded", "tolerance rows", "tolerance exact"),
    "writing": ("write over hdf5", "write over adios2", "write over dump", "write over csv"),
    "live": tuple(bar.key for bar in _WHILE_WRITING),
    "sustained": ("write sustained",),
    "packing": ("pack bytes", "appends objects", "appends queries"),
    "runs": ("runs creation", "runs listing", "runs first query"),
    "slowdown": ("slow-down", "slow-down deferred"),
    "loading": ("pack rate",),
    "counts": tuple(bar.key for bar in TOUCHED),
    "warm": tuple(bar.key for bar in _WARM if bar.key not in _COLD),
    "cold": _COLD,
    "space": ("space",),
}
"""The bars of each phase, which fail if the phase does not complete."""

BARS = (*TOUCHED, *_WHILE_WRITING, *_WARM, *_WRITING, *_REST)
"""All bars, in the order of the table."""


def rows(measured: Measured, bars: tuple[Bar, ...] = BARS) -> list[Row]:
    """Every bar with its figure; none holds after a wrong answer."""
    return [_row(bar, measured) for bar in bars]


def _row(bar: Bar, measured: Measured) -> Row:
    figure = None if bar.key in measured.missed else measured.figures.get(bar.key)
    holds, peers = _holds(bar, figure, measured), measured.peers.get(bar.key, {})
    earlier = measured.origins[bar.key] if bar.key in measured.earlier else None
    is_unjudged = figure is not None and holds is None
    disturbed = _disturbance(bar, measured) if is_unjudged else None
    of_goal = figure if bar.goal_key is None else measured.figures.get(bar.goal_key)
    return Row(bar.text, figure, bar.unit, bar.target, bar.goal, holds, peers, earlier, disturbed, of_goal)


def _holds(bar: Bar, figure: float | None, measured: Measured) -> bool | None:
    if bar.key in measured.missed:
        return False
    if figure is None or bar.target is None:
        return None
    if measured.wrong:
        return False
    return bar.meets(bar.target, figure) if _disturbance(bar, measured) is None else None


def _disturbance(bar: Bar, measured: Measured) -> float | None:
    """How much of the machine others used during a timing. Noise works both ways, so such a time neither holds nor
    fails.
    """
    return None if bar.is_count or bar.target is None else measured.disturbed.get(bar.key)
