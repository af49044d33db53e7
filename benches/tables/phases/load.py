"""Making the tables anew, so that no figure is about what an older Atoll wrote."""

import shutil
import time

from ..bench import PATHS_TABLE, ROWS_TABLE, Bench, told


def run(bench: Bench) -> None:
    """Loads both tables, and packs them where this Atoll can."""
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
    _pack(bench)


def _pack(bench: Bench) -> None:
    """Packs with the package's own `pack`; leaves the bar unmeasured where there is none."""
    try:
        import atoll
    except ImportError:
        bench.leave_out("packing", "the Python package atoll is not installed")
        return
    rates = []
    for table in (ROWS_TABLE, PATHS_TABLE):
        with atoll.open(bench.store(table)) as store:
            opened = store.table(table)
            if not hasattr(opened, "pack"):
                bench.measured.notes.append("nothing was packed: counts and times are of blocks as they were appended")
                return
            started = time.process_time()
            opened.pack()
            rates.append(bench.dataset.rows / (time.process_time() - started))
            told(f"  table {table}: packed {rates[-1]:,.0f} rows a second of CPU")
    bench.is_packed = True
    bench.measured.record("pack rate", min(rates))
