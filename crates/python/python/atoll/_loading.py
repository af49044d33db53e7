"""Loading: whole steps that are handed over one by one, and what becomes of them where one cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from . import _atoll
from ._convert import number, rows, whole
from .errors import InvalidInputError


def load(begin: Callable[[int], _atoll.Loader], check: Callable[[int], None], steps: Iterable[Any]) -> int | None:
    """Loads all of them, or those before an error, which is raised then; none if there are none. ``begin`` is told the first,
    and ``check`` each, which it may refuse."""
    loader = None
    try:
        for each in steps:
            step, time, data = _whole_step(each)
            loader = loader or begin(step)
            check(step)
            loader.push(step, time, rows(data))
    except BaseException as error:
        # What came before waits for a tree to be full. It may have taken hours to read.
        try:
            if loader is not None:
                loader.finish()
        except Exception as besides:
            error.add_note(f"besides, not all that came before is loaded: {besides}")
        raise
    return None if loader is None else loader.finish()


def _whole_step(each: Any) -> tuple[int, float | None, Any]:
    match each:
        case (step, data):
            time = None
        case (step, time, data):
            pass
        case _:
            raise InvalidInputError.hinted("this is no step to load", "give (step, rows) or (step, time, rows)")
    return whole(step, "step"), None if time is None else number(time, "time"), data
