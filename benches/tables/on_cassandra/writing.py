"""Writing: rows loaded into a packed table; the same rows appended step by step and packed afterwards, as plain
inserts, and as the same blocks in blobs without an index.

What was written is kept for the questions; a later run of exactly the same programs, on a node with the same memory,
does not measure it again. Any other run begins with an empty cluster: figures never come from another build.

A node that was just started is slow for every client until its virtual machine has compiled the code in use: repeated
ten times, the same work takes less time each time. So before anything is timed, each program writes some steps that no
question is about, and loads and blobs take turns that do not count but are reported. Then they take turns again, and
the medians of these turns are compared. Plain rows come last: they leave the node much to compact.
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
"""The number of writers of rows that come step by step, each writing one step at a time; rivals have 64 requests in
flight.
"""

_APPENDED = "appended"
"""The table of rows that come step by step."""

_ROUNDS = 7
"""Turns of loads and of blobs. The rows of the first load are kept for the questions, the others are dropped."""
_WARMING_ROUNDS = 10
"""Earlier turns that do not count."""
_AGAIN = "again"
"""The keyspace of loads that are dropped afterwards."""

_MADE_BY = "cassandra-made-by.json"
"""Records which programs made the kept data, on which node, and at which commit. Removed when the kept results are."""

_WARMING = "warming"
"""The keyspace of what is written before anything is timed."""
_WARMING_STEPS = 8


def run(bench: Bench, cluster: Cluster, *, with_rivals: bool) -> None:
    """Makes what is not there yet, then records the figures from the times taken."""
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
    """The seconds of each turn, including the first."""
    _drop(bench, cluster, f"TABLE {RIVALS}.blobs")
    others = _turns(bench, cluster, _ROUNDS - 1)
    return {
        "loaded, s": [loaded["loaded, s"], *others["loaded, s"]],
        "blobs, s": [blobs["seconds"], *others["blobs, s"]],
    }


def _turns(bench: Bench, cluster: Cluster, rounds: int) -> dict[str, list[float]]:
    """The seconds of loads and of blobs, which are dropped afterwards."""
    seconds: dict[str, list[float]] = {"loaded, s": [], "blobs, s": []}
    for _ in range(rounds):
        took = _load_into(bench, cluster.url(_AGAIN), bench.dataset.by_step, ROWS_TABLE)
        seconds["loaded, s"].append(took["loaded, s"])
        _drop(bench, cluster, f"KEYSPACE {_AGAIN}")
        seconds["blobs, s"].append(_blobs(bench, cluster)["seconds"])
        _drop(bench, cluster, f"TABLE {RIVALS}.blobs")
    return seconds


def _drop(bench: Bench, cluster: Cluster, what: str) -> None:
    """Drops what would otherwise be flushed and compacted during the next measurement."""
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
    """The result of `make`, from a file if it was made before in this very cluster."""
    file = bench.folder / f"cassandra-{name}.json"
    if not file.exists():
        made = make()
        file.write_text(json.dumps(made))
    return json.loads(file.read_text())


def is_ours(bench: Bench, made_by: dict[str, str]) -> bool:
    """Whether the kept data was made by these programs on such a node; the commit alone changes neither."""
    file = bench.folder / _MADE_BY
    if not file.exists():
        return False
    found = json.loads(file.read_text())
    return all(found.get(name) == made_by[name] for name in ("programs", "heap"))


def begin(bench: Bench, made_by: dict[str, str]) -> None:
    """Notes that the cluster is new, and that these programs fill it."""
    forget(bench)
    (bench.folder / _MADE_BY).write_text(json.dumps(made_by))


def made_by(bench: Bench) -> dict[str, str]:
    """The programs, the node and the commit that made the kept data."""
    return json.loads((bench.folder / _MADE_BY).read_text())


def forget(bench: Bench) -> None:
    """Forgets all kept results, because the cluster is new."""
    for file in bench.folder.glob("cassandra-*.json"):
        file.unlink()


def load(bench: Bench, table: str, sample_key: str | None = None) -> dict[str, float]:
    """Loads a table into the kept store, which packs it; the time it took, now or before."""
    steps = bench.dataset.by_step
    return _kept(bench, f"atoll-{table}", lambda: _load_into(bench, bench.url, steps, table, sample_key))


def _load_into(bench: Bench, url: str, steps: Path, table: str, sample_key: str | None = None) -> dict[str, float]:
    """Loads rows that are all available from the start, and packs them on the way."""
    more = ["--sample-key", sample_key] if sample_key else []
    words = ["--store", _made(url), "--table", table, "--rows", steps, "--loaded", *more]
    return {"loaded, s": _seconds(bench, "tables-load", *words)}


def _append_into(bench: Bench, url: str, steps: Path, table: str) -> dict[str, float]:
    """Appends rows step by step, each of them durable and visible as it comes; packs them once all are there."""
    words = ["--store", _made(url), "--table", table]
    appended = _seconds(bench, "tables-load", *words, "--rows", steps, "--writers", _WRITERS)
    return {"appended, s": appended, "packed, s": _seconds(bench, "tables-pack", *words)}


def _made(url: str) -> str:
    """Creates the store's own tables before anything is timed, as is done for rivals."""
    import atoll

    atoll.open(url).close()
    return url


def _seconds(bench: Bench, *words: object) -> float:
    """The seconds that the program itself reports; like those of rivals, they start when it is connected."""
    out = bench.folder / "atoll.json"
    bench.run_counter(*words, "--out", out)
    return json.loads(out.read_text())["seconds"]


def _warm(bench: Bench, cluster: Cluster, *, with_rivals: bool) -> dict[str, object]:
    """Writes the first steps with every program; then runs the turns that do not count."""
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
    """Writes the plain table; the time it took, now or before."""
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
