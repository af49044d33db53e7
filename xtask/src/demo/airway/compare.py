"""Ask the same of Atoll, of a full scan, and of DuckDB on Parquet; then judge ten estimates by the truth.

    python compare.py STORE OUT.json [FOLDER]

Every first answer is by a new process that finds none of the file in memory; opening is part of it, imports of Python
are not ("cold").
"Warm" is the median of the answers after it. A store that is no folder itself has FOLDER to keep its files in: the nodes
of a ring keep what they have in memory, so there the first answer of a process is not one from the disk.

DuckDB gets the rows as a simulation leaves them, in the order of time, compressed, and beside them a column of
random numbers to sample by: the very order that Atoll keeps, so that both must give the same answers.
"""

import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy
from estimates import estimates

import atoll

#: The outer right branch of the tree and its two ends, at all times.
REGION = {"x": (9.0, 26.0), "z": (-23.0, -10.0)}
SHARE = 0.01
FIRST = 1000
#: How often a question is asked again once everything is warm.
AGAIN = 5
#: Half of the interval of a mean, of the mean.
WITHIN = 0.01
QUESTIONS = {
    "sample": "1 % of everything",
    "first": f"the first {FIRST:,} of a region",
    "region": "all of a region",
    "mean": "mean of vz within 1 %, 95 % sure",
}
ENGINES = {"atoll": "Atoll", "scan": "full scan", "duckdb": "DuckDB, Parquet"}
#: What an engine's answers import. That is done before the clock starts, on every side.
MODULES = {"atoll": ("atoll",), "scan": ("atoll",), "duckdb": ("duckdb", "pyarrow.parquet")}
COLUMNS = ("pid", "step", "x", "y", "z", "vx", "vy", "vz")


class Answered(NamedTuple):
    """One answer: how many rows came out, how many were read, in how many bytes, and what they add up to."""

    rows: int
    rows_read: int
    bytes_read: int | None
    sum: float
    #: Between which numbers the sum, or the mean, lies; nothing if it is exact.
    interval: tuple[float, float] | None = None


def main() -> None:
    """Compares, or answers one question as a process of its own."""
    if sys.argv[1] == "answer":
        answer(*sys.argv[2:])
        return
    store, out = sys.argv[1], Path(sys.argv[2])
    folder, parquet = Path((sys.argv[3:] or [store])[0]), out.with_suffix(".parquet")
    total = export(store, parquet)
    print(f"  {total:,} rows. The store takes {megabytes(size(folder))}, Parquet {megabytes(size(parquet))}.")
    names = ENGINES | names_on_ring(store)
    print()
    results = {
        "rows": total,
        "answers": compare(store, folder, parquet, names),
        "estimates": estimates(store, SHARE),
    }
    out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    if not all(result["same"] for result in results["answers"]):
        sys.exit("the engines do not agree")


def names_on_ring(store: str) -> dict[str, str]:
    """What a ring is called in the table, and what has to be known to read that; nothing for a folder."""
    if not store.startswith("ring:"):
        return {}
    nodes = store.count(",") + 1
    print(f"  The store is a ring of {nodes} nodes, each a process with its files, and all copies are counted. Rows come over")
    print("  sockets, and the nodes' memory is not emptied before a cold answer. DuckDB reads a file beside it.")
    return {"atoll": f"Atoll, ring of {nodes} nodes", "scan": "full scan of the ring"}


def export(store: str, parquet: Path) -> int:
    """Writes all rows for DuckDB; how many there are."""
    import pyarrow
    from pyarrow import parquet as files

    with atoll.open(store, create=False) as opened:
        rows = opened.table("airway").arrow()
    # Rows come in the order of their weights, so their place in it is a random number from 0 to 1.
    rows = rows.append_column("weight", pyarrow.array(numpy.arange(len(rows)) / len(rows)))
    files.write_table(rows.sort_by("step"), parquet, compression="zstd", row_group_size=122_880)
    return len(rows)


def compare(store: str, folder: Path, parquet: Path, names: dict[str, str]) -> list[dict[str, Any]]:
    """Asks every question of every engine, and prints what it took."""
    print(f"  {'':34} {'rows out':>10} {'rows read':>12} {'read':>10} {'cold':>11} {'warm':>11}")
    results = []
    for question, title in QUESTIONS.items():
        print(f"  {title}")
        truth = None
        for engine, name in names.items():
            forget(parquet if engine == "duckdb" else folder)
            result = asked(engine, question, str(parquet) if engine == "duckdb" else store)
            truth = result if engine == "scan" else truth
            results.append({"question": question, "engine": engine, **result})
            print(
                f"    {name:32} {result['rows']:10,} {result['rows_read']:12,} {megabytes(result['bytes_read']):>10}"
                f" {result['cold_ms']:8.1f} ms {result['warm_ms']:8.1f} ms",
                flush=True,
            )
        for result in results[-len(ENGINES) :]:
            result["same"] = is_same(question, result, truth)
            if result["interval"] is not None:
                print(f"    {judged(result, truth)}")
    print()
    return results


def judged(result: dict[str, Any], truth: dict[str, Any]) -> str:
    """An estimate beside the truth, for people."""
    low, high = result["interval"]
    result["inside"] = low <= truth["sum"] <= high
    where = "inside" if result["inside"] else "OUTSIDE"
    half = max(high - result["sum"], result["sum"] - low)
    return f"  Atoll's answer is {result['sum']:.4f} ± {half:.4f}; the truth is {truth['sum']:.4f}: {where}"


