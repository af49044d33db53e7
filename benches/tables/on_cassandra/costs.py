"""Lightweight transactions per second, and the cost of each operation of the contract."""

import json
import shutil

from ..bench import Bench, told
from .cluster import Cluster

_SHOWN = {"get": "requests get", "put": "requests put", "create": "requests create"}


def run(bench: Bench, cluster: Cluster, keyspace: str) -> None:
    """Measures in a keyspace of its own, and in a folder, for comparison of the two."""
    url = cluster.url(keyspace)
    costs = _costs(bench, "cassandra", "--store", url, "--contacts", cluster.contacts)
    folder = bench.folder / "atoll-costs"
    shutil.rmtree(folder, ignore_errors=True)
    _costs(bench, "folder", "--store", folder)
    shutil.rmtree(folder)
    for each in costs["operations"]:
        if each["operation"] in _SHOWN:
            bench.measured.record(_SHOWN[each["operation"]], each["requests"])
    for name in ("one_writer", "one_cell", "all"):
        bench.measured.record(name.replace("_", " "), costs[name])


def _costs(bench: Bench, name: str, *words: object) -> dict:
    out = bench.folder / "costs.json"
    bench.run_counter("cassandra-costs", *words, "--out", out)
    costs = json.loads(out.read_text())
    bench.measured.detail[f"costs, {name}"] = costs
    told(f"  {name}:")
    for each in costs["operations"]:
        told(f"    {each['operation']}: {each['requests']:.2f} requests, {each['milliseconds']:.3f} ms")
    for transactions in ("one_writer", "one_cell", "all"):
        told(f"    transactions, {transactions.replace('_', ' ')}: {costs[transactions]:,.0f} a second")
    return costs
