"""Judges what a client reported: every check must hold, also while nodes change, and nothing may be lost.

Invariant: what is not reported is not assumed: a missing or mistyped field is a finding.
"""

from collections.abc import Iterable, Mapping

# A smaller load would prove nothing.
ACKNOWLEDGED_MIN = 200
# One that was under way, and the one after it, which begins when the nodes have changed.
ROUNDS_MIN = 2
# One node is killed: a client has few commands under way at that moment that it sends again to another.
SENT_TWICE_MAX = 5
# The ring recovers after a second or two; clients may need a little longer until they ask for the new leader.
GAP_MS_MAX = 15_000


def findings(told: Mapping[str, object], checks: Iterable[str], *, looks_up: bool = True) -> list[str]:
    """Everything that is wrong, in words."""
    checks = set(checks)
    found = unlike(told, "checks", checks)
    for field in ("client", "version"):
        if not isinstance(told.get(field), str) or not told[field]:
            found.append(f"no {field} is told")
    if number(told, "acknowledged") < ACKNOWLEDGED_MIN:
        found.append(f"{told.get('acknowledged')} writes were acknowledged; {ACKNOWLEDGED_MIN} is the least")
    if number(told, "checks_under_way") < ROUNDS_MIN:
        found.append(f"{told.get('checks_under_way')} rounds of checks while nodes changed; {ROUNDS_MIN} is the least")
    found += [f"after nodes changed, {each}" for each in unlike(told, "checks_at_end", checks)]
    if not 0 <= number(told, "sent_twice") <= SENT_TWICE_MAX:
        found.append(f"{told.get('sent_twice')} commands were carried out twice; {SENT_TWICE_MAX} is the most")
    for field in ("lost", "stale") if looks_up else ():
        if number(told, field) != 0:
            found.append(f"{told.get(field)} acknowledged writes were {field}")
    if not 0 <= number(told, "longest_gap_ms") <= GAP_MS_MAX:
        found.append(f"a writer waited {told.get('longest_gap_ms')} ms; {GAP_MS_MAX} is the most")
    return found


def unlike(told: Mapping[str, object], field: str, expected: set[str]) -> list[str]:
    listed = told.get(field)
    passed = set(listed) if isinstance(listed, list) else set()
    return [f"the check {name} was not made" for name in sorted(expected - passed)] + [
        f"the check {name} is unknown" for name in sorted(passed - expected)
    ]


def number(told: Mapping[str, object], field: str) -> int:
    """A reported count; -1, which is never right, if it was not reported."""
    value = told.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) else -1


def ended(passed: int, failed: int, skipped: int, *, is_asked_for: bool) -> int:
    """The exit code: every client that was requested by name or by --all must have been tried, and at least one in any
    case.
    """
    return 1 if failed or not passed or (skipped and is_asked_for) else 0
