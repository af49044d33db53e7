"""The Cassandra bench is right about what it computes itself: which figures are bars, and whose figures they are."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))

from tables import origin
from tables.bench import Bench
from tables.on_cassandra import __main__ as program
from tables.on_cassandra import bars as of_cassandra
from tables.on_cassandra import suite, writing
from tables.on_cassandra.bars import BARS
from tables.on_cassandra.cluster import CONTROL, Cluster
from tables.report import bars, table
from tables.report.measured import Measured


def test_a_figure_that_nothing_is_asked_of_neither_holds_nor_reaches_a_goal():
    measured = Measured()
    for key in ("one writer", "requests create", "kill operations"):
        measured.record(key, 5_000.0)
    rows = {row.bar: row for row in bars.rows(measured, BARS)}
    for text in ("lightweight transactions a second, one writer", "requests of a create"):
        row = rows[text]
        assert (row.figure, row.target, row.goal, row.holds) == (5_000.0, None, None, None)
    assert rows["three nodes, one killed under load: definite operations"].holds is True
    shown = table.shown([*rows.values()], measured, colours=False, bars=BARS)
    assert f"1 bars hold, 0 do not, {len(BARS) - 3} were not measured. 2 figures have no target." in shown


def test_rates_of_other_programs_or_another_node_are_measured_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(CONTROL, "/nowhere")
    monkeypatch.setattr(writing, "run", lambda bench, cluster, with_rivals: writing._kept(bench, "atoll-rows", make))
    made, emptied = [], []

    def make() -> dict[str, float]:
        made.append(bench.measured.detail["kept, made by"]["commit"])
        return {"loaded, s": 1.0}

    bench = SimpleNamespace(folder=tmp_path, counter=Path(), measured=Measured(), leave_out=pytest.fail, begin=print)
    asked = SimpleNamespace(fresh=False, phases=("writing",), peers=False, json=None, detail=None)

    def run(programs: str, heap: str, commit: str) -> None:
        monkeypatch.setattr(origin, "programs", lambda *files: programs)
        monkeypatch.setattr(origin, "commit", lambda: commit)
        down = lambda keep: emptied.append(commit) if not keep else None  # noqa: E731
        cluster = SimpleNamespace(folder=tmp_path, heap=heap, up=lambda: None, down=down, processes=list)
        program._together(bench, asked, cluster)

    run("one", "4G", "first")
    run("one", "4G", "only a page changed")
    run("other", "4G", "second")
    run("other", "1G", "quick")
    assert made == emptied == ["first", "second", "quick"]


def test_times_beside_busy_others_are_not_judged_and_nodes_are_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def run(bench: Bench, cluster: object, *, with_rivals: bool) -> None:
        bench.measured.record("over blobs", 2.0)

    def counted(*servers: int) -> int:
        asked_about.append(servers)
        return 0

    monkeypatch.setenv(CONTROL, "/nowhere")
    monkeypatch.setattr(origin, "programs", lambda *files: "one")
    monkeypatch.setattr(origin, "commit", lambda: "abc")
    monkeypatch.setattr(writing, "run", run)
    asked_about, judged = [], []
    monkeypatch.setattr(program.machine, "_own_ticks", counted)
    for node in (1, 2):
        (tmp_path / f"node-{node}").mkdir()
        (tmp_path / f"node-{node}/pid").write_text(f"{40 + node}\n")
    cluster = Cluster(tmp_path, 2, "1G", 20_642)
    monkeypatch.setattr(Cluster, "control", lambda *words: None)
    asked = SimpleNamespace(fresh=False, phases=("writing",), peers=False, json=None, detail=None)
    for used in (35, 15):
        times = iter([[0] * 8, [used, 0, 0, 100 - used, 0, 0, 0, 0]])
        monkeypatch.setattr(program.machine, "_times", lambda times=times: next(times))
        bench = Bench(tmp_path, Path(), SimpleNamespace(rows=1), None, None, is_quick=False, commit="0", minutes=1)
        program._together(bench, asked, cluster)
        judged.append(bench.measured.disturbed)
    assert judged == [{"over blobs": 0.35}, {}]
    assert set(asked_about) == {(41, 42)}


def test_a_digest_is_of_what_is_in_the_files(tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text("same")
    other.write_text("same")
    assert origin.digest([one]) == origin.digest([other])
    other.write_text("else")
    assert origin.digest([one]) != origin.digest([other])
    assert origin.programs(one) == origin.programs(one) != origin.programs(other)


def test_tests_that_fail_cases_that_lose_rows_and_phases_without_an_end_fail_the_run():
    def is_well(**figures: float) -> bool:
        measured = Measured()
        for key, figure in figures.items():
            measured.record(key.replace("_", " "), figure)
        return of_cassandra.is_well(measured)

    assert is_well(suite_1=0, input=0, over_rows=0.1), "a bar that does not hold is no failure"
    assert not is_well(suite_1=2)
    assert not is_well(planted=1)
    assert not is_well(input=1)
    measured = Measured()
    measured.fail("sample", "it failed", of_cassandra.OF_PHASE["sample"])
    assert not of_cassandra.is_well(measured)
    (row,) = [row for row in bars.rows(measured, of_cassandra.BARS) if "Spark" in row.bar]
    assert (row.figure, row.holds) == (None, False)


def test_a_test_program_that_is_not_built_has_failed_and_one_without_a_cluster_was_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def failed(said: str, code: int) -> int | None:
        ran = SimpleNamespace(stdout=said, stderr="", returncode=code)
        monkeypatch.setattr(suite.subprocess, "run", lambda *words, **more: ran)
        cluster = SimpleNamespace(environment=dict, folder=tmp_path / "cluster")
        return suite.ran_test(cluster, "suite-1", "cassandra")[1]

    assert failed("test result: ok. 7 passed; 0 failed", 0) == 0
    assert failed("test result: FAILED. 7 passed; 2 failed", 101) == 2
    assert failed("error: could not compile", 101) == 1
    assert failed("SKIPPED [cassandra-nodes]: no node", 0) is None
    assert failed("", 0) is None


def test_every_phase_has_bars():
    keys = [key for keys in of_cassandra.OF_PHASE.values() for key in keys]
    assert sorted(keys) == sorted(bar.key for bar in of_cassandra.BARS)
