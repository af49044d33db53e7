"""What the bench of Cassandra computes by itself is right: which figures are bars, and whose figures they are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))

from tables.on_cassandra.bars import BARS
from tables.report import bars, table
from tables.report.measured import Measured


def test_a_figure_that_nothing_is_asked_of_neither_holds_nor_reaches_a_goal():
    measured = Measured()
    for key in ("one writer", "requests create", "kill operations"):
        measured.record(key, 5_000.0)
    rows = {row.bar: row for row in bars.rows(measured, BARS)}
    for text in ("lightweight transactions a second, one writer", "requests of a create"):
        row = rows[text]
        assert (row.figure, row.target, row.goal, row.holds) == (5_000.0, None, None, None)
    assert rows["three nodes, one killed under load: definite operations"].holds is True
    shown = table.shown([*rows.values()], measured, colours=False, bars=BARS)
    assert f"1 bars hold, 0 do not, {len(BARS) - 3} were not measured. 2 figures have no target." in shown
