"""The tables bench is right about what it computes itself: weights, questions, truth, bars and the table of them."""

import json
import math
import re
import struct
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import xxhash

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))

from tables import machine
from tables.asked.boxes import TIMES, boxes
from tables.asked.question import ALL, Question
from tables.asked.truth import Answer, Truth
from tables.bench import ROWS_TABLE
from tables.data.rows import AXES, SCHEMA
from tables.data.tube import Tube
from tables.data.weights import priorities, weights
from tables.data.zorder import zorder
from tables.peers.base import ATOLL, sql
from tables.phases import cold, timing
from tables.phases import space as space_phase
from tables.phases.live import visible_after
from tables.phases.live_writer import Appended
from tables.report import bars, table
from tables.report.measured import Measured, Origin, median, quantile


@pytest.fixture(scope="module")
def truth() -> Truth:
    """A small run of the synthetic tube."""
    frames = list(Tube(steps=12, particles=2_000).frames())
    return Truth({name: np.concatenate([frame[name] for frame in frames]) for name in SCHEMA.names})


def test_weights_of_columns_are_the_documented_hash_of_each_row():
    pid = np.array([0, 1, 7, 2**31 - 1, -3], dtype=np.int32)
    step = np.array([0, 80, -1, 2**62, 5], dtype=np.int64)
    keys = [struct.pack("<QqQq", 8, int(p), 8, int(s)) for p, s in zip(pid, step, strict=True)]
    assert weights(pid, step).tolist() == [xxhash.xxh3_64_intdigest(key) for key in keys]


def test_peers_draw_the_sample_that_weights_draw(truth: Truth):
    question = Question("a").sample(0.1)
    weight = weights(truth.columns["pid"], truth.columns["step"])
    by_weight = sum(int(each) < question.share * 2**64 for each in weight)
    assert by_weight == int((priorities(weight) < question.cut).sum()) > 0


def test_the_tube_is_the_same_every_time_and_names_every_row_once():
    first, again = ([*Tube(steps=4, particles=500).frames()] for _ in range(2))
    for one, other in zip(first, again, strict=True):
        assert all(np.array_equal(one[name], other[name]) for name in SCHEMA.names)
        assert len(np.unique(one["pid"])) == len(one["pid"]) > 450
    assert [int(frame["step"][0]) for frame in first] == [0, 80, 160, 240]


def test_the_z_order_keeps_every_row_and_brings_neighbours_together():
    random = np.random.default_rng(3)
    columns = [random.random(20_000) for _ in range(2)]
    order = zorder(columns)
    assert np.array_equal(np.sort(order), np.arange(20_000))
    jumps = sum(np.abs(np.diff(values[order])).mean() for values in columns)
    assert jumps < 0.05 * sum(np.abs(np.diff(values)).mean() for values in columns)


def test_boxes_come_from_the_seed_and_hold_the_row_they_were_drawn_about(truth: Truth):
    made, again = (boxes(truth.columns, 90, seed=5) for _ in range(2))
    assert made == again != boxes(truth.columns, 90, seed=6)
    for times in TIMES:
        assert sum(times in question.name for question in made) == 30
    assert all(truth.answer(question).rows > 0 for question in made)
    bounds = [bound for question in made for axis in AXES for bound in question.box[axis]]
    assert all(float(np.float32(bound)) == bound for bound in bounds)


def test_the_truth_is_what_a_plain_loop_over_rows_finds(truth: Truth):
    box = Question("a", box={"x": (-1.0, 30.0), "z": (None, 20.0), "step": (160, 800)})
    question = box.sample(0.01).first(20)
    columns = truth.columns
    weight = weights(columns["pid"], columns["step"])

    def holds(row: int) -> bool:
        x, z, step = (columns[name][row] for name in ("x", "z", "step"))
        return -1 <= x < 30 and z < 20 and 160 <= step < 800 and int(weight[row]) < question.share * 2**64

    def answer(rows: list[int]) -> Answer:
        return Answer.of({name: columns[name][rows] for name in ("pid", "step", "vz")})

    rows = sorted((row for row in range(len(weight)) if holds(row)), key=lambda row: int(weight[row]))
    assert len(rows) > 20, "the limit leaves something out"
    assert truth.answer(question).agrees(answer(rows[:20]))
    assert truth.answer(box.sample(0.01)).agrees(answer(rows))