def is_same(question: str, result: dict[str, Any], truth: dict[str, Any]) -> bool:
    """Whether an engine's answer is the one of the full scan."""
    apart = abs(result["sum"] - truth["sum"]) / abs(truth["sum"])
    if question == "mean":
        # An interval of 95 % misses one time in twenty, by a little: only a gross difference is an error.
        return apart < 3 * WITHIN
    if question == "sample":
        # Each row is in it with a chance of its own: their number varies like that of heads.
        return abs(result["rows"] - truth["rows"]) < 6 * math.sqrt(truth["rows"])
    return result["rows"] == truth["rows"] and apart < 1e-6


def asked(engine: str, question: str, place: str) -> dict[str, Any]:
    """The answer of a new process."""
    command = [sys.executable, __file__, "answer", engine, question, place]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def forget(place: Path) -> None:
    """Drops what the operating system has in memory of files, where it can be asked to."""
    if not hasattr(os, "posix_fadvise"):
        return
    for path in [place] if place.is_file() else [path for path in place.rglob("*") if path.is_file()]:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def answer(engine: str, question: str, place: str) -> None:
    """One question to one engine, first cold and then warm, as a line of JSON."""
    opened = {"atoll": open_atoll, "scan": open_scan, "duckdb": open_duckdb}[engine]
    for name in MODULES[engine]:
        importlib.import_module(name)
    ask: Callable[[str], Answered] | None = None
    taken, answered = [], None
    for _ in range(1 + AGAIN):
        started = time.perf_counter()
        ask = opened(place) if ask is None else ask
        given = ask(question)
        taken.append(1000 * (time.perf_counter() - started))
        answered = given if answered is None else answered
    print(json.dumps(answered._asdict() | {"cold_ms": taken[0], "warm_ms": statistics.median(taken[1:])}))


def open_atoll(place: str) -> Callable[[str], Answered]:
    """Atoll, asked for what is wanted."""
    table = atoll.open(place, create=False).table("airway")

    def told(query: atoll.Query) -> Answered:
        given = query.select(*COLUMNS).read()
        return Answered(len(given), given.work.rows_touched, given.work.bytes, total(given.numpy()))

    def ask(question: str) -> Answered:
        if question == "sample":
            return told(table.sample(SHARE))
        if question == "first":
            return told(table.box(**REGION).first(FIRST))
        if question == "region":
            return told(table.box(**REGION))
        return mean_within(table, "vz")

    return ask


def mean_within(table: atoll.Table, column: str) -> Answered:
    """Reads as much as the interval takes."""
    estimate = table.within(relative=WITHIN).mean(column)
    work = estimate.work
    interval = (estimate.low, estimate.high)
    return Answered(estimate.rows_read, work.rows_touched, work.bytes, estimate.value, interval)


def open_scan(place: str) -> Callable[[str], Answered]:
    """Everything is read, and NumPy picks; what one does where a store cannot sample."""
    table = atoll.open(place, create=False).table("airway")

    def ask(question: str) -> Answered:
        given = table.select(*(("vz",) if question == "mean" else COLUMNS)).read()
        rows = given.numpy()
        work = len(given), given.work.bytes
        if question == "mean":
            return Answered(len(given), *work, float(rows["vz"].mean(dtype=float)))
        if question == "sample":
            wanted = slice(round(SHARE * len(given)))
        else:
            sides = [(rows[name] >= low) & (rows[name] < high) for name, (low, high) in REGION.items()]
            wanted = numpy.logical_and.reduce(sides)
        picked = {name: values[wanted] for name, values in rows.items()}
        if question == "first":
            picked = {name: values[:FIRST] for name, values in picked.items()}
        return Answered(len(picked["pid"]), *work, total(picked))

    return ask


def open_duckdb(place: str) -> Callable[[str], Answered]:
    """DuckDB on the file."""
    import duckdb
    from pyarrow import parquet

    database = duckdb.connect()
    source, columns = f"read_parquet('{place}')", ", ".join(COLUMNS)
    region = " and ".join(f"{name} >= {low} and {name} < {high}" for name, (low, high) in REGION.items())
    rows = parquet.read_metadata(place).num_rows
    texts = {
        "sample": f"select {columns} from {source} where weight < {SHARE}",
        "first": f"select {columns} from {source} where {region} order by weight limit {FIRST}",
        "region": f"select {columns} from {source} where {region}",
        "mean": f"select avg(vz) as mean, count(*) as rows from {source}",
    }

    def ask(question: str) -> Answered:
        before = bytes_read()
        given = database.sql(texts[question]).fetchnumpy()
        after = bytes_read()
        got = None if before is None or after is None else after - before
        if question == "mean":
            return Answered(int(given["rows"][0]), rows, got, float(given["mean"][0]))
        return Answered(len(given["pid"]), rows, got, total(given))

    return ask


def bytes_read() -> int | None:
    """What this process has asked the operating system for; unknown where it does not say."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return int(dict(line.split(": ") for line in lines)["rchar"])


def total(rows: dict[str, numpy.ndarray]) -> float:
    """A sum over all values, to see that two engines answer the same."""
    return float(sum(values.sum(dtype=float) for values in rows.values()))


def size(place: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return place.stat().st_size if place.is_file() else sum(p.stat().st_size for p in place.rglob("*") if p.is_file())


def megabytes(count: int | None) -> str:
    """For people."""
    return "?" if count is None else f"{count / 1e6:.1f} MB"


if __name__ == "__main__":
    main()
