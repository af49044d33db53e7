"""Loading: whole steps that are passed one by one, and what happens to them if one cannot be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import _atoll
from ._convert import number, rows, whole
from .errors import InvalidInputError


def load(begin: Callable[[int], _atoll.Loader], check: Callable[[int], None], steps: Iterable[Any]) -> int | None:
    """Load all steps and return the last version, or none if there are no steps.

    On an error, load the steps before it, then raise it. ``begin`` receives the first step; ``check`` receives each
    step, and may refuse it.
    """
    loader = None
    try:
        for each in steps:
            step, time, data = _whole_step(each)
            loader = loader or begin(step)
            check(step)
            loader.push(step, time, rows(data))
    except BaseException as error:
        # The earlier steps are waiting for their tree to fill up. They may have taken hours to read.
        try:
            if loader is not None:
                loader.finish()
        except Exception as besides:
            error.add_note(f"in addition, not all earlier steps are loaded: {besides}")
        raise
    return None if loader is None else loader.finish()


def _whole_step(each: Any) -> tuple[int, float | None, Any]:
    match each:
        case (step, data):
            time = None
        case (step, time, data):
            pass
        case _:
            raise InvalidInputError.hinted("this is not a step to load", "give (step, rows) or (step, time, rows)")
    return whole(step, "step"), None if time is None else number(time, "time"), data
