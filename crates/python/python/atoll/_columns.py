"""The columns of one step, as a writer keeps them until they are appended.

Invariant: kept columns have memory of their own, unless they were handed over: the caller may change its arrays.
Invariant: missing values stay missing. NumPy has missing values in masked arrays alone, so other conversions come
first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from . import _atoll
from ._convert import as_list, check_array, check_has_rows, is_nothing, native_column, needed, of_lists
from ._frames import columns_of_frame, is_frame
from .errors import InvalidInputError

if TYPE_CHECKING:
    import numpy

    from ._table import Table

    #: A column of a step.
    Kept: TypeAlias = "numpy.ndarray[Any, Any] | Arrow | Nothing"


#: At most how many bytes an object takes for each band of rows beside the columns, and for each column of a band beside
#: its values. (`crates/tables/src/block.rs` has the layout.)
BAND_BYTES, SLICE_BYTES = 512, 256
#: The integer types of columns.
INTEGERS = frozenset(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))


class Arrow:
    """A column that does not fit a NumPy array: with missing values, texts, or nested rows."""

    __slots__ = ("_held", "_is_own", "nbytes")

    def __init__(self, held: _atoll.Rows, *, is_own: bool) -> None:
        self._held, self._is_own = held, is_own
        #: The bytes that it takes once it is kept: of a slice of a larger array, its own rows are copied.
        self.nbytes: int = held.nbytes if is_own else held.copied_nbytes

    def __len__(self) -> int:
        return len(self._held)

    @property
    def type_name(self) -> str:
        """The name of the column's type."""
        return self._held.schema.fields()[0][1]

    @property
    def text_bytes(self) -> int:
        """At most how many bytes its texts take once each row has its own."""
        return self._held.text_bytes

    def first(self) -> Arrow:
        """Return the first row, if there is one."""
        return Arrow(self._held.slice(0, 1), is_own=False)

    def kept(self) -> Arrow:
        """Return the column in memory of its own."""
        return self if self._is_own else Arrow(self._held.copied(), is_own=True)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._held.only_column()


class Nothing:
    """A number of rows without a value, for a table's column of any type."""

    __slots__ = ("_rows",)
    nbytes = 0

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return self._rows


def columns_of(given: Any) -> Mapping[str, Any]:
    """Return the columns by name, from a mapping, a data frame or a structured array."""
    if is_frame(given):
        columns = [(str(name), values) for name, values in columns_of_frame(given)]
        _check_apart(name for name, _ in columns)
        return dict(columns)
    if isinstance(given, Mapping) or hasattr(given, "items"):
        return given
    if isinstance(getattr(given, "_rows", None), _atoll.Rows):
        # An answer.
        return given.numpy()
    names = getattr(getattr(given, "dtype", None), "names", None)
    for attribute in ("column_names", "columns"):
        names = getattr(given, attribute, None) if names is None else names
    if names is None or callable(names) or not hasattr(given, "__getitem__"):
        raise InvalidInputError.hinted(
            f"cannot read a step from a {type(given).__name__}", "give a mapping of names to arrays, or a data frame"
        )
    _check_apart(map(str, names))
    return {str(name): given[name] for name in names}


