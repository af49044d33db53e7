"""Lightweight transactions a second, and what each operation of the contract costs."""

import json

from ..bench import Bench, told
from .cluster import Cluster

_SHOWN = {"get": "requests get", "put": "requests put", "create": "requests create"}


def run(bench: Bench, cluster: Cluster, keyspace: str) -> None:
    """On a keyspace of their own."""
    out = bench.folder / "cassandra-costs.json"
    url = cluster.url(keyspace)
    bench.run_counter("cassandra-costs", "--store", url, "--contacts", cluster.contacts, "--out", out)
    costs = json.loads(out.read_text())
    bench.measured.detail["costs"] = costs
    for each in costs["operations"]:
        told(f"  {each['operation']}: {each['requests']:.2f} requests, {each['milliseconds']:.2f} ms")
        if each["operation"] in _SHOWN:
            bench.measured.record(_SHOWN[each["operation"]], each["requests"])
    for name in ("one_writer", "one_cell", "all"):
        told(f"  transactions, {name.replace('_', ' ')}: {costs[name]:,.0f} a second")
        bench.measured.record(name.replace("_", " "), costs[name])
