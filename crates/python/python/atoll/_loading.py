"""Loading: whole steps that are passed one by one, and what happens to them if one cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import _atoll
from ._convert import number, rows, whole
from ._told import Loaded
from .errors import InvalidInputError


def load(
    begin: Callable[[int], _atoll.Loader],
    check: Callable[[int], None],
    steps: Iterable[Any],
    progress: Callable[[Loaded], object] | None,
) -> int | None:
    """Load all steps and return the last version, or none if there are no steps.

    On an error, also one of ``progress``, load the steps before it, then raise it. ``begin`` receives the first step;
    ``check`` receives each step, and may refuse it.
    """
    loader, told = None, Loaded(0, 0, 0, None)
    try:
        for each in steps:
            step, time, data = _whole_step(each)
            loader = loader or begin(step)
            check(step)
            held = rows(data)
            last = loader.push(step, time, held)
            told = Loaded(told.steps + 1, told.rows + len(held), step, last)
            if progress is not None:
                progress(told)
    except BaseException as error:
        # The earlier steps are waiting for their tree to fill up. They may have taken hours to read.
        try:
            if loader is not None:
                loader.finish()
        except Exception as besides:
            error.add_note(f"in addition, not all earlier steps are loaded: {besides}")
        raise
    if loader is None:
        return None
    version = loader.finish()
    if progress is not None:
        progress(told._replace(last=told.step))
    return version


def _whole_step(each: Any) -> tuple[int, float | None, Any]:
    match each:
        case (step, data):
            time = None
        case (step, time, data):
            pass
        case _:
            raise InvalidInputError.hinted("this is not a step to load", "give (step, rows) or (step, time, rows)")
    return whole(step, "step"), None if time is None else number(time, "time"), data
