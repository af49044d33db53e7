"""Checks what was written, after the clock has stopped: a step that is missing or wrong would have cost little to
write.
"""

from collections.abc import Callable, Mapping

import numpy as np

from .truth import Answer

_LOOKED_UP = 50
"""The number of steps whose rows are compared, spread over all steps; for the others, only the rows are counted."""


def wrong(table, frame_of: Callable[[int], Mapping[str, np.ndarray]], steps: int, rows: int) -> list[str]:  # noqa: ANN001
    """What differs from what was written; `frame_of` returns the rows of a step as they were handed over."""
    found = [] if (count := table.count()) == rows else [f"{count} rows instead of {rows}"]
    for number in sorted({round(each) for each in np.linspace(0, max(steps - 1, 0), min(steps, _LOOKED_UP))}):
        frame = frame_of(number)
        expected, step = Answer.of(frame), int(frame["step"][0])
        read = table.query().where(f"step >= {step} and step < {step + 1}").unordered().arrow()
        answer = Answer.of({name: read[name].to_numpy() for name in ("pid", "step", "vz")})
        if not answer.agrees(expected):
            found.append(f"step {step}: {answer} instead of {expected}")
    return found
