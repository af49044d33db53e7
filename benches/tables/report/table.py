"""The table for people: one aligned line for each bar, with losses in red as plainly as wins in green."""

import os
import sys

from .bars import BARS, Bar, Row
from .measured import Measured

_RED, _GREEN, _DIM, _PLAIN = "\033[31m", "\033[32m", "\033[2m", "\033[0m"

_WRONG_SHOWN = 10
"""How many wrong answers are printed; the others are only counted."""


def shown(rows: list[Row], measured: Measured, *, colours: bool, bars: tuple[Bar, ...] = BARS) -> str:
    """The whole table, followed by what was wrong, left out or noteworthy."""
    width = max(len(row.bar) for row in rows)
    lines = [f"{'bar':<{width}} {'figure':>13} {'to resolve':>13} {'goal':>11}  holds"]
    for bar, row in zip(bars, rows, strict=True):
        lines.append(_line(bar, row, width, colours))
        if len(row.peers) > 1:
            lines.append(f"    {_by_program(row)}")
        if row.disturbed is not None:
            lines.append(f"    not judged: others used {row.disturbed:.0%} of the machine while it was measured")
        if row.earlier is not None:
            lines.append("    of an earlier run: commit {commit}, {rows:,} rows, {minutes:g} minutes".format(**row.earlier))
    lines.append("")
    lines += [_coloured(f"WRONG: {each}", _RED, colours) for each in measured.wrong[:_WRONG_SHOWN]]
    if (more := len(measured.wrong) - _WRONG_SHOWN) > 0:
        lines.append(_coloured(f"WRONG: {more} more answers", _RED, colours))
    lines += [_coloured(f"FAILED: {each}", _RED, colours) for each in measured.failed]
    lines += [f"LEFT OUT: {each}" for each in measured.left_out]
    lines += [f"Note: {each}" for each in measured.notes]
    lines.append(_summary(rows))
    return "\n".join(lines)


def wants_colours() -> bool:
    """Whether standard output is a terminal for which colours are not switched off."""
    return sys.stdout.isatty() and "NO_COLOR" not in os.environ


def _line(bar: Bar, row: Row, width: int, colours: bool) -> str:
    sign = ">=" if bar.more_is_better else "<="
    without = "never" if row.holds is False else "not measured"
    figure = without if row.figure is None else with_unit(row.figure, row.unit)
    target = "-" if row.target is None else f"{sign} {with_unit(row.target, row.unit)}"
    goal = "-" if row.goal is None else with_unit(row.goal, row.unit)
    verdict, colour = _verdict(bar, row)
    line = f"{row.bar:<{width}} {figure:>13} {target:>13} {goal:>11}  {verdict}"
    return _coloured(line, colour, colours)


def _verdict(bar: Bar, row: Row) -> tuple[str, str]:
    if row.holds is None:
        return "-", _DIM
    if not row.holds:
        return "NO", _RED
    reaches_goal = row.of_goal is not None and bar.meets(bar.goal, row.of_goal)
    return ("yes, goal too" if reaches_goal else "yes"), _GREEN


def _by_program(row: Row) -> str:
    """Each program's own figure, the smallest first."""
    return ", ".join(f"{name} {value:,.4g}" for name, value in sorted(row.peers.items(), key=lambda each: each[1]))


def with_unit(figure: float, unit: str) -> str:
    """A figure with its unit, formatted for people."""
    if unit == "x":
        return f"{figure:,.2f}x" if figure < 100 else f"{figure:,.0f}x"
    if unit == "rows/s":
        return f"{figure / 1e3:,.0f} K/s"
    return f"{figure:,.3g} {unit}".strip()


def _summary(rows: list[Row]) -> str:
    held = sum(row.holds is True for row in rows)
    missed = sum(row.holds is False for row in rows)
    unmeasured = sum(row.figure is None and row.holds is None for row in rows)
    disturbed = sum(row.disturbed is not None for row in rows)
    told = len(rows) - held - missed - unmeasured - disturbed
    not_judged = f" {disturbed} are not judged, as others kept the machine busy." if disturbed else ""
    only_told = f" {told} figures have no target." if told else ""
    return f"{held} bars hold, {missed} do not, {unmeasured} were not measured.{not_judged}{only_told}"


def _coloured(text: str, colour: str, colours: bool) -> str:
    return f"{colour}{text}{_PLAIN}" if colours else text
