"""Writing: rows into a packed table, the same rows as plain inserts, and the same blocks as blobs without an index.

What was written is kept for the questions; a later run that finds it there measures nothing anew.
"""

import json
import shutil
import time
from pathlib import Path

import pyarrow as pa

from ..bench import ROWS_TABLE, Bench, told
from ..data.rows import SCHEMA_WITH_PRIORITY
from .cluster import Cluster

RIVALS = "rivals"
"""The keyspace of plain rows and blobs."""

_WRITERS = 4
"""Writers of Atoll, each with one request after the other; its rivals have 64 in flight."""


def run(bench: Bench, cluster: Cluster, *, with_rivals: bool) -> None:
    """Whatever is not there yet; then the figures, from what each took."""
    took = {"atoll": load(bench, ROWS_TABLE)}
    if with_rivals:
        took["rows"] = rows(bench, cluster)
        took["blobs"] = _kept(bench, "plain-blobs", lambda: _blobs(bench, cluster))
    bench.measured.detail["writing"] = took
    _record(bench, took)


def _record(bench: Bench, took: dict[str, dict[str, float]]) -> None:
    count = bench.dataset.rows
    atoll = took["atoll"]
    rates = {
        "atoll packed": count / (atoll["appended, s"] + atoll["packed, s"]),
        "atoll appended": count / atoll["appended, s"],
    }
    for name in took.keys() - {"atoll"}:
        rates[name] = count / took[name]["seconds"]
    told("  " + ", ".join(f"{name} {rate:,.0f} rows/s" for name, rate in rates.items()))
    for name in ("rows", "blobs"):
        if name in rates:
            bench.measured.record(f"over {name}", rates["atoll packed"] / rates[name], rates)


def _kept(bench: Bench, name: str, make) -> dict[str, float]:  # noqa: ANN001
    """What it took, from a file if it was made before in this very cluster."""
    file = bench.folder / f"cassandra-{name}.json"
    if not file.exists():
        made = make()
        file.write_text(json.dumps(made))
    return json.loads(file.read_text())


def forget(bench: Bench) -> None:
    """When the cluster is new, nothing is there."""
    for file in bench.folder.glob("cassandra-*.json"):
        file.unlink()


def load(bench: Bench, table: str, sample_key: str | None = None) -> dict[str, float]:
    """A table of the kept store, appended and packed; what that took, now or before."""
    return _kept(bench, f"atoll-{table}", lambda: _load(bench, table, sample_key))


def _load(bench: Bench, table: str, sample_key: str | None) -> dict[str, float]:
    import atoll

    # The store's own tables are made before anything is timed; those of rivals are as well.
    atoll.open(bench.url).close()
    words = ["--store", bench.url, "--table", table]
    more = ["--sample-key", sample_key] if sample_key else []
    started = time.perf_counter()
    bench.run_counter("tables-load", *words, "--rows", bench.dataset.by_step, "--writers", _WRITERS, *more)
    appended = time.perf_counter()
    bench.run_counter("tables-pack", *words, "--out", bench.folder / f"pack-{table}.json")
    return {"appended, s": appended - started, "packed, s": time.perf_counter() - appended}


def rows(bench: Bench, cluster: Cluster) -> dict[str, float]:
    """The plain table, and what it took, now or before."""
    return _kept(bench, "plain-rows", lambda: _rival(bench, cluster, "cassandra-rows", _with_priority(bench)))


def _blobs(bench: Bench, cluster: Cluster) -> dict[str, float]:
    """The blocks of a table that was made in a folder, by the same program."""
    folder = bench.folder / "atoll-blocks"
    shutil.rmtree(folder, ignore_errors=True)
    bench.run_counter("tables-load", "--store", folder, "--table", ROWS_TABLE, "--rows", bench.dataset.by_step)
    try:
        return _rival(bench, cluster, "cassandra-blobs", folder)
    finally:
        shutil.rmtree(folder)


def _rival(bench: Bench, cluster: Cluster, verb: str, source: Path) -> dict[str, float]:
    out = bench.folder / "rival.json"
    words = ["--contacts", cluster.contacts, "--keyspace", RIVALS, "--from", source, "--out", out]
    bench.run_counter(verb, *words)
    return json.loads(out.read_text())


def _with_priority(bench: Bench) -> Path:
    """The rows by step, with the column that lets a rival draw the same sample."""
    place = bench.folder / "steps-with-priority.arrow"
    if place.exists():
        return place
    unfinished = place.with_suffix(".part")
    priorities, at = bench.truth.columns["prio"], 0
    with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, SCHEMA_WITH_PRIORITY) as writer:
        for batch in bench.dataset.batches():
            priority = pa.array(priorities[at : at + batch.num_rows])
            writer.write_batch(pa.record_batch([*batch.columns, priority], schema=SCHEMA_WITH_PRIORITY))
            at += batch.num_rows
    unfinished.rename(place)
    return place