def test_an_answer_with_one_other_row_does_not_agree():
    answer = Answer(rows=2, sum_pid=10, sum_step=160, sum_vz=0.5)
    assert answer.agrees(Answer(2, 10, 160, 0.5 + 1e-12))
    for other in (Answer(1, 10, 160, 0.5), Answer(2, 11, 160, 0.5), Answer(2, 10, 80, 0.5), Answer(2, 10, 160, 0.6)):
        assert not answer.agrees(other)


def test_a_question_says_the_same_in_both_languages():
    question = Question("a", box={"x": (0.5, None), "step": (80, 160)}, where=(("type", "=", 2),)).sample(0.5).first(9)
    assert question.expression() == "x >= 0.5 and step >= 80 and step < 160 and type = 2"
    text = sql(question, "t", real="FLOAT")
    assert text.endswith(
        "FROM t WHERE x >= CAST(0.5 AS FLOAT) AND step >= 80 AND step < 160 AND type = 2"
        f" AND prio < {ALL // 2} ORDER BY prio LIMIT 9"
    )
    assert Question("all").expression() is None


def test_quantiles_lie_between_neighbours_and_of_nothing_are_no_number():
    assert median([3, 1, 2]) == 2
    assert quantile([0, 10], 0.95) == 9.5
    assert np.isnan(median([]))


def _measured(**figures: float) -> Measured:
    measured = Measured()
    for key, figure in figures.items():
        measured.record(key.replace("_", " "), figure, {"atoll": figure, "rival": 2.0})
    return measured


def _row(measured: Measured, text: str) -> bars.Row:
    return next(row for row in bars.rows(measured) if row.bar == text)


def test_what_was_not_measured_never_holds():
    rows = bars.rows(_measured(space=float("nan"), write_over_csv=float("inf")))
    assert len(rows) == len(bars.BARS) >= 40
    assert all(row.figure is None and row.holds is None for row in rows)


def test_a_bar_holds_in_its_own_direction_and_only_without_wrong_answers():
    space, csv = "space over z-ordered Parquet with zstd, priority included", "acknowledged writing against CSV"
    good, bad = _measured(space=1.2, write_over_csv=6.0), _measured(space=1.4, write_over_csv=4.0)
    assert [_row(good, text).holds for text in (space, csv)] == [True, True]
    assert [_row(bad, text).holds for text in (space, csv)] == [False, False]
    good.wrong.append("atoll, box 3: 9 rows instead of 10")
    assert [_row(good, text).holds for text in (space, csv)] == [False, False]


def test_every_bar_has_a_key_and_a_text_of_its_own():
    assert len({bar.key for bar in bars.BARS}) == len({bar.text for bar in bars.BARS}) == len(bars.BARS)


def test_rows_for_programs_have_the_agreed_fields():
    row = _row(_measured(space=1.2), "space over z-ordered Parquet with zstd, priority included")
    assert json.loads(json.dumps(row.as_json())) == {
        "bar": row.bar,
        "figure": 1.2,
        "unit": "x",
        "target": 1.3,
        "goal": 1.0,
        "holds": True,
        "peers": {"atoll": 1.2, "rival": 2.0},
    }


def test_the_figure_that_a_goal_is_about_is_in_the_file_where_it_is_another_one():
    text = "requests a query less 1 per 25 K rows returned (goal: 100 K), boxes of 100 K rows and more, median"
    measured = Measured()
    measured.record("requests large median", 12.0)
    measured.record("goal requests large median", 14.5)
    assert _row(measured, text).as_json()["of_goal"] == 14.5


def test_space_is_held_against_the_smallest_parquet_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    files = {"z_ordered": 280, "z_ordered_smallest": 260}
    for name, size in files.items():
        (tmp_path / name).write_bytes(bytes(size))
    run = Measured()
    bench = SimpleNamespace(
        measured=run,
        dataset=SimpleNamespace(rows=10, **{name: tmp_path / name for name in files}),
        packed_bytes={ROWS_TABLE: 250},
    )
    atoll = SimpleNamespace(
        name=ATOLL, is_only_warm=False, open=lambda: None, close=lambda: None, bytes_on_disk=lambda: 500
    )
    monkeypatch.setattr(space_phase, "_at_rest", lambda bench: 273)
    space_phase.run(bench, [atoll])
    assert run.figures == {"space": 273 / 260}
    assert run.peers["space"]["parquet zstd"] == 28.0


