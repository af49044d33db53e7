"""A sample of everything: Atoll beside Spark with its connector, which filters a plain table in the same cluster.

Spark runs in an environment of its own, because the connector is for an older Spark. It stays open between questions,
and its time ends when it has all columns in Python, as Atoll's does.

Spark keeps nothing of the rows between questions. So Atoll's client is opened anew for each question, before the clock
starts like Spark's session, and knows nothing either; the time of the same question asked once more is reported as
well.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import pyarrow as pa

from ..asked.question import Question
from ..asked.truth import Answer
from ..bench import ROWS_TABLE, Bench, told
from ..data.rows import COLUMNS
from ..peers.atoll_table import AtollTable
from ..peers.base import ATOLL, RivalFailed, of_rival
from ..report.measured import median
from .cluster import Cluster
from .writing import RIVALS

_ROUNDS_MAX = 3

_WARM = "atoll, client that was asked before"


def run(bench: Bench, cluster: Cluster, python: Path | None, jars: Path | None) -> None:
    """Asks the 1.5 % question of both in turn; the first turn does not count."""
    question = bench.plan.timed["global 1.5 %"][0]
    times: dict[str, list[float]] = {}
    atoll = AtollTable(bench.dataset, bench.store(ROWS_TABLE), ROWS_TABLE)
    spark = None
    try:
        if python and jars:
            with of_rival("spark"):
                spark = _Spark(bench, cluster, python, jars)
        for turn in range(min(bench.rounds, _ROUNDS_MAX) + 1):
            answers = _both(atoll, question)
            if spark is not None:
                with of_rival("spark"):
                    answers["spark"] = spark.ask(question)
            for name, (seconds, answer) in answers.items():
                if not answer.agrees(expected := bench.plan.truth[question.name]):
                    bench.measured.wrong.append(f"{name}, {question.name}: {answer} instead of {expected}")
                if turn:
                    times.setdefault(name, []).append(seconds * 1e3)
    finally:
        if spark is not None:
            try:
                with of_rival("spark"):
                    spark.close()
            except RivalFailed as failed:
                # Reported rather than raised: it must not hide a failure of Atoll's.
                bench.fail("sample", str(failed), ())
                times.pop("spark", None)
    medians = {name: median(each) for name, each in times.items()}
    told("  " + ", ".join(f"{name} {each:,.1f} ms" for name, each in medians.items()))
    bench.measured.detail["sample, ms"] = times
    if "spark" in medians:
        bench.measured.record("over spark", medians["spark"] / medians[ATOLL], medians)


def _both(atoll: AtollTable, question: Question) -> dict[str, tuple[float, Answer]]:
    """The answer of a client that knows nothing, and that of the same client right afterwards."""
    atoll.open()
    try:
        return {ATOLL: _asked(atoll, question), _WARM: _asked(atoll, question)}
    finally:
        atoll.close()


def _asked(atoll: AtollTable, question: Question) -> tuple[float, Answer]:
    started = time.perf_counter()
    table = atoll.ask(question)
    return time.perf_counter() - started, _answer(table)


def _answer(table: pa.Table) -> Answer:
    return Answer.of({name: table[name].to_numpy() for name in ("pid", "step", "vz")})


class _Spark:
    """A session of Spark in another process."""

    def __init__(self, bench: Bench, cluster: Cluster, python: Path, jars: Path) -> None:
        self._answer = bench.folder / "spark-answer.arrow"
        host, _, port = cluster.contacts.split(",")[0].partition(":")
        words = {"host": host, "port": port, "keyspace": RIVALS, "jars": jars, "scratch": bench.folder / "spark"}
        told("  starting Spark")
        self._process = subprocess.Popen(
            [str(python), str(Path(__file__).with_name("spark_session.py"))]
            + [word for name, value in words.items() for word in (f"--{name}", str(value))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
        self._said()

    def ask(self, question: Question) -> tuple[float, Answer]:
        asked = {"cut": question.cut, "columns": COLUMNS, "answer": str(self._answer)}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        seconds = self._said()["seconds"]
        with pa.memory_map(str(self._answer)) as source:
            return seconds, _answer(pa.ipc.open_file(source).read_all())

    def close(self) -> None:
        try:
            self._process.stdin.close()
            self._process.wait(timeout=60)
        finally:
            # Whatever went wrong, Spark must not run on beside the next measurement.
            self._process.kill()

    def _said(self) -> dict:
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Spark ended with {self._process.wait()}; what it said is above")
        return json.loads(line)
