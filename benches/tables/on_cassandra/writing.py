"""Writing: rows loaded into a packed table; the same rows appended step by step and packed then, as plain inserts, and as
the same blocks in blobs without an index.

What was written is kept for the questions; a later run of the very same programs, on a node with as much memory, measures
nothing anew. Any other run begins with an empty cluster: figures are never those of another build.

A node that was just started is slow for everybody, until its virtual machine has compiled what it does: ten times the same
work takes less each time. So before anything is timed, each program writes some steps that nobody asks for, and loads and
blobs take turns that count for nothing, but are told. Then they take turns again, and the medians of these are compared.
Plain rows come last: they leave the node much to compact.
"""

import json
import statistics
from pathlib import Path

import pyarrow as pa

from ..bench import ROWS_TABLE, Bench, told
from ..data.rows import SCHEMA_WITH_PRIORITY
from ..peers.base import of_rival
from .cluster import Cluster

RIVALS = "rivals"
"""The keyspace of plain rows and blobs."""

_WRITERS = 4
"""Writers of rows that come step by step, each with one step after the other; rivals have 64 requests in flight."""

_APPENDED = "appended"
"""The table of rows that come step by step."""

_ROUNDS = 7
"""Turns of loads and of blobs; what the first of them load is asked questions afterwards, the others are dropped."""
_WARMING_ROUNDS = 10
"""Turns before these that count for nothing."""
_AGAIN = "again"
"""The keyspace of what is loaded to be dropped."""

_MADE_BY = "cassandra-made-by.json"
"""Which programs made what is kept, on which node, and at which commit. Goes with everything that is forgotten."""

_WARMING = "warming"
"""The keyspace of what is written before anything is timed."""
_WARMING_STEPS = 8


def run(bench: Bench, cluster: Cluster, *, with_rivals: bool) -> None:
    """Whatever is not there yet; then the figures, from what each took."""
    warmed = _kept(bench, "warmed", lambda: _warm(bench, cluster, with_rivals=with_rivals))
    took = {"warming": warmed, "atoll": load(bench, ROWS_TABLE)}
    if with_rivals:
        took["blobs"] = _kept(bench, "plain-blobs", lambda: _blobs(bench, cluster))
        took["in turns"] = _kept(bench, "in-turns", lambda: _in_turns(bench, cluster, took["atoll"], took["blobs"]))
    took["atoll in two steps"] = _kept(
        bench, "atoll-appended", lambda: _append_into(bench, bench.url, bench.dataset.by_step, _APPENDED)
    )
    if with_rivals:
        took["rows"] = rows(bench, cluster)
    bench.measured.detail["writing"] = took
    _record(bench, took)


def _in_turns(
    bench: Bench, cluster: Cluster, loaded: dict[str, float], blobs: dict[str, float]
) -> dict[str, list[float]]:
    """Seconds of each turn, the first of them included."""
    _drop(bench, cluster, f"TABLE {RIVALS}.blobs")
    others = _turns(bench, cluster, _ROUNDS - 1)
    return {
        "loaded, s": [loaded["loaded, s"], *others["loaded, s"]],
        "blobs, s": [blobs["seconds"], *others["blobs, s"]],
    }


def _turns(bench: Bench, cluster: Cluster, rounds: int) -> dict[str, list[float]]:
    """Seconds of loads and blobs, of which nothing stays."""
    seconds: dict[str, list[float]] = {"loaded, s": [], "blobs, s": []}
    for _ in range(rounds):
        took = _load_into(bench, cluster.url(_AGAIN), bench.dataset.by_step, ROWS_TABLE)
        seconds["loaded, s"].append(took["loaded, s"])
        _drop(bench, cluster, f"KEYSPACE {_AGAIN}")
        seconds["blobs, s"].append(_blobs(bench, cluster)["seconds"])
        _drop(bench, cluster, f"TABLE {RIVALS}.blobs")
    return seconds


def _drop(bench: Bench, cluster: Cluster, what: str) -> None:
    """What is left would be flushed and compacted beside whoever comes next."""
    bench.run_counter("cassandra-run", "--contacts", cluster.contacts, "--statement", f"DROP {what}")


def _record(bench: Bench, took: dict[str, dict]) -> None:
    count = bench.dataset.rows
    apart = took["atoll in two steps"]
    turns = took.get("in turns", {"loaded, s": [took["atoll"]["loaded, s"]]})
    rates = {
        "atoll packed": count / statistics.median(turns["loaded, s"]),
        "atoll appended": count / apart["appended, s"],
        "atoll appended, then packed": count / (apart["appended, s"] + apart["packed, s"]),
    }
    if "blobs, s" in turns:
        rates["blobs"] = count / statistics.median(turns["blobs, s"])
    if "rows" in took:
        rates["rows"] = count / took["rows"]["seconds"]
    told("  " + ", ".join(f"{name} {rate:,.0f} rows/s" for name, rate in rates.items()))
    for name in ("rows", "blobs"):
        if name in rates:
            bench.measured.record(f"over {name}", rates["atoll packed"] / rates[name], rates)
            bench.measured.record(f"appended over {name}", rates["atoll appended"] / rates[name])
            in_two_steps = rates["atoll appended, then packed"] / rates[name]
            bench.measured.record(f"in two steps over {name}", in_two_steps)


