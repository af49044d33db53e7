"""Counts of work in the tables bench: every class has its figures, and every bar about counts has one of them."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))

from tables.asked.plan import Plan
from tables.asked.question import Question
from tables.asked.truth import Truth
from tables.data.rows import SCHEMA
from tables.data.tube import Tube
from tables.phases import counts
from tables.report import bars, table
from tables.report.measured import Measured

_CLASSES = ("global", "large", "large 10 %", "small", "large first", "filter", "all boxes")


class _Counted:
    """A bench whose program answers every question with its true sums, and with these counts."""

    def __init__(self, folder: Path, **costs: int) -> None:
        frames = list(Tube(steps=2, particles=50).frames())
        self.truth = Truth({name: np.concatenate([frame[name] for frame in frames]) for name in SCHEMA.names})
        self.plan = Plan(counted={name: [Question(f"a question, {name}")] for name in _CLASSES})
        self.plan.answer_all(self.truth)
        self.measured, self.folder, self.costs = Measured(), folder, costs

    def store(self, table: str) -> Path:
        return self.folder / table

    def run_counter(self, *words: object) -> None:
        files = dict(zip(words, words[1:], strict=False))
        asked = json.loads(Path(files["--questions"]).read_text())
        answered = [
            {**self.costs, "name": each["name"], "sums": self.plan.truth[each["name"]].as_json()} for each in asked
        ]
        Path(files["--out"]).write_text(json.dumps(answered))


def _bench(folder: Path) -> _Counted:
    return _Counted(
        folder,
        rows_touched=300_000,
        rows_returned=200_000,
        requests=22,
        bytes=9_000_000,
        requests_below=23,
        bytes_below=9_250_000,
        bytes_returned=7_400_000,
    )


def test_every_bar_about_counts_has_a_figure_that_the_phase_records(tmp_path: Path):
    bench = _bench(tmp_path)
    counts.run(bench)
    assert bench.measured.wrong == []
    figures = bench.measured.figures
    assert [key for key in bars.OF_PHASE["counts"] if key not in figures] == []
    assert [bar.key for bar in bars.TOUCHED if bar.goal_key is not None and bar.goal_key not in figures] == []
    for name in (*_CLASSES, "entity"):
        for what in ("median", "p95"):
            found = [figures[f"{cost} {name} {what}"] for cost in ("touched", "bytes", "requests", "goal requests")]
            assert found == pytest.approx([1.5, 1.25, 23 - 8, 23 - 2]), name


def test_bytes_and_requests_of_each_class_are_judged_by_their_median_and_by_one_in_twenty():
    for name in (*(name for name in _CLASSES if name != "all boxes"), "entity"):
        for what in ("median", "p95"):
            of = {bar.key: (bar.target, bar.goal) for bar in bars.TOUCHED}
            assert of[f"bytes {name} {what}"] == ((10, 4) if name == "large first" else (2, 1.3))
            assert of[f"requests {name} {what}"] == (40, 15)


def test_questions_without_rows_have_requests_and_no_ratios():
    nothing = {"rows_touched": 9, "rows_returned": 0, "bytes_below": 8, "bytes_returned": 0, "requests_below": 7}
    assert counts.touched([nothing]) == counts.read([nothing]) == []
    assert counts.requests([nothing], 25_000) == [7]


def _line_of(key: str, **figures: float) -> str:
    measured = Measured()
    for name, figure in figures.items():
        measured.record(name.replace("_", " "), figure)
    text = next(bar.text for bar in bars.BARS if bar.key == key)
    (line,) = [line for line in table.shown(bars.rows(measured), measured, colours=False).splitlines() if text in line]
    return line


@pytest.mark.parametrize(("goal", "words"), [({"goal_requests_large_median": 15.0}, "yes, goal too"), ({}, "yes")])
def test_the_goal_may_be_about_another_figure_than_what_must_hold(goal: dict[str, float], words: str):
    assert _line_of("requests large median", requests_large_median=12.0, **goal).endswith(f"  {words}")
    beyond = {"requests_large_median": 12.0, "goal_requests_large_median": 15.5}
    assert _line_of("requests large median", **beyond).endswith("  yes")


def test_what_a_tolerance_decodes_is_judged_and_what_it_is_given_is_told():
    assert _line_of("tolerance decoded", tolerance_decoded=2.1).endswith("  NO")
    assert _line_of("tolerance decoded", tolerance_decoded=1.9).endswith("  yes")
    assert _line_of("tolerance rows", tolerance_rows=2.1).endswith("  -")


def test_a_count_that_the_store_did_not_see_is_wrong(tmp_path: Path):
    bench = _bench(tmp_path)
    bench.costs["requests"] = 24
    counts.run(bench)
    assert "counts more work than reached the store" in bench.measured.wrong[0]
