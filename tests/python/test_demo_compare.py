"""The demo's comparison is fair: no engine's first answer includes the time of Python's imports."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow
import pytest
from conftest import particles

import atoll

COMPARE = Path(__file__).parents[2] / "xtask/src/demo/airway"
#: Writes the rows for DuckDB.
EXPORT = "import pathlib, sys, compare; compare.export(sys.argv[1], pathlib.Path(sys.argv[2]))"
#: Answers one question in a process of its own, and reports what was imported while the clock first ran.
WATCHED = """
import contextlib, io, json, sys, time
clock, seen = time.perf_counter, []
def watched():
    seen.append(set(sys.modules))
    return clock()
time.perf_counter = watched
import compare
seen.clear()
with contextlib.redirect_stdout(io.StringIO()):
    compare.answer(sys.argv[1], "sample", sys.argv[2])
print(json.dumps(sorted(seen[1] - seen[0])))
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same few rows for every engine."""
    folder = tmp_path_factory.mktemp("compare")
    made = particles(5_000, seed=1)
    random = particles(5_000, seed=2)
    rows = {"pid": made["pid"], "step": made["step"], "x": made["x"], "y": random["x"], "z": made["x"] - random["x"]}
    rows |= {name: made["pos"][:, axis] for axis, name in enumerate(("vx", "vy", "vz"))}
    columns = pyarrow.table(rows)
    schema = pyarrow.schema([field.with_nullable(False) for field in columns.schema])
    with atoll.open(folder / "store") as store:
        store.create_table("airway", schema, id=("pid", "step"), index=("x", "y", "z", "step")).append(rows)
    parquet = folder / "rows.parquet"
    subprocess.run([sys.executable, "-c", EXPORT, folder / "store", parquet], check=True, cwd=COMPARE)
    return {"atoll": folder / "store", "scan": folder / "store", "duckdb": parquet}


@pytest.mark.parametrize("engine", ["atoll", "scan", "duckdb"])
def test_nothing_is_imported_while_the_first_answer_is_timed(engine: str, places: dict[str, Path]):
    command = [sys.executable, "-c", WATCHED, engine, str(places[engine])]
    imported = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=COMPARE).stdout)
    # Python imports its own codecs when a file is first read as text.
    assert [name for name in imported if not name.startswith("encodings.")] == []