def _kept(bench: Bench, name: str, make) -> dict:  # noqa: ANN001
    """What it took, from a file if it was made before in this very cluster."""
    file = bench.folder / f"cassandra-{name}.json"
    if not file.exists():
        made = make()
        file.write_text(json.dumps(made))
    return json.loads(file.read_text())


def is_ours(bench: Bench, made_by: dict[str, str]) -> bool:
    """Whether what is kept was made by these programs on such a node; the commit alone changes neither."""
    file = bench.folder / _MADE_BY
    if not file.exists():
        return False
    found = json.loads(file.read_text())
    return all(found.get(name) == made_by[name] for name in ("programs", "heap"))


def begin(bench: Bench, made_by: dict[str, str]) -> None:
    """The cluster is new: nothing is there, and what will be is made by these programs."""
    forget(bench)
    (bench.folder / _MADE_BY).write_text(json.dumps(made_by))


def made_by(bench: Bench) -> dict[str, str]:
    """By whom what is kept was made."""
    return json.loads((bench.folder / _MADE_BY).read_text())


def forget(bench: Bench) -> None:
    """When the cluster is new, nothing is there."""
    for file in bench.folder.glob("cassandra-*.json"):
        file.unlink()


def load(bench: Bench, table: str, sample_key: str | None = None) -> dict[str, float]:
    """A table of the kept store, loaded, and packed by that; what it took, now or before."""
    steps = bench.dataset.by_step
    return _kept(bench, f"atoll-{table}", lambda: _load_into(bench, bench.url, steps, table, sample_key))


def _load_into(bench: Bench, url: str, steps: Path, table: str, sample_key: str | None = None) -> dict[str, float]:
    """Rows that are all there already, packed as they come."""
    more = ["--sample-key", sample_key] if sample_key else []
    words = ["--store", _made(url), "--table", table, "--rows", steps, "--loaded", *more]
    return {"loaded, s": _seconds(bench, "tables-load", *words)}


def _append_into(bench: Bench, url: str, steps: Path, table: str) -> dict[str, float]:
    """Rows that come step by step, each kept and seen as it comes; packed when all are there."""
    words = ["--store", _made(url), "--table", table]
    appended = _seconds(bench, "tables-load", *words, "--rows", steps, "--writers", _WRITERS)
    return {"appended, s": appended, "packed, s": _seconds(bench, "tables-pack", *words)}


def _made(url: str) -> str:
    """The store's own tables are made before anything is timed; those of rivals are as well."""
    import atoll

    atoll.open(url).close()
    return url


def _seconds(bench: Bench, *words: object) -> float:
    """What a program says it took: as with rivals, from when it is connected."""
    out = bench.folder / "atoll.json"
    bench.run_counter(*words, "--out", out)
    return json.loads(out.read_text())["seconds"]


def _warm(bench: Bench, cluster: Cluster, *, with_rivals: bool) -> dict[str, object]:
    """The first steps, by every program; then the turns that count for nothing."""
    steps = bench.folder / "steps-to-warm.arrow"
    _first_steps(_with_priority(bench) if with_rivals else bench.dataset.by_step, steps)
    url = cluster.url(_WARMING)
    took: dict[str, object] = {}
    took |= _load_into(bench, url, steps, ROWS_TABLE) | _append_into(bench, url, steps, _APPENDED)
    if with_rivals:
        for rival in ("blobs", "rows"):
            took[f"{rival}, s"] = _rival(bench, cluster, f"cassandra-{rival}", steps, _WARMING)["seconds"]
        took["turns"] = _turns(bench, cluster, _WARMING_ROUNDS)
    steps.unlink()
    return took


def _first_steps(source: Path, place: Path) -> None:
    with pa.memory_map(str(source)) as mapped:
        reader = pa.ipc.open_file(mapped)
        with pa.OSFile(str(place), "wb") as sink, pa.ipc.new_file(sink, reader.schema) as writer:
            for number in range(min(_WARMING_STEPS, reader.num_record_batches)):
                writer.write_batch(reader.get_batch(number))


def rows(bench: Bench, cluster: Cluster) -> dict[str, float]:
    """The plain table, and what it took, now or before."""
    return _kept(bench, "plain-rows", lambda: _rival(bench, cluster, "cassandra-rows", _with_priority(bench)))


def _blobs(bench: Bench, cluster: Cluster) -> dict[str, float]:
    return _rival(bench, cluster, "cassandra-blobs", bench.dataset.by_step)


def _rival(
    bench: Bench, cluster: Cluster, verb: str, source: Path, keyspace: str = RIVALS
) -> dict[str, float]:
    out = bench.folder / "rival.json"
    words = ["--contacts", cluster.contacts, "--keyspace", keyspace, "--from", source, "--out", out]
    with of_rival(verb):
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
