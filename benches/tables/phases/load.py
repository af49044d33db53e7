"""Makes the tables anew, so that no figure comes from what an older Atoll wrote."""

import json
import shutil
import time

from ..bench import PATHS_TABLE, ROWS_TABLE, Bench, told


def run(bench: Bench) -> None:
    """Loads both tables, and packs them unless blocks are to be queried."""
    for table, key in ((ROWS_TABLE, None), (PATHS_TABLE, "pid")):
        shutil.rmtree(bench.store(table), ignore_errors=True)
        words = ["--sample-key", key] if key else []
        started = time.perf_counter()
        bench.run_counter(
            "tables-load", "--store", bench.store(table), "--table", table, "--rows", bench.dataset.by_step, *words
        )
        seconds = time.perf_counter() - started
        told(f"  table {table}: {bench.dataset.rows / seconds:,.0f} rows/s appended, one thread, not synced")
        bench.measured.detail[f"load {table}, rows/s"] = bench.dataset.rows / seconds
    if bench.is_packed:
        _pack(bench)
    else:
        bench.measured.notes.append("nothing was packed: counts and times are of blocks as they were appended")


def _pack(bench: Bench) -> None:
    """Packs everything into as few trees as possible; the slower of the two tables is the figure."""
    rates = []
    for table in (ROWS_TABLE, PATHS_TABLE):
        out = bench.folder / f"{table}-packed.json"
        bench.run_counter("tables-pack", "--store", bench.store(table), "--table", table, "--out", out)
        packed = json.loads(out.read_text())
        rates.append(bench.dataset.rows / packed["cpu_seconds"])
        bench.packed_bytes[table] = packed["bytes"]
        bench.measured.detail[f"packing of table {table}"] = packed
        told(f"  table {table}: packed {rates[-1]:,.0f} rows a second of CPU, {packed['bytes']:,} bytes")
    bench.measured.record("pack rate", min(rates))
