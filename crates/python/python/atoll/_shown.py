"""What notebooks show of queries and estimates: HTML, in which every text of a user is escaped.

Invariant: nothing here reads from a store, so that showing a query costs nothing and cannot fail.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ._of_runs import run_told

if TYPE_CHECKING:
    from ._estimate import Estimate, Groups
    from ._query import Query, Split

#: The most groups that are shown.
_GROUPS_SHOWN = 100


def query_html(query: Query) -> str:
    """Format what a query asks for; it is not asked."""
    rows = [("table", query.table.name), *(("where", condition) for condition in query.conditions)]
    if query.runs is not None:
        rows.append(("of runs", ", ".join(map(run_told, query.runs)) or "none"))
    if (query.after, query.until) != (0.0, 1.0):
        window = f"{query.after:g} to {query.until:g}"
        rows.append(("sample", f"{query.until:g} of the units") if query.after == 0.0 else ("window", window))
    rows += [("at most", f"{most:,} {kind}") for kind, most in _limits(query) if most is not None]
    if query.columns is not None:
        rows.append(("columns", ", ".join(query.columns)))
    if query.version is not None:
        rows.append(("as of version", str(query.version)))
    if query.arriving:
        rows.append(("and", "steps that not all ranks have written yet"))
    if not query.ordered:
        rows.append(("order", "none"))
    return f"<p>Query, not read yet</p>{_table((), rows)}<p><code>.explain()</code> tells what an answer would read</p>"


def split_html(split: Split) -> str:
    """Format one reader's share of a query."""
    place = f"on {split.host}" if split.host else "here"
    told = f"Split {place}, about {split.about_rows:,} rows before conditions"
    return f"<p>{html.escape(told)}</p>{query_html(split)}"


def _limits(query: Query) -> tuple[tuple[str, int | None], ...]:
    return ("units", query.units), ("rows", query.rows)


def estimate_html(estimate: Estimate) -> str:
    """Format an estimate, with its interval and the doubts about it."""
    return _table(("value", *_HEAD), [(_value(estimate), *_cells(estimate))])


def groups_html(groups: Groups) -> str:
    """Format the means of groups, and which groups were not seen."""
    shown = list(groups.items())[:_GROUPS_SHOWN]
    rows: list[Sequence[str]] = [(str(group), _value(mean), *_cells(mean)) for group, mean in shown]
    unseen = groups.not_seen[: _GROUPS_SHOWN - len(rows)]
    rows += [(str(group), "not seen", *("" for _ in _HEAD)) for group in unseen]
    left = len(groups) + len(groups.not_seen) - len(rows)
    more = f"<p>and {left:,} more groups</p>" if left else ""
    return _table((groups.by, f"mean of {groups.column}", *_HEAD), rows) + more


#: The columns beside the value of an estimate.
_HEAD = ("interval", "units", "rows", "doubts")


def numbers_shown(estimate: Estimate) -> tuple[str, str, str]:
    """Format the value of an estimate and the ends of its interval.

    An exact value has all of its digits. Others have six, or as many more as their interval is narrow: half its width
    begins at the last digit but one, or before.
    """
    value, half = float(estimate.value), estimate.half_width
    if estimate.is_exact:
        # A whole number has no point, as long as a float has all of its digits.
        exact = str(int(value)) if value.is_integer() and abs(value) <= 2**53 else repr(value)
        return exact, exact, exact
    digits = 6
    if value != 0 and math.isfinite(value) and 0 < half < math.inf:
        larger = math.floor(math.log10(abs(value))) - math.floor(math.log10(half))
        digits = max(6, min(17, larger + 2))
    low, high = (f"{end:.{digits}g}" for end in (estimate.low, estimate.high))
    return f"{value:.{digits}g}", low, high


def _value(estimate: Estimate) -> str:
    return f"{numbers_shown(estimate)[0]}{_unit(estimate)}"


def _unit(estimate: Estimate) -> str:
    return f" {estimate.value_unit}" if estimate.value_unit else ""


def percent(share: float) -> str:
    """Format a share in percent with all digits that were given: only what is certain is 100 %."""
    return f"{100 * share:.12g}"


def _cells(estimate: Estimate) -> tuple[str, ...]:
    _, low, high = numbers_shown(estimate)
    ends = f"{low} to {high}{_unit(estimate)} ({percent(estimate.confidence)} %)"
    missing = f", {estimate.missing:,} without a value" if estimate.missing else ""
    interval = "exact" if estimate.is_exact else ends
    return interval, f"{estimate.units:,}", f"{estimate.rows:,}{missing}", "; ".join(estimate.doubts)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table, every cell of it escaped."""
    named = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>{f'<thead><tr>{named}</tr></thead>' if head else ''}<tbody>{body}</tbody></table>"
