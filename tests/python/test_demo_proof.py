"""The proof at the end of the flights demo can fail: it finds missing and wrong rows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

VERIFY = Path(__file__).parents[2] / "xtask/src/demo/flights/verify.py"
ROWS = [{"carrier": "AA", "hour": str(hour), "flight": "1"} for hour in range(10)]


def verify(table: Path, rows: int, cells: list[dict]) -> subprocess.CompletedProcess:
    """Run the proof on an export of these rows."""
    lines = [
        json.dumps({"partition": row["carrier"], "sort": f"{row['hour']}/{row['flight']}", "value": json.dumps(row)})
        for row in cells
    ]
    command = [sys.executable, str(VERIFY), str(table), str(rows), "carrier", "hour,flight"]
    return subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Format the rows as a CSV file."""
    path = tmp_path / "flights.csv"
    lines = ["carrier,hour,flight", *(",".join(row.values()) for row in ROWS)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_rows_that_are_there_prove_it(table):
    assert verify(table, 10, ROWS).returncode == 0
    assert verify(table, 5, ROWS[:7]).returncode == 0, "rows that were not yet acknowledged may be there"


def test_a_row_that_is_missing_is_found(table):
    ended = verify(table, 10, ROWS[:9])
    assert ended.returncode == 1
    assert "1 missing" in ended.stdout


def test_a_row_that_is_wrong_is_found(table):
    ended = verify(table, 10, [*ROWS[:9], {**ROWS[9], "flight": "1", "extra": "x"}])
    assert ended.returncode == 1
    assert "1 wrong" in ended.stdout


def test_a_row_that_is_doubled_is_found(table):
    ended = verify(table, 10, [*ROWS, ROWS[3]])
    assert ended.returncode == 1
    assert "1 wrong" in ended.stdout


def test_a_file_without_rows_proves_nothing(table):
    assert verify(table, 11, ROWS).returncode == 1
