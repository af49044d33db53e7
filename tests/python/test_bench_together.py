"""Phases of the tables bench that run every program: one that fails loses only its own figures."""

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pyarrow as pa
import pytest

import atoll

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))

from tables import __main__ as bench_of_tables
from tables.asked.question import Question
from tables.asked.truth import Answer
from tables.bench import ROWS_TABLE, Bench
from tables.data.rows import INDEX, SCHEMA
from tables.data.tube import Tube
from tables.on_cassandra import questions, sample
from tables.peers import spark as of_spark
from tables.peers.atoll_table import AtollTable
from tables.peers.base import RivalFailed, Unavailable
from tables.phases import cold, counts, load, packing, space, timing
from tables.report import bars
from tables.report.measured import Measured

_CLASSES = ("first", "global 1.5 %", "ten percent", "full")
_ROW = pa.table({"pid": [1], "step": [80], "vz": [0.5]})


class _Program:
    """A program that answers with the same row, and fails where the test says so, from a given question on."""

    is_only_warm = False

    def __init__(self, name: str, fails: str = "", question: str = "first") -> None:
        self.name, self._fails, self._question = name, fails, question
        self.is_open, self.closed = False, 0

    def build(self) -> None:
        self._maybe("build")

    def open(self) -> None:
        self.is_open = True
        self._maybe("open")

    def ask(self, question: Question) -> pa.Table:
        assert self.is_open
        if question.name == self._question:
            self._maybe("ask")
        return _ROW

    def bytes_on_disk(self) -> int:
        self._maybe("bytes")
        return 7

    def close(self) -> None:
        was_open, self.is_open = self.is_open, False
        self.closed += was_open
        if was_open:
            self._maybe("close")

    def _maybe(self, what: str) -> None:
        if what in self._fails.split():
            raise OSError(f"{self.name} cannot {what}")


def _bench(folder: Path = Path()) -> Bench:
    """A bench in which that row answers every question."""
    questions = {name: [Question(name)] for name in _CLASSES}
    truth = {name: Answer.of({column: _ROW[column].to_numpy() for column in _ROW.column_names}) for name in _CLASSES}
    plan = SimpleNamespace(timed=questions, truth=truth)
    dataset = SimpleNamespace(rows=1, folder=folder)
    return Bench(folder, Path(), dataset, None, plan, is_quick=True, rounds=1, commit="0")


def _everybody() -> list[_Program]:
    """Return Atoll and all rivals."""
    return [_Program(name) for name in ("atoll", *timing.RIVALS)]


def _holds(measured: Measured, phase: str) -> list[bool | None]:
    rows = zip(bars.BARS, bars.rows(measured), strict=True)
    return [row.holds for bar, row in rows if bar.key in bars.OF_PHASE[phase]]


@pytest.mark.parametrize("where", ["open", "ask", "close"])
def test_a_rival_that_fails_while_everybody_is_open_takes_only_its_own_figures_along(where: str):
    bench, programs = _bench(), _everybody()
    programs[2] = _Program("duckdb parquet", where, question="full")
    timing.run(bench, programs)
    assert [(program.is_open, program.closed) for program in programs] == [(False, 1)] * len(programs)
    (told,) = bench.measured.failed
    assert told.startswith("warm: duckdb parquet") and f"cannot {where}" in told and not bench.measured.is_well()
    answered = [each for times in bench.measured.detail["warm, ms"].values() for each in times.values()]
    assert all(set(each) == {"atoll", *timing.RIVALS} - {"duckdb parquet"} for each in answered)
    assert {"first over duckdb table", "global over spark"} <= set(bench.measured.figures)
    assert "ten percent over best" not in bench.measured.figures, "nobody knows who is the best"


def test_a_failure_of_atoll_closes_everybody_and_is_not_hidden_by_a_rival_that_does_not_close():
    bench, programs = _bench(), _everybody()
    programs[0], programs[-1] = _Program("atoll", "ask"), _Program("spark warm", "close")
    with pytest.raises(OSError, match="atoll cannot ask"):
        timing.run(bench, programs)
    assert [(program.is_open, program.closed) for program in programs] == [(False, 1)] * len(programs)


def test_a_peer_that_cannot_be_opened_leaves_nobody_open_when_it_is_atoll():
    bench, programs = _bench(), [_Program("duckdb table"), _Program("atoll", "open"), _Program("spark warm")]
    with pytest.raises(OSError, match="atoll cannot open"):
        timing.run(bench, programs)
    assert [(program.is_open, program.closed) for program in programs] == [(False, 1), (False, 1), (False, 0)]


