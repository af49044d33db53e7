"""The exceptions of Atoll: one class for each kind of error, with the same kinds as every other interface.

Each is an :class:`AtollError` with ``kind`` (a stable code such as ``"not-found"``), ``hint`` (what to do about it, or
``None``) and ``retry_can_help`` (whether the same call may succeed later).
"""

from __future__ import annotations

from typing import Self

__all__ = [
    "AtollError",
    "ConflictError",
    "CorruptError",
    "InternalError",
    "InvalidInputError",
    "LimitError",
    "NewerFormatError",
    "NotFoundError",
    "OutOfSpaceError",
    "ReadOnlyError",
    "TimedOutError",
    "UnauthenticatedError",
    "UnavailableError",
    "UnsupportedError",
]


class AtollError(Exception):
    """The base class of all Atoll exceptions."""

    kind: str = "internal"
    retry_can_help: bool = False
    hint: str | None = None

    @classmethod
    def hinted(cls, problem: str, hint: str) -> Self:
        """Return an exception with a hint, which a traceback shows as a note."""
        error = cls(problem)
        error.hint = hint
        error.add_note(f"hint: {hint}")
        return error


class NotFoundError(AtollError, LookupError):
    """The thing named does not exist."""

    kind = "not-found"


class ConflictError(AtollError):
    """A condition did not hold, or the state moved on while the call was under way."""

    kind = "conflict"
    retry_can_help = True


class InvalidInputError(AtollError, ValueError):
    """The request itself is wrong; the same request can never succeed."""

    kind = "invalid-input"


class LimitError(AtollError):
    """A stated limit was exceeded; nothing was done."""

    kind = "limit"


class UnsupportedError(AtollError):
    """This store, build or process cannot do that."""

    kind = "unsupported"


class UnauthenticatedError(AtollError):
    """The caller did not prove who it is, or may not do that."""

    kind = "unauthenticated"


class UnavailableError(AtollError):
    """The store cannot serve now; nothing was done."""

    kind = "unavailable"
    retry_can_help = True


class TimedOutError(AtollError, TimeoutError):
    """The outcome is not known: the call may or may not have taken effect."""

    kind = "timed-out"
    retry_can_help = True


class CorruptError(AtollError):
    """Bytes that were read back do not match their checksum."""

    kind = "corrupt"


class OutOfSpaceError(AtollError):
    """No space is left on the device or in the budget."""

    kind = "out-of-space"
    retry_can_help = True


class ReadOnlyError(AtollError):
    """The store was opened for reading, or lies on read-only media."""

    kind = "read-only"


class NewerFormatError(AtollError):
    """The data was written by a newer release."""

    kind = "newer-format"


class InternalError(AtollError):
    """A bug in Atoll."""

    kind = "internal"
