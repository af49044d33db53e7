"""Phases of the tables bench check what they time: a fault in the measured program is reported, not a good figure."""

import json
import queue
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest

import atoll

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))

from tables import __main__ as bench_of_tables
from tables.asked.question import Question
from tables.asked.truth import Truth
from tables.bench import Bench
from tables.data.rows import INDEX, SCHEMA
from tables.data.tube import Tube
from tables.phases import live, live_writer, packing, runs, slowdown, sustained, tolerance, writing
from tables.phases.live_writer import Appended
from tables.peers.base import RivalFailed, Unavailable, of_rival
from tables.report import bars, table
from tables.report.measured import Measured
from tables.writing.table import AtollWriter


class _Watched:
    """A table that can be sampled; following it fails."""

    def __init__(self) -> None:
        self._native = SimpleNamespace(follow=self._follow)

    def _follow(self, last: int, seconds: float) -> int:
        raise OSError("the connection is gone")

    def sample(self, share: float) -> "_Watched":
        return self

    def read(self) -> SimpleNamespace:
        return SimpleNamespace(work=SimpleNamespace(rows_touched=1, rows_returned=1))

    def info(self) -> SimpleNamespace:
        return SimpleNamespace(blocks=0)


def test_a_follower_that_fails_fails_the_phase():
    appended: queue.Queue = queue.Queue()
    appended.put(Appended(began=1.0, acknowledged=1.1, version=4, rows=1))
    store = SimpleNamespace(table=lambda name: _Watched())
    with pytest.raises(OSError, match="the connection is gone"):
        live._watched(live.LastSteps(None, [1]), store, SimpleNamespace(is_alive=lambda: True), appended, 1)