@pytest.mark.parametrize("where", ["open", "ask", "close"])
def test_a_rival_that_fails_cold_is_closed_and_out(where: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cold, "_may_drop", lambda: True)
    monkeypatch.setattr(cold, "_drop", lambda: None)
    bench, programs = _bench(), _everybody()
    programs[1] = _Program("duckdb table", where, question="full")
    programs[-1].is_only_warm = True
    cold.run(bench, programs)
    assert not any(program.is_open for program in programs)
    assert [line.startswith("cold: duckdb table") for line in bench.measured.failed] == [True]
    assert all("duckdb table" not in each for each in bench.measured.detail["cold, ms"].values())
    assert programs[-1].closed == 0, "what keeps a table in memory is never cold"
    assert set(bench.measured.figures) == {"cold first over postgis 3-d"}
    with pytest.raises(OSError, match="atoll cannot ask"):
        cold.run(_bench(), [atoll_itself := _Program("atoll", "ask")])
    assert not atoll_itself.is_open


def test_cold_bars_do_not_wait_for_what_is_only_warm(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cold, "_may_drop", lambda: True)
    monkeypatch.setattr(cold, "_drop", lambda: None)
    bench, programs = _bench(), _everybody()
    programs[-1].is_only_warm = True
    cold.run(bench, programs)
    assert set(bench.measured.figures) == set(bars.OF_PHASE["cold"]) and not bench.measured.left_out