def _check_apart(names: Iterable[str]) -> None:
    """Refuse a name that two columns have."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidInputError(f'there are two columns "{twice[0]}"')


def _converted(name: str, values: Any, numpy: Any) -> Kept:
    """Convert a column that is no Arrow array: to an array of numbers if possible."""
    held = _numbers(name, values, numpy) if isinstance(values, list) else numpy.asanyarray(values)
    if held is None or (held.dtype.kind == "O" and held.ndim):
        # Objects may be changed in place, and NumPy counts only their pointers as bytes.
        return Arrow(_atoll.rows([native_column(name, values)]), is_own=True)
    return held


def _numbers(name: str, values: list[Any], numpy: Any) -> numpy.ndarray[Any, Any] | None:
    """Convert a list of numbers, or of rows of numbers, to an array; return none for any other or invalid list.

    NumPy would turn numbers beside texts into texts, and strip zeros from the ends of bytes.
    """
    if any(issubclass(kind, str | bytes | None) for kind in set(map(type, values))):
        return None
    try:
        held = of_lists(name, values, numpy)
    except (ValueError, OverflowError):
        return None
    # NumPy times may have different units, which NumPy makes one without checking that it holds them.
    return None if held.dtype.kind in "OSTUmM" else held


def _is_arrow(values: Any, numpy: Any) -> bool:
    """Whether a column can hold missing values itself, as in PyArrow, Polars and pandas, unless NumPy backs it."""
    if isinstance(getattr(values, "dtype", None), numpy.dtype):
        return False
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "combine_chunks") or hasattr(values, "to_frame"):
        return True
    return hasattr(values, "_from_sequence") and hasattr(values, "isna")


def rows_of(columns: Mapping[str, Kept]) -> int:
    """Return the number of rows, which all columns must share."""
    if not columns:
        raise InvalidInputError("a step needs at least one column; one without rows has arrays of length 0")
    lengths = {name: None if getattr(values, "ndim", 1) == 0 else len(values) for name, values in columns.items()}
    if None in lengths.values() or len(set(lengths.values())) > 1:
        told = ", ".join(f"{name}: {'one value' if rows is None else rows}" for name, rows in lengths.items())
        problem = f"all columns of a step must have the same length, but these have {told}"
        across = next((name for name, values in columns.items() if _lies_across(values, lengths.values())), None)
        if across is not None:
            raise InvalidInputError.hinted(problem, f"a row of an array is a row of the table: {across}.T turns it")
        raise InvalidInputError(problem)
    return next(iter(lengths.values())) or 0


def _lies_across(values: Kept, lengths: Iterable[int | None]) -> bool:
    """Whether the transposed array would have as many rows as the other columns."""
    shape: tuple[int, ...] = getattr(values, "shape", ())
    return len(shape) == 2 and shape[0] != shape[1] and shape[1] in lengths


def copies(columns: Mapping[str, Kept]) -> dict[str, Kept]:
    """Copy all columns into memory of their own."""
    numpy = needed("numpy", "atoll.Writer")
    return {
        name: values.kept() if isinstance(values, Arrow) else numpy.array(values, order="C", copy=True, subok=True)
        for name, values in columns.items()
    }


class TableColumns:
    """A writer's view of its table's columns: which ones it fills itself, and the room of rows in an object."""

    def __init__(self, schema: _atoll.Schema) -> None:
        self._kinds = {name: (kind, nullable) for name, kind, nullable in schema.fields()}
        #: The column types of the last step that had rows; all of them fit the table.
        self._fitting: list[tuple[str, Any]] = []

    def misfit(self, names: Iterable[str], filled: Iterable[str]) -> tuple[str, str] | None:
        """Return what is wrong with the names of a step's columns, and a hint; the writer fills those in `filled`."""
        given = set(names)
        unknown = sorted(map(str, given - self._kinds.keys()))
        if unknown:
            return f"has {_in_words(unknown)}, which the table lacks", f"its columns are {', '.join(self._kinds)}"
        needed = (name for name, (_, nullable) in self._kinds.items() if not nullable)
        lacking = [name for name in needed if name not in given and name not in filled]
        if lacking:
            return f"lacks {_in_words(lacking)}", "every row has a value there: give them among the arrays of the step"
        return None

    def may_exceed(self, columns: Mapping[str, Kept], ids: list[str], rows: int, limit: int) -> bool:
        """Whether an object of these rows may take more than `limit` bytes, by bounds that are quick to compute."""
        # Each band is as long as all before it.
        bands = rows.bit_length() + 1
        front = BAND_BYTES + bands * (BAND_BYTES + SLICE_BYTES * len(self._kinds))
        # A column that is not given takes its width, too.
        bound = {
            name: rows * _bits(kind) // 8 + _text_bytes(columns.get(name)) for name, (kind, _) in self._kinds.items()
        }
        most = front + sum(bound.values())
        if most <= limit:
            return False
        # A number that all rows share is stored once; but if that is true of the whole id, its first column is not.
        alike = {name: bound[name] for name, values in columns.items() if name in bound and _is_alike(values)}
        stored = bound.get(ids[0], 0) if all(name in alike for name in ids) else 0
        return most - sum(alike.values()) + stored > limit

    def taken(self, name: str, values: Any) -> Kept:
        """Return a column as it was given; not copied yet, unless it has to be converted."""
        numpy = needed("numpy", "atoll.Writer")
        if isinstance(values, numpy.ndarray) and values.dtype.kind != "O":
            # The usual case, which needs no conversion.
            return values
        check_has_rows(name, values)
        if is_nothing(values):
            return Arrow(_atoll.rows([native_column(name, values)]), is_own=True)
        if _is_arrow(values, numpy):
            return Arrow(_atoll.rows([native_column(name, values)]), is_own=False)
        listed = as_list(values)
        values = values if listed is None else listed
        is_listed = listed is not None or getattr(getattr(values, "dtype", None), "kind", "") == "O"
        may_be_null = self._kinds.get(name, ("", False))[1]
        if is_listed and may_be_null and len(values) and all(value is None for value in values):
            # A column of None alone has no type.
            return Nothing(len(values))
        return _converted(name, values, numpy)

    def check_types(self, table: Table, given: Mapping[str, Kept], filled: Mapping[str, Kept], rows: int) -> None:
        """Refuse columns whose types do not fit those of the table, whatever their values are."""
        kinds = [(name, _kind(values)) for name, values in given.items()]
        if kinds == self._fitting:
            # Ask the table only when the types change: its threads may be busy with the steps that wait.
            return
        numpy = needed("numpy", "atoll.Writer")
        first: dict[str, Any] = {}
        for name, values in {**given, **filled}.items():
            if isinstance(values, Arrow):
                first[name] = values.first()
                continue
            check_array(name, values, is_masked=isinstance(values, numpy.ma.MaskedArray))
            # One row of zeros, which every type can hold, stands for all rows.
            first[name] = numpy.zeros((1, *values.shape[1:]), values.dtype)
        # A step without rows says nothing about types.
        if rows:
            table._native.conformed(_atoll.rows([native_column(name, values) for name, values in first.items()]))
            self._fitting = kinds

    def missing(self, given: Mapping[str, Kept], known: Mapping[str, Any], rows: int) -> dict[str, Kept]:
        """Return those of the columns with known values that were not given.

        Raises ``InvalidInputError`` where the table's column is not nullable, and its type cannot hold the known value.
        """
        lacking = [name for name in known if name in self._kinds and name not in given]
        filled = {name: self._filled(name, known[name], rows) for name in lacking}
        return {name: column for name, column in filled.items() if column is not None}

    def _filled(self, name: str, value: Any, rows: int) -> Kept | None:
        kind, nullable = self._kinds[name]
        numpy = needed("numpy", "atoll.Writer")
        if isinstance(value, str) and kind == "utf8":
            return Arrow(_atoll.alike(name, value, rows), is_own=True)
        if isinstance(value, float) and kind == "float64":
            return numpy.full(rows, value)
        if isinstance(value, int) and kind in INTEGERS:
            # In the column's own type, so that the append needs no conversion.
            if value > numpy.iinfo(kind).max:
                raise InvalidInputError(f'{name} {value} does not fit column "{name}", which is {kind}')
            return numpy.full(rows, value, dtype=kind)
        if isinstance(value, int) and kind in ("float32", "float64"):
            return numpy.full(rows, value)
        if nullable:
            return None
        raise InvalidInputError.hinted(
            f'column "{name}" is {kind} in the table, but the writer has its value as {type(value).__name__}',
            "give its values among the arrays of the step",
        )