def _earlier() -> dict:
    """Return the output of a run that measured the space and the backlog, and saw no step."""
    run = Measured()
    for phase, keys in {"space": ("space",), "live": ("live backlog",)}.items():
        run.now = Origin(phase, "abc", rows=1_000, minutes=2.0)
        for key in keys:
            run.record(key, 1.0, {"atoll": 1.0})
    run.miss("live visible")
    run.left_out.append("live: it failed")
    return json.loads(json.dumps(run.as_json()))


def test_a_phase_that_fails_now_does_not_keep_an_earlier_figure():
    measured = Measured()
    measured.take(_earlier(), phases=("live",), rows=1_000)
    assert (measured.figures, measured.missed, measured.left_out) == ({"space": 1.0}, [], [])
    assert set(measured.peers) == {"space"}


def test_a_figure_of_an_earlier_run_says_so_until_it_is_measured_again():
    space = "space over z-ordered Parquet with zstd, priority included"
    measured = Measured()
    measured.take(_earlier(), phases=(), rows=1_000)
    whence = {"phase": "space", "commit": "abc", "rows": 1_000, "minutes": 2.0}
    assert _row(measured, space).as_json()["earlier"] == whence
    assert _row(measured, "while writing: visible after a step's write, p95").holds is False
    shown = table.shown(bars.rows(measured), measured, colours=False)
    assert shown.count("of an earlier run: commit abc, 1,000 rows, 2 minutes") == 3
    measured.now = Origin("space", "def", rows=1_000, minutes=2.0)
    measured.record("space", 1.1)
    assert "earlier" not in _row(measured, space).as_json()


def test_times_beside_busy_others_are_not_judged_and_counts_are():
    visible, touched = "while writing: visible after a step's write, p95", "while writing: rows touched / returned, global 1 %"
    spark = "1.5 % of everything, warm, against Spark"
    run = Measured()
    run.now = Origin("live", "abc", rows=1_000, minutes=2.0)
    run.record("live visible", 5_000.0)
    run.record("live touched global", 1.0)
    run.now = Origin("warm", "abc", rows=1_000, minutes=2.0)
    run.record("global over spark", 1e3)
    run.disturb("live", 0.35)
    measured = Measured()
    measured.take(json.loads(json.dumps(run.as_json())), phases=(), rows=1_000)
    for each in (run, measured):
        assert [_row(each, text).holds for text in (visible, touched, spark)] == [None, True, True]
        assert "disturbed" not in _row(each, visible).as_json()
        shown = table.shown(bars.rows(each), each, colours=False)
        assert shown.count("not judged: others used 35% of the machine while it was measured") == 1
        assert f"2 bars hold, 0 do not, {len(bars.BARS) - 3} were not measured. 1 are not judged" in shown
    measured.wrong.append("atoll, box 3: 9 rows instead of 10")
    assert _row(measured, visible).holds is False
    run.record("live visible", 5.0)
    assert _row(run, visible).holds is True


def test_what_others_use_of_the_machine_is_told_from_what_this_process_started(monkeypatch: pytest.MonkeyPatch):
    before = machine._own_ticks()
    # Of its own time, so that it is as much on a busy machine.
    busy = "import sys, time\nwhile time.process_time() < 0.4: pass\nprint(flush=True)\nsys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        alive = machine._own_ticks()
    assert alive - before >= 30 and machine._own_ticks() >= alive
    times = iter([[0] * 8, [50, 0, 20, 100, 10, 0, 0, 20], []])
    monkeypatch.setattr(machine, "_times", lambda: next(times))
    monkeypatch.setattr(machine, "_own_ticks", iter([1_000, 1_030]).__next__)
    assert machine.Beside().share() == 0.3