def _asked(*phases: str, peers: bool = False) -> SimpleNamespace:
    return SimpleNamespace(phases=phases, peers=peers, engines=(), json=None, detail=None)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace every phase by one that runs nothing; return the names of the phases that were to run."""
    names: list[str] = []
    phases = {"loading": load, "counts": counts, "warm": timing, "cold": cold, "space": space, "packing": packing}
    for name, phase in phases.items():
        monkeypatch.setattr(phase, "run", lambda *given, name=name: names.append(name))
    return names


def _fails(ran: list[str], name: str, error: Exception) -> Callable[..., None]:
    def run(bench: Bench, *programs: object) -> None:
        ran.append(name)
        for key in bars.OF_PHASE[name]:
            bench.measured.record(key, 1.0)
        raise error

    return run


@pytest.mark.parametrize("name", ["counts", "warm", "cold", "space"])
def test_a_phase_that_atoll_does_not_end_fails_its_bars_and_the_next_ones_are_run(
    name: str, ran: list[str], monkeypatch: pytest.MonkeyPatch
):
    phase = {"counts": counts, "warm": timing, "cold": cold, "space": space}[name]
    monkeypatch.setattr(phase, "run", _fails(ran, name, RuntimeError("7 rows are gone")))
    bench, phases = _bench(), ("counts", "warm", "cold", "space", "packing")
    bench_of_tables._run(bench, _asked(*phases))
    assert ran == ["loading", *phases]
    assert set(_holds(bench.measured, name)) == {False}
    (told,) = bench.measured.failed
    assert told.startswith(f"{name}: ") and "7 rows are gone" in told
    # A fault of a rival alone fails the run, but no bar.
    monkeypatch.setattr(phase, "run", _fails(ran, name, RivalFailed("spark: it ended")))
    rival = _bench()
    bench_of_tables._run(rival, _asked(*phases))
    assert ran[-5:] == [*phases] and rival.measured.missed == [] and not rival.measured.is_well()


def test_without_tables_nothing_is_asked_of_them_and_the_rest_is_run(ran: list[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(load, "run", _fails(ran, "loading", RuntimeError("the disk is full")))
    bench = _bench()
    bench_of_tables._run(bench, _asked("counts", "warm", "space", "packing"))
    assert ran == ["loading", "packing"]
    for name in ("loading", "counts", "warm", "space"):
        assert set(_holds(bench.measured, name)) == {False}
    assert set(_holds(bench.measured, "cold")) == {None}, "nobody asked for it"
    assert [line.partition(":")[0] for line in bench.measured.failed] == ["loading", "counts", "warm", "space"]


def test_a_rival_that_cannot_be_loaded_takes_no_part_and_is_told_once(ran: list[str], monkeypatch: pytest.MonkeyPatch):
    absent = _Program("polars parquet")
    absent.build = lambda: (_ for _ in ()).throw(Unavailable("it is not installed"))
    made = [_Program("atoll"), _Program("duckdb table", "build"), absent, _Program("spark warm")]
    monkeypatch.setattr(bench_of_tables, "AtollTable", lambda *given: made[0])
    monkeypatch.setitem(sys.modules, "tables.peers.everyone", everyone := ModuleType("everyone"))
    everyone.PEERS = []
    for each in made[1:]:
        everyone.PEERS.append(lambda dataset, folder, each=each: each)
    took_part = []
    for phase in (cold, space):
        monkeypatch.setattr(phase, "run", lambda bench, programs: took_part.append([each.name for each in programs]))
    bench = _bench()
    bench_of_tables._run_together(bench, _asked("cold", "space", peers=True))
    assert took_part == [["atoll", "spark warm"]] * 2
    assert bench.measured.failed == ["cold: duckdb table: OSError('duckdb table cannot build')"]
    assert bench.measured.left_out == ["polars parquet: it is not installed"]


def test_questions_on_cassandra_go_on_without_a_rival_that_fails(monkeypatch: pytest.MonkeyPatch):
    made = [_Program("atoll"), _Program("postgis 3-d", "ask")]
    monkeypatch.setattr(questions, "AtollTable", lambda *given: made[0])
    monkeypatch.setitem(sys.modules, "tables.peers.postgis", postgis := ModuleType("postgis"))
    postgis.Postgis3d = lambda *given: made[1]
    bench = _bench()
    questions.run(bench, with_peers=True)
    assert [(program.is_open, program.closed) for program in made] == [(False, 1)] * 2
    assert bench.measured.figures == {} and bench.measured.failed[0].startswith("questions: postgis 3-d")
    assert all(set(each) == {"atoll"} for times in bench.measured.detail["warm, ms"].values() for each in times.values())


def _loaded(folder: Path) -> Bench:
    """A bench whose table was packed repeatedly, so that its store holds old objects, beside a Parquet of 100 KB."""
    bench = _bench(folder)
    frames = [{name: frame[name].copy() for name in SCHEMA.names} for frame in Tube(steps=8, particles=2_000).frames()]
    with atoll.open(bench.store(ROWS_TABLE)) as store:
        table = store.create_table(ROWS_TABLE, SCHEMA, id=("pid", "step"), index=INDEX)
        for frame in frames:
            table.append(frame)
            table.pack(whole=True)
        bench.packed_bytes[ROWS_TABLE] = 100_000
        del table
    for name in ("z.parquet", "z-smallest.parquet"):
        (folder / name).write_bytes(bytes(100_000))
    bench.dataset.rows = sum(len(frame["pid"]) for frame in frames)
    bench.dataset.z_ordered, bench.dataset.z_ordered_smallest = folder / "z.parquet", folder / "z-smallest.parquet"
    return bench


def test_space_is_that_of_a_table_at_rest_and_what_finds_its_objects_counts(tmp_path: Path):
    bench = _loaded(tmp_path)
    itself = AtollTable(bench.dataset, bench.store(ROWS_TABLE), ROWS_TABLE)
    space.run(bench, [itself, _Program("duckdb table"), _Program("polars parquet", "bytes")])
    figure, by_program = bench.measured.figures["space"], bench.measured.peers["space"]
    assert figure == pytest.approx(by_program["atoll"] * bench.dataset.rows / 100_000)
    assert figure > 1.3, "the objects alone were said to be as long as the Parquet, and the file has more than those"
    assert by_program["atoll's objects alone"] < by_program["atoll"] < by_program["atoll's whole file"]
    assert by_program["duckdb table"] == 7 / bench.dataset.rows and "polars parquet" not in by_program
    assert bench.measured.failed == ["space: polars parquet: OSError('polars parquet cannot bytes')"]
    assert not (tmp_path / "atoll-at-rest").exists()


def test_nothing_is_said_of_the_space_of_blocks(tmp_path: Path):
    bench = _loaded(tmp_path)
    bench.packed_bytes.clear()
    space.run(bench, [AtollTable(bench.dataset, bench.store(ROWS_TABLE), ROWS_TABLE)])
    assert bench.measured.figures == {} and bench.measured.detail["bytes a row"]["atoll"] > 0


def test_a_table_of_atoll_is_closed_as_often_as_one_likes(tmp_path: Path):
    bench = _loaded(tmp_path)
    missing = AtollTable(bench.dataset, bench.store(ROWS_TABLE), "no such table")
    missing.close()
    with pytest.raises(atoll.errors.NotFoundError):
        missing.open()
    for _ in range(2):
        missing.close()


class _Session:
    """The parts of a Spark session that the bench uses."""

    def __init__(self, told: list[str]) -> None:
        self._told = told
        self.read = SimpleNamespace(parquet=self._parquet)

    def _parquet(self, path: str) -> SimpleNamespace:
        return SimpleNamespace(createOrReplaceTempView=lambda view: self._told.append(f"{view} is {Path(path).name}"))

    def sql(self, text: str) -> SimpleNamespace:
        self._told.append(text)
        return SimpleNamespace(toArrow=lambda: _ROW)

    def stop(self) -> None:
        self._told.append("stop")


@pytest.fixture
def told_to_spark(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    told: list[str] = []
    monkeypatch.setenv("PYSPARK_PYTHON", "")

    class Builder:
        def master(self, name: str) -> "Builder":
            return self

        appName = config = lambda self, *words: self

        def getOrCreate(self) -> _Session:
            told.append("start")
            return _Session(told)

    package, module = ModuleType("pyspark"), ModuleType("pyspark.sql")
    module.SparkSession = SimpleNamespace(builder=Builder())
    monkeypatch.setitem(sys.modules, "pyspark", package)
    monkeypatch.setitem(sys.modules, "pyspark.sql", module)
    return told


def test_spark_has_its_table_in_memory_where_everybody_is_warm_and_reads_parquet_beside_it(
    tmp_path: Path, told_to_spark: list[str]
):
    (tmp_path / "z.parquet").write_bytes(b"rows")
    dataset = SimpleNamespace(folder=tmp_path, z_ordered=tmp_path / "z.parquet")
    parquet, warm = (kind(dataset, tmp_path / "bench") for kind in (of_spark.SparkParquet, of_spark.SparkWarm))
    parquet.open()
    warm.open()
    cached = "CACHE LAZY TABLE particles_in_memory"
    assert told_to_spark == ["start", "particles is z.parquet", "particles_in_memory is rows.parquet", cached]
    # The same bytes under another name: otherwise Spark would answer both from memory.
    assert (tmp_path / "bench/spark-warm/rows.parquet").samefile(tmp_path / "z.parquet")
    for program, view in ((parquet, "particles"), (warm, "particles_in_memory")):
        program.ask(Question("all"))
        assert told_to_spark[-1].endswith(f"FROM {view}")
    told_to_spark.clear()
    parquet.close()
    assert told_to_spark == [], "the other one has it open"
    warm.close()
    warm.close()
    assert told_to_spark == ["UNCACHE TABLE IF EXISTS particles_in_memory", "stop"]
    warm.open()
    warm.close()
    assert told_to_spark.count("stop") == 2


def test_the_better_spark_counts_and_neither_alone():
    def figure(**times: float) -> float | None:
        bench, spelled = _bench(), {name.replace("_", " "): each for name, each in times.items()}
        timing._record(bench, {name: {"a": spelled} for name in _CLASSES})
        return bench.measured.figures.get("global over spark")

    assert figure(atoll=2.0, spark_parquet=30.0, spark_warm=10.0) == 5.0
    assert figure(atoll=2.0, spark_parquet=8.0, spark_warm=10.0) == 4.0
    assert figure(atoll=2.0, spark_parquet=8.0) is None
    assert figure(atoll=2.0, spark_warm=8.0) is None


class _Timed(_Program):
    """A program with one duration for the first question after each open, and another for all later ones."""

    def __init__(self, fails: str = "") -> None:
        super().__init__("atoll", fails)
        self.opened = 0

    def open(self) -> None:
        super().open()
        self.opened, self.is_fresh = self.opened + 1, True


def _sampled(monkeypatch: pytest.MonkeyPatch, program: _Timed, close: Callable[[], None]) -> Bench:
    """A sample of every program, with a Spark that takes 600 s."""
    bench = _bench()
    answer = bench.plan.truth["global 1.5 %"]

    def asked(atoll: _Timed, question: Question) -> tuple[float, Answer]:
        atoll.ask(question)
        seconds, atoll.is_fresh = 20.0 if atoll.is_fresh else 2.0, False
        return seconds, answer

    monkeypatch.setattr(sample, "AtollTable", lambda *given: program)
    monkeypatch.setattr(sample, "_asked", asked)
    rival = SimpleNamespace(ask=lambda question: (600.0, answer), close=close)
    monkeypatch.setattr(sample, "_Spark", lambda *given: rival)
    sample.run(bench, None, Path("python"), Path("jars"))
    return bench


def test_a_sample_on_cassandra_is_by_a_client_that_knows_nothing_yet(monkeypatch: pytest.MonkeyPatch):
    bench = _sampled(monkeypatch, program := _Timed(), lambda: None)
    assert bench.measured.figures == {"over spark": 30.0}
    assert bench.measured.peers["over spark"] == {
        "atoll": 20_000.0,
        "atoll, client that was asked before": 2_000.0,
        "spark": 600_000.0,
    }
    assert program.opened == program.closed == bench.rounds + 1


def test_a_spark_that_does_not_end_has_no_figures_and_hides_no_failure_of_atoll(monkeypatch: pytest.MonkeyPatch):
    def close() -> None:
        raise TimeoutError("after 60 s")

    bench = _sampled(monkeypatch, _Timed(), close)
    assert bench.measured.figures == {} and bench.measured.failed[0].startswith("sample: spark")
    monkeypatch.setattr(_Timed, "ask", lambda atoll, question: (_ for _ in ()).throw(OSError("atoll is gone")))
    with pytest.raises(OSError, match="atoll is gone"):
        _sampled(monkeypatch, _Timed(), close)