def _kind(values: Kept) -> Any:
    """Return the type of a column, for comparison with that of another."""
    return values.type_name if isinstance(values, Arrow) else (values.dtype, values.shape[1:])


def _in_words(names: list[str]) -> str:
    """Format names of columns for a sentence."""
    *others, last = (f'"{name}"' for name in names)
    return f"columns {', '.join(others)} and {last}" if others else f"column {last}"


def _bits(kind: str) -> int:
    """Return at most how many bits a row of this type takes in an object, without texts."""
    vector = re.fullmatch(r"fixed_size_list\[(\w+)\??, (\d+)\]", kind)
    if vector:
        return 1 + _bits(vector[1]) * int(vector[2])
    number = re.fullmatch(r"(?:u?int|float|date)(\d+)", kind)
    # One bit more says whether there is a value, and a text has an end.
    return 1 + (int(number[1]) if number else 1 if kind == "bool" else 32 if kind in ("utf8", "binary") else 64)


def _text_bytes(values: Kept | None) -> int:
    """Return at most how many bytes the texts of a column take in an object."""
    if values is None or isinstance(values, Nothing):
        return 0
    if isinstance(values, Arrow):
        return values.text_bytes
    # NumPy's texts have as many bytes for each row as the longest, and no fewer than UTF-8. Others are not known.
    return values.nbytes if values.dtype.kind in "SU" else 0 if values.dtype.kind in "biufmMV" else 1 << 62


def _is_alike(values: Kept) -> bool:
    """Whether an object stores the column as one number, which all rows share bit by bit."""
    if isinstance(values, Arrow | Nothing) or hasattr(values, "mask"):
        return False
    # Times may all be missing, and missing values are stored one by one.
    if values.ndim != 1 or values.dtype.kind not in "iuf" or values.dtype.itemsize not in (1, 2, 4, 8):
        return False
    bits = values.view(f"u{values.dtype.itemsize}")
    return len(bits) > 1 and bool(bits[0] == bits[1] and (bits == bits[0]).all())