def test_a_box_of_the_last_steps_has_the_same_rows_however_large_the_table_is():
    box = live.LastSteps(Question("a", box={"x": (0.0, 1.0)}), [10_000, 20_000, 30_000])
    assert [box.after(steps) for steps in (0, 1, 7)] == [None] * 3, "130 K rows"
    for steps in (8, 9, 10, 1_000):
        first, end = box.after(steps).box["step"]
        assert (end, box.after(steps).box["x"]) == (steps * 80, (0.0, 1.0))
        rows = sum(box.rows[step % 3] for step in range(first // 80, steps))
        assert 140_000 <= rows < 170_000, "no step more than it takes"


def test_rows_of_each_frame_are_those_that_lie_in_the_box():
    frames = _frames(5)
    columns = {name: np.concatenate([frame[name] for frame in frames]) for name in SCHEMA.names}
    # A step without any row in the box.
    columns["z"][columns["step"] == 160] = 1e6
    question = Question("most", box={"z": (-1e3, 1e3)})
    truth = Truth(columns)
    plan = SimpleNamespace(counted={"all boxes": [question]}, truth={"most": truth.answer(question)})
    bench = SimpleNamespace(plan=plan, truth=truth, dataset=SimpleNamespace(rows=len(columns["pid"])))
    sizes = [len(frame["pid"]) for frame in frames]
    assert live._box(bench).rows == [*sizes[:2], 0, *sizes[3:]]


class _Grown:
    """A table whose sampled box returns these numbers of rows in turn; up to 20,000, it touches five rows for each."""

    def __init__(self, returned: list[int]) -> None:
        self._returned = iter(returned)

    def sample(self, share: float) -> "_Grown":
        return self

    def where(self, expression: str) -> SimpleNamespace:
        return SimpleNamespace(sample=lambda share: SimpleNamespace(read=lambda: self._answer(next(self._returned))))

    def read(self) -> SimpleNamespace:
        return self._answer(1)

    def info(self) -> SimpleNamespace:
        return SimpleNamespace(blocks=0)

    def _answer(self, returned: int) -> SimpleNamespace:
        # The larger the answer, the fewer rows are touched beside it.
        touched = returned * 5 if returned <= 20_000 else returned
        return SimpleNamespace(work=SimpleNamespace(rows_touched=touched, rows_returned=returned))


def test_boxes_that_have_outgrown_the_bar_are_no_samples(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(live, "wait", lambda futures, seconds: None)
    box, follower = live.LastSteps(Question("a"), [140_000]), SimpleNamespace(done=lambda: False)
    returned = [10_000, 14_000, 20_000, 9_999, 20_001, 1_000_000]
    # One step is announced before each sample.
    appended = SimpleNamespace(empty=iter([False, True] * len(returned)).__next__, get=lambda: Appended(1.0, 1.1, 4, 1))
    made = live._sampled(box, _Grown(returned), SimpleNamespace(is_alive=lambda: True), appended, len(returned), follower)
    assert made["ratios"]["box"] == [5.0] * 3
    assert made["boxes"] == list(enumerate(returned, start=1))


def test_of_boxes_that_hardly_ever_have_the_rows_of_the_bar_nothing_is_recorded():
    bench = _alone()
    live._record_box(bench, [2.0, 3.0, 4.0], [(1, 9_999), (2, 14_000), (3, 14_100), (4, 14_200)])
    assert bench.measured.figures == {"live touched box": 3.0}
    assert "3 samples, from step 2 to step 4" in bench.measured.notes[0]
    bench = _alone()
    live._record_box(bench, [1.0], [(1, 14_000), (2, 30_000)])
    assert bench.measured.figures == {} and "1 of 2 samples" in bench.measured.left_out[0]


def _alone(minutes: float = 10.0) -> Bench:
    """A bench without any work."""
    return Bench(Path(), Path(), SimpleNamespace(rows=1), None, None, is_quick=False, commit="0", minutes=minutes)


@pytest.mark.parametrize(("minutes", "is_recorded"), [(10.0, False), (0.4, True)])
def test_a_backlog_after_some_moments_is_none_after_ten_minutes(minutes: float, *, is_recorded: bool):
    bench = _alone(minutes)
    appended = [Appended(number * 0.4, number * 0.4 + 0.1, number, 1) for number in range(60)]
    seen = [(step.acknowledged, step.version) for step in appended]
    made = {"appended": appended, "seen": seen, "ratios": {"global": [1.0], "box": []}, "boxes": []}
    live._record(bench, {**made, "backlog": [0.4], "drained": 0.0})
    assert ("live backlog" in bench.measured.figures) == is_recorded
    assert any("24 s" in line for line in bench.measured.left_out) != is_recorded

def _estimate(value: float, half_width: float, doubts: tuple[str, ...] = ()) -> SimpleNamespace:
    return SimpleNamespace(value=value, half_width=half_width, doubts=doubts, is_valid=not doubts)


def test_an_estimate_that_is_doubted_too_wide_or_far_from_the_truth_is_told():
    assert tolerance.problems(_estimate(10.08, 0.099), 10.0, 2.0) == []
    assert tolerance.problems(_estimate(10.12, 0.099), 10.0, 2.0) == [], "one in twenty may be beside the truth"
    assert "few" in tolerance.problems(_estimate(10.0, 0.09, ("few",)), 10.0, 2.0)[0]
    assert "more than" in tolerance.problems(_estimate(10.0, 0.2), 10.0, 2.0)[0]
    assert "far from" in tolerance.problems(_estimate(10.3, 0.09), 10.0, 2.0)[0]
    assert len(tolerance.problems(_estimate(float("nan"), float("nan")), 10.0, 2.0)) == 2
    assert [tolerance.outside_most(count) for count in (1, 6, 100)] == [1, 3, 13]


def _tolerance_bench(folder: Path, *, is_shifted: bool) -> SimpleNamespace:
    """A bench of a small tube; if shifted, the table holds other values than the truth."""
    frames = list(Tube(steps=30, particles=2_000).frames())
    columns = {name: np.concatenate([frame[name] for frame in frames]) for name in SCHEMA.names}
    with atoll.open(folder / "store") as store:
        table = store.create_table("rows", SCHEMA, id=("pid", "step"), index=INDEX)
        table.append({**columns, "vz": columns["vz"] + np.float32(is_shifted)})
    question = Question("most", box={"z": (-100.0, 100.0)})
    truth = Truth(columns)
    plan = SimpleNamespace(timed={"full": [question], "middle": []}, truth={"most": truth.answer(question)})
    return SimpleNamespace(
        measured=Measured(), plan=plan, truth=truth, rounds=1, store=lambda table: folder / "store"
    )


@pytest.mark.parametrize("is_shifted", [False, True])
def test_answers_to_tolerance_queries_are_held_against_the_truth(tmp_path: Path, is_shifted: bool):
    bench = _tolerance_bench(tmp_path, is_shifted=is_shifted)
    tolerance.run(bench)
    figures = bench.measured.figures
    assert set(figures) == {"tolerance rows", "tolerance decoded", "tolerance exact"}
    assert figures["tolerance decoded"] >= figures["tolerance rows"] > 0, "what is given was decoded"
    told = " ".join(bench.measured.wrong)
    assert [word in told for word in ("far from", "exactly")] == [is_shifted, is_shifted]


def test_the_first_query_of_many_runs_finds_nothing_read_and_its_answer_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(runs, "_RUNS_QUICK", 20)
    calls, read, listed = [], atoll.Query.read, atoll.Table.runs
    monkeypatch.setattr(atoll.Query, "read", lambda query: calls.append("read") or read(query))
    monkeypatch.setattr(atoll.Table, "runs", lambda table: calls.append("list") or listed(table))
    bench = SimpleNamespace(folder=tmp_path, is_quick=True, measured=Measured())
    runs.run(bench)
    assert calls == ["read", "list"]
    assert bench.measured.wrong == []
    # Some rows fewer than the query asks for: the answer is another one.
    monkeypatch.setattr(runs, "_expected", lambda count, expected=runs._expected: expected(count + 1))
    runs.run(bench)
    assert len(bench.measured.wrong) == 1 and "first query" in bench.measured.wrong[0]


def _frames(count: int) -> list[dict[str, np.ndarray]]:
    """Make steps of a small tube."""
    return [{name: frame[name].copy() for name in SCHEMA.names} for frame in Tube(steps=count, particles=500).frames()]


class _Loses(AtollWriter):
    """A writer that acknowledges a step and forgets it, or writes another one."""

    name = "loses"
    fault = "forgets"

    def step(self, frame: dict[str, np.ndarray]) -> None:
        if int(frame["step"][0]) != 160:
            super().step(frame)
        elif self.fault == "alters":
            super().step({**frame, "vz": frame["vz"] + np.float32(1.0)})


def test_steps_that_were_acknowledged_are_looked_up_after_the_clock_has_stopped(tmp_path: Path):
    frames = _frames(4)

    def told(kind: type[AtollWriter]) -> list[str]:
        return writing._rate(tmp_path / "writing", kind, frames, is_synced=False)[1]

    assert told(AtollWriter) == []
    forgotten = told(_Loses)
    assert "rows instead of" in forgotten[0] and "step 160" in forgotten[1] and len(forgotten) == 2
    _Loses.fault = "alters"
    (altered,) = told(_Loses)
    assert "step 160" in altered


@pytest.mark.parametrize("is_altered", [False, True])
def test_rows_written_at_full_rate_are_compared(tmp_path: Path, *, is_altered: bool):
    frames = _frames(3)
    appended = [Appended(1.0, 1.1, 4, len(frames[number % 3]["pid"])) for number in range(7)]
    bench = SimpleNamespace(measured=Measured(), dataset=SimpleNamespace(batches=lambda: _batches(frames)))
    with atoll.open(tmp_path / "store") as store:
        table = store.create_table("run", SCHEMA, id=("pid", "step"), index=INDEX)
        for number in range(7):
            frame = live_writer.at(frames[number % 3], number)
            table.append({**frame, "vz": frame["vz"] + np.float32(is_altered)}, run="run", step=number)
        live._check(bench, table, appended)
        del table
    assert len(bench.measured.wrong) == (7 if is_altered else 0), bench.measured.wrong


def test_rows_written_for_long_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    right = sustained._table(tmp_path / "right", _frames(3), 60.0, 5_000)
    assert right["wrong"] == [] and right["rows"] >= 5_000
    append = atoll.Table.append
    monkeypatch.setattr(atoll.Table, "append", lambda table, rows, **more: append(table, _stretched(rows), **more))
    wrong = sustained._table(tmp_path / "wrong", _frames(3), 60.0, 5_000)
    assert len(wrong["wrong"]) >= 5


def test_what_is_written_for_long_lies_in_one_table_after_the_other_and_the_clock_counts_only_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def table(place: Path, frames: list, seconds: float, rows_max: int) -> dict:
        asked.append(seconds)
        steps = 3 if len(asked) == 1 else 2
        return {"rows": steps, "steps": steps, "appended, s": 4.0, "packed, s": 5.0, "rows packed": 2 * steps, "wrong": ["a"]}

    monkeypatch.setattr(sustained, "_table", table)
    made = sustained._write(str(tmp_path), [], 12.0, 3)
    assert asked == [12.0, 7.0, 2.0]
    assert (made["rows"], made["steps"], made["appended, s"], made["packed, s"]) == (7, [3, 2, 2], 12.0, 15.0)
    assert made["times each row was packed"] == 2.0
    assert made["wrong"] == ["table 0: a", "table 1: a", "table 2: a"]


def test_raw_appends_beside_are_the_same_steps_in_as_many_files_and_all_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    files: list[list[int]] = []

    class Raw:
        def __init__(self, folder: Path, *, is_synced: bool) -> None:
            assert folder.is_dir() and not is_synced
            self.is_synced = False

        def start(self, frame: dict) -> None:
            files.append([])

        def step(self, frame: dict) -> None:
            files[-1].append(-1 if self.is_synced else int(frame["step"][0]))

        def finish(self) -> None:
            pass

    monkeypatch.setitem(sys.modules, "tables.writing.files", SimpleNamespace(RawAppend=Raw))
    assert sustained._raw(SimpleNamespace(folder=tmp_path), _frames(2), [3, 2]) > 0
    assert files == [[0, 80, 160, -1], [0, 80, -1]]
    assert list(tmp_path.iterdir()) == []


def test_some_moments_of_writing_are_no_ten_minutes():
    made = {"rows": 100, "steps": [2], "appended, s": 16.0}
    bench = _alone()
    sustained._record(bench, {**made, "packed, s": 18.0}, 10.0, 20.0)
    assert bench.measured.figures == {} and bench.measured.detail["sustained"]["packed, s"] == 18.0
    assert "18 s are not the 10 minutes" in bench.measured.left_out[0]
    bench = _alone()
    sustained._record(bench, {**made, "packed, s": 541.0}, 10.0, 20.0)
    assert set(bench.measured.figures) == {"write sustained"} and bench.measured.left_out == []


def test_a_table_of_many_rows_that_does_not_fit_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sustained.shutil, "disk_usage", lambda folder: SimpleNamespace(free=9e9))
    with pytest.raises(Unavailable, match="10 GB"):
        sustained.run(_alone())


def _stretched(rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**rows, "vz": rows["vz"] + np.float32(1.0)}


_STILL = SimpleNamespace(rows_packed=0, blocks_left=24)
_PACKED = SimpleNamespace(rows_packed=1_200_000, blocks_left=0)
_OVER_AND_OVER = SimpleNamespace(rows_packed=1_200_000, blocks_left=13)


@pytest.mark.parametrize("packed", [_STILL, _OVER_AND_OVER, _PACKED])
def test_a_slow_down_beside_a_packer_that_packs_less_than_half_is_no_figure(
    packed: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
):
    def simulated(command: list[str], **more: object) -> SimpleNamespace:
        ran = {"seconds": 100.0}
        if "--store" in command:
            ran |= {"seconds": 101.0, "rows": 600_000, "rows_packed": 0, "blocks": 24, "blocks_left": 24}
        if "background" in command:
            ran |= {"seconds": 102.0, **vars(packed)}
        return SimpleNamespace(returncode=0, stdout=f"of MPI\nmeasured {json.dumps(ran)}\n", stderr="")

    monkeypatch.setattr(slowdown, "_needs", lambda: None)
    monkeypatch.setattr(slowdown.subprocess, "run", simulated)
    bench = _alone()
    slowdown.run(bench)
    assert bench.measured.figures["slow-down deferred"] == pytest.approx(1.0)
    assert ("slow-down" in bench.measured.figures) == (packed is _PACKED)
    assert [line.partition(":")[0] for line in bench.measured.left_out] == ([] if packed is _PACKED else ["slowdown"])


def test_a_simulation_that_ends_with_a_table_fails_and_without_one_cannot_run(monkeypatch: pytest.MonkeyPatch):
    ended = SimpleNamespace(returncode=1, stdout="", stderr="no such library")
    monkeypatch.setattr(slowdown.subprocess, "run", lambda command, **more: ended)
    with pytest.raises(Unavailable, match="no such library"):
        slowdown._ran(_alone(), 800, "bare")
    with pytest.raises(RuntimeError, match="no such library"):
        slowdown._ran(_alone(), 800, "background")


def test_small_steps_are_looked_up_behind_the_count_of_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    rows = _rows(3)
    monkeypatch.setattr(packing, "_until_packed", lambda table: None)
    monkeypatch.setattr(packing, "_STEP_ROWS", 100)
    assert packing._write_small_steps(str(tmp_path / "right"), rows)["wrong"] == []
    append = atoll.Table.append
    monkeypatch.setattr(atoll.Table, "append", lambda table, rows, **more: append(table, _stretched(rows), **more))
    assert len(packing._write_small_steps(str(tmp_path / "wrong"), rows)["wrong"]) == 3


def test_answers_of_appended_and_imported_rows_are_held_against_the_truth(tmp_path: Path):
    rows = _rows(3)
    bench = SimpleNamespace(measured=Measured(), rounds=1)
    places = {kind: tmp_path / kind for kind in ("appends", "import")}
    for place in places.values():
        # Both are wrong in the same way, and so have equally many rows.
        packing._imported(place, _stretched(rows))
    packing._queried(bench, places, rows)
    assert {line.partition(",")[2].split(",")[0].strip() for line in bench.measured.wrong} == {"appends", "import"}
    assert len(packing._wrong(places["import"], rows)) == 3
    right = tmp_path / "right"
    packing._imported(right, rows)
    assert packing._wrong(right, rows) == []
    bench.measured.wrong.clear()
    packing._queried(bench, {"appends": right, "import": right}, rows)
    assert bench.measured.wrong == []


def _rows(steps: int) -> dict[str, np.ndarray]:
    """Return the rows of some steps of a small tube, in order."""
    frames = _frames(steps)
    return {name: np.concatenate([frame[name] for frame in frames]) for name in SCHEMA.names}


def _batches(frames: list[dict[str, np.ndarray]]) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pydict(frame, schema=SCHEMA) for frame in frames]


def _ran_alone(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> Measured:
    """Run one phase that records a good figure and then raises this error, if any."""
    def run(bench: Bench) -> None:
        bench.measured.record("pack bytes", 1.0)
        if error is not None:
            raise error

    monkeypatch.setattr(packing, "run", run)
    bench = _alone()
    asked = SimpleNamespace(phases=("packing",), json=None, detail=None)
    bench_of_tables._run_alone(bench, asked)
    return bench.measured


def test_a_phase_that_fails_fails_its_bars_and_the_run_and_one_that_lacks_something_neither(
    monkeypatch: pytest.MonkeyPatch,
):
    def holds(measured: Measured) -> list[bool | None]:
        keys = bars.OF_PHASE["packing"]
        rows = zip(bars.BARS, bars.rows(measured), strict=True)
        return [row.holds for bar, row in rows if bar.key in keys]

    well = _ran_alone(monkeypatch, None)
    assert (holds(well), well.is_well()) == ([True, None, None], True)
    failed = _ran_alone(monkeypatch, RuntimeError("7 blocks are not packed after 300 s"))
    assert (holds(failed), failed.is_well()) == ([False] * 3, False)
    shown = table.shown(bars.rows(failed), failed, colours=False)
    assert "FAILED: packing: it failed" in shown and "7 blocks are not packed" in shown and "3 do not" in shown
    lacking = _ran_alone(monkeypatch, Unavailable("LAMMPS is not installed"))
    assert (holds(lacking), lacking.is_well()) == ([True, None, None], True)
    rival = _ran_alone(monkeypatch, RivalFailed("hdf5: no space left"))
    assert (holds(rival), rival.is_well()) == ([True, None, None], False)


def test_what_was_measured_beside_busy_others_is_told_by_phase(monkeypatch: pytest.MonkeyPatch):
    disturbed = []
    for share in (0.35, 0.15):
        monkeypatch.setattr(bench_of_tables.machine.Beside, "share", lambda _, share=share: share)
        disturbed.append(_ran_alone(monkeypatch, None).disturbed)
    assert disturbed == [{"pack bytes": 0.35}, {}]


def test_what_ran_while_programs_were_built_is_no_part_of_their_first_phase(monkeypatch: pytest.MonkeyPatch):
    begun = []
    monkeypatch.setattr(bench_of_tables, "_programs", lambda bench, asked, phase: begun.append("built") or [])
    monkeypatch.setattr(bench_of_tables.machine.Beside, "begin", lambda self: begun.append("watched"))
    monkeypatch.setattr(bench_of_tables.machine.Beside, "share", lambda self: 0.0)
    monkeypatch.setattr(bench_of_tables.timing, "run", lambda bench, programs: begun.append("asked"))
    bench_of_tables._run_together(_alone(), SimpleNamespace(phases=("warm",), json=None, detail=None))
    assert begun == ["watched", "built", "watched", "asked"]


def test_what_a_rival_does_wrong_is_told_from_what_atoll_does():
    with pytest.raises(RivalFailed, match="spark"), of_rival("spark"):
        raise OSError("it ended")
    with pytest.raises(OSError, match="it ended"), of_rival("atoll"):
        raise OSError("it ended")
    with pytest.raises(Unavailable), of_rival("spark"):
        raise Unavailable("no Java")


def test_every_phase_has_bars_and_every_bar_is_of_one_phase():
    assert {"loading", *bench_of_tables.PHASES} == set(bars.OF_PHASE)
    assert sorted(key for keys in bars.OF_PHASE.values() for key in keys) == sorted(bar.key for bar in bars.BARS)