def test_earlier_figures_of_other_rows_or_of_unknown_origin_are_not_taken():
    measured = Measured()
    measured.take(_earlier(), phases=(), rows=10_000)
    measured.take({**_earlier(), "origins": {}}, phases=(), rows=1_000)
    assert measured.figures == {} and measured.missed == []
    assert all("space" in note for note in measured.notes)


def test_losses_are_red_and_what_was_left_out_is_named():
    measured = _measured(space=1.4)
    measured.left_out.append("spark: no Java")
    text = table.shown(bars.rows(measured), measured, colours=True)
    (line,) = [line for line in text.splitlines() if "space over" in line]
    assert line.startswith("\033[31m") and "NO" in line
    assert "LEFT OUT: spark: no Java" in text
    assert f"0 bars hold, 1 do not, {len(bars.BARS) - 1} were not measured." in text


def test_what_was_told_the_cut_is_no_rival():
    # Their libraries are not installed for the tests, so their names are read from the source, not imported.
    sources = [path.read_text() for path in (Path(__file__).parents[2] / "benches/tables/peers").glob("*.py")]
    names = {name for source in sources for name in re.findall(r'^    name = "(.+)"$', source, re.MULTILINE)}
    assert {name for name in names if "told" not in name} == {timing.ATOLL, *timing.RIVALS}
    times = dict.fromkeys(timing.RIVALS, 3.0) | {"atoll": 1.0, "postgis 4-d told the cut": 0.1, "duckdb table": 2.0}
    assert timing.best_rival(times) == 2.0


def _asked(times: dict[str, float]) -> SimpleNamespace:
    """Return the figures made from these times of every warm and cold question."""
    bench = SimpleNamespace(measured=Measured())
    bench.leave_out = lambda what, why: bench.measured.left_out.append(f"{what}: {why}")
    timing._record(bench, {name: {"a": times} for name in ("first", "global 1.5 %", "ten percent", "full")})
    cold._record(bench, {"full": times})
    return bench


def test_there_is_no_best_rival_unless_every_one_answered():
    best = [bar.text for bar in bars.BARS if "the best rival" in bar.text]
    everybody = dict.fromkeys(timing.RIVALS, 4.0) | {"atoll": 1.0}
    assert [_row(_asked(everybody).measured, text).holds for text in best] == [True] * 3
    for missing in timing.RIVALS:
        measured = _asked({name: each for name, each in everybody.items() if name != missing}).measured
        # Programs that keep their table in memory are only measured when every program is warm.
        phases = ["warm", "cold"] if missing in cold.RIVALS else ["warm"]
        unknown = best if missing in cold.RIVALS else [text for text in best if "cold" not in text]
        rows = [_row(measured, text) for text in unknown]
        assert [(row.figure, row.holds) for row in rows] == [(None, None)] * (len(phases) + 1)
        assert [line.partition(":")[0] for line in measured.left_out] == phases
        assert all(line.endswith(f"not measured without {missing}") for line in measured.left_out)
    assert _asked({"atoll": 1.0}).measured.left_out == [], "nobody asked for rivals"


def test_a_step_is_visible_from_the_first_version_that_has_it_and_never_seen_is_for_ever():
    appended = [Appended(began=1.0, acknowledged=1.1, version=4, rows=1), Appended(2.0, 2.1, 6, 1), Appended(3.0, 3.1, 9, 1)]
    seen = [(1.05, 3), (1.25, 4), (2.5, 7)]
    assert visible_after(appended, seen) == pytest.approx([250.0, 500.0, math.inf])


def test_what_came_to_no_end_does_not_hold_and_has_no_figure():
    text = "while writing: visible after a step's write, p95"
    delays = [5.0] * 80 + [math.inf] * 20
    assert quantile(delays, 0.95) == math.inf and quantile(delays, 0.5) == 5.0
    measured = _measured(live_visible=5.0)
    measured.miss("live visible")
    row = _row(measured, text)
    assert (row.figure, row.holds) == (None, False)
    (line,) = [line for line in table.shown([*bars.rows(measured)], measured, colours=False).splitlines() if text in line]
    assert "never" in line and "NO" in line
    measured.record("live visible", 6.0)
    assert _row(measured, text).holds is True
