"""Prometheus' own parser reads the metrics of a node, and the metrics count what was done."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families


@pytest.fixture
def node(tmp_path: Path) -> Iterator[dict[str, str]]:
    """A node, and the address of its metrics."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ATOLL_")}
    command = [os.environ["PROGRAM_UNDER_TEST"], "--json", "ring", "serve", "--until-input-ends"]
    command += ["--store", str(tmp_path / "node"), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
    running = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert running.stdout
    assert running.stdin
    yield json.loads(running.stdout.readline())
    running.stdin.close()
    assert running.wait(20) == 0


def scrape(node: dict[str, str]) -> dict[str, Metric]:
    """Return the node's metrics by name."""
    with urllib.request.urlopen(f"http://{node['metrics']}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        told = answer.read().decode()
    families = list(text_string_to_metric_families(told))
    assert len({family.name for family in families}) == len(families), "each is told once"
    return {family.name: family for family in families}


def value(metric: Metric, **labels: str) -> float:
    """Return the sum over all samples with these labels."""
    return sum(sample.value for sample in metric.samples if labels.items() <= sample.labels.items())


def test_every_metric_has_a_type_a_help_and_a_name_as_prometheus_wants_it(node: dict[str, str]) -> None:
    for name, metric in scrape(node).items():
        assert name.startswith("atoll_ring_")
        assert metric.type in ("counter", "gauge")
        assert metric.documentation.endswith(".")
        # The parser strips `_total` from the names of counters; all counters have it, and nothing else may.
        assert all(sample.name.endswith("_total") == (metric.type == "counter") for sample in metric.samples)
        assert not name.endswith(("_ms", "_us", "_kb", "_mb"))


def test_what_was_done_is_what_is_counted(node: dict[str, str]) -> None:
    before = scrape(node)
    client = redis.Redis(*node["listening"].split(":"))
    for number in range(7):
        client.set(f"key-{number}", "value")
    with pytest.raises(redis.ResponseError):
        client.execute_command("HGET", "key-1", "field")
    after = scrape(node)
    assert value(after["atoll_ring_calls"], command="set", result="done") == 7
    assert value(after["atoll_ring_calls"], command="hget", result="error") == 1
    kinds = "atoll_ring_error_replies"
    assert value(after[kinds], kind="WRONGTYPE") - value(before[kinds], kind="WRONGTYPE") == 1
    assert value(after["atoll_ring_connections"]) == 1
    assert value(after["atoll_ring_slots_led"]) == value(after["atoll_ring_slots"]) == 16_384
    assert value(after["atoll_ring_node_up"], node="1") == 1
    assert value(after["atoll_ring_uptime_seconds"]) > value(before["atoll_ring_uptime_seconds"])


def test_nothing_else_is_answered(node: dict[str, str]) -> None:
    for path in ("/", "/metrics/", "/../etc/passwd"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{node['metrics']}{path}", timeout=10)
        assert refused.value.code == 404
