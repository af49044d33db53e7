"""Rows in and out: columns as Python and NumPy hold them, and tools that understand Arrow.

The tools are looked up only when needed: importing Atoll requires none of them.
"""

from __future__ import annotations

import array
import contextlib
import datetime
import importlib
import importlib.util
import numbers
import operator
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import _atoll
from ._frames import columns_of_frame, is_frame, is_plain, without_unnamed_levels
from ._times import in_unit_of_table, times, unit_of_table, without_nat
from .errors import AtollError, InvalidInputError, UnsupportedError

# Atoll's names for the element types that NumPy knows by kind and size.
_NUMPY_TYPES = {
    "b1": "bool", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64",
    "u1": "uint8", "u2": "uint16", "u4": "uint32", "u8": "uint64", "f4": "float32", "f8": "float64",
}  # fmt: skip
_PYTHON_TYPES: dict[type, str] = {
    bool: "bool", int: "int64", float: "float64", str: "utf8", bytes: "binary",
    datetime.datetime: "timestamp[us]", datetime.date: "date32", datetime.timedelta: "duration[us]",
}  # fmt: skip
#: A column for the native half: name, type, values, missing marks (for each value or each vector), elements of a
#: vector.
_Column = tuple[str, str | None, Any, Any, int | None]
#: Texts that are looked at together: one by one takes longer, and all at once takes their memory again.
_TEXTS_AT_ONCE = 1024
#: A column of a new table: name, type, whether it may be null, and its notes, such as the unit, by name.
NotedField = tuple[str, str, bool, dict[str, str]]


def needed(module: str, what_for: str) -> Any:
    """Import a module that only some calls need."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise _unusable(module.split(".")[0], what_for, error) from None


def _unusable(package: str, what_for: str, error: ImportError) -> UnsupportedError:
    """Return the error for a package that is not installed, or that cannot be used, for example as it is too old."""
    is_installed = False
    with contextlib.suppress(ImportError, ValueError):
        is_installed = importlib.util.find_spec(package) is not None
    if is_installed:
        return UnsupportedError.hinted(
            f"{what_for} needs {package}, and the one that is installed cannot be used: {error}",
            f"pip install -U {package}",
        )
    return UnsupportedError.hinted(f"{what_for} needs {package}, which is not installed", f"pip install {package}")


def whole(value: Any, name: str, *, end: int = 2**64) -> int:
    """Return an integer that the native half can take; refuse others here, with the argument's name."""
    try:
        number: int = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number < end:
        raise InvalidInputError(f"{name} is a whole number from 0 to 2^{end.bit_length() - 1} - 1, not {value!r}")
    return number


def label(value: Any, name: str) -> str:
    """Return a name that the native half can take; refuse others as :func:`whole` does."""
    if not isinstance(value, str):
        raise InvalidInputError.hinted(f"{name} is a text, not {value!r}", f'write "{value}" if that is its name')
    check_text(value, name)
    return value


def check_text(value: str, name: str) -> None:
    """Refuse a text with half of a surrogate pair, such as a file name that is not UTF-8: it cannot be encoded."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InvalidInputError.hinted(
            f"{name} has half of a surrogate pair: {value!r}", "os.fsencode(text) gives the bytes of a file's name"
        ) from None


def number(value: Any, name: str) -> float:
    """Return a number that the native half can take; refuse others as :func:`whole` does."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInputError(f"{name} is a number, not {value!r}") from None


def names(given: Any, role: str) -> list[str]:
    """Return one name or several as a list."""
    listed: list[Any] = [given] if isinstance(given, str) else list(given) if isinstance(given, Iterable) else [given]
    if not all(isinstance(name, str) for name in listed):
        raise InvalidInputError.hinted(f"{role} must name columns, not {given!r}", f'write {role}="x" or ("x", "y")')
    return listed


def steps_between(steps: Any) -> tuple[int, int | None]:
    """Return the first step and the one after the last.

    Anything else that has two items, such as a list of steps, would be read as something that it does not say.
    """
    if isinstance(steps, range) and steps.step == 1:
        first, end = steps.start, steps.stop
    elif isinstance(steps, tuple) and len(steps) == 2:
        first, end = steps
    else:
        raise InvalidInputError.hinted(
            f"steps must be a first one and the one after the last, not {steps!r}",
            "write steps=(3, 5) or range(3, 5) for steps 3 and 4, and (3, None) for an open end",
        )
    first = 0 if first is None else whole(first, "the first step")
    return first, None if end is None else whole(end, "the end of steps")


def batch_rows(rows: Any) -> int:
    """Return the maximum number of rows of a batch."""
    rows = whole(rows, "rows")
    if rows < 1:
        raise InvalidInputError("a batch has 1 row or more")
    return rows


def values_of(held: _atoll.Rows, name: str) -> list[Any]:
    """Return the values of a column as Python objects, ``None`` where one is missing."""
    column = held.column(name)
    if not column.is_fixed:
        return list(column.objects())
    values = numpy_columns(held)[name]
    if values.dtype.name in ("datetime64[ns]", "timedelta64[ns]"):
        # Python has no times of that resolution, and `tolist` would return bare integers.
        masked = needed("numpy", "a column of times").ma.masked
        return [None if value is masked else value for value in values]
    # `tolist` turns masked values into None.
    return values.tolist()


def rows(data: Any) -> _atoll.Rows:
    """Copy rows out of any object that holds them.

    ``data`` is an object with ``__arrow_c_stream__`` or ``__arrow_c_array__`` (of PyArrow, Polars, pandas, DuckDB, or
    an answer of Atoll), a mapping of column names to arrays, or a structured NumPy array. An array of shape (n,) is a
    column of numbers, one of shape (n, k) a column of vectors. Masked arrays have missing values; a vector whose
    elements are all masked is missing itself.

    Raises ``InvalidInputError`` where columns differ in length or have a type without a counterpart.
    """
    if isinstance(data, _atoll.Rows):
        return data
    native = getattr(data, "_rows", None)
    if isinstance(native, _atoll.Rows):
        return native
    if isinstance(data, Mapping):
        return _atoll.rows([native_column(str(name), values) for name, values in data.items()])
    if is_frame(data):
        return _atoll.rows([native_column(str(name), values) for name, values in columns_of_frame(data)])
    if "Null" in map(str, getattr(data, "dtypes", ())) and hasattr(data, "columns"):
        return _atoll.rows([native_column(name, data[name]) for name in data.columns])
    if hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__"):
        return _atoll.rows(data)
    names = getattr(getattr(data, "dtype", None), "names", None)
    if names:
        return _atoll.rows([native_column(name, data[name]) for name in names])
    raise InvalidInputError.hinted(
        f"rows cannot be read from a {type(data).__name__}",
        "give a mapping of names to arrays, a data frame, or an Arrow table",
    )


def known_values(name: str, values: Iterable[Any]) -> _atoll.Rows:
    """Return values of a column, in any order, as rows of this column alone."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise InvalidInputError.hinted(
            f'groups are values of the column "{name}", not {values!r}', "write groups=[1, 2, 3]"
        )
    listed: Any = list(values) if isinstance(values, set | frozenset | range) else values
    if isinstance(listed, list | tuple) and all(value is None for value in listed):
        # A list of None alone has no type.
        return _atoll.nothing(name, len(listed))
    return _atoll.rows([native_column(name, listed)])


def is_nothing(values: Any) -> bool:
    """Whether it is a Polars series without any value. It has no type, and other tools reject its Arrow array."""
    return str(getattr(values, "dtype", "")) == "Null"


def check_has_rows(name: str, values: Any) -> None:
    """Refuse a single value, and a collection without an order."""
    if isinstance(values, str | set | frozenset | Mapping):
        raise _single(name, values)


def _single(name: str, values: Any) -> InvalidInputError:
    return InvalidInputError.hinted(
        f'column "{name}" is a single {type(values).__name__}, which has no ordered rows',
        "give a list or an array with a value for each row",
    )


def _is_single(values: Any) -> bool:
    """Whether it is one value, such as a number: no collection, array or buffer."""
    if any(hasattr(values, name) for name in ("__array__", "__array_interface__", "__arrow_c_array__")):
        return False
    # Of its type, as Python looks them up: a class has the methods of its instances.
    if hasattr(type(values), "__iter__") or hasattr(type(values), "__getitem__"):
        return False
    try:
        memoryview(values)
    except TypeError:
        return True
    return False


def as_list(values: Any) -> list[Any] | None:
    """Return the values of an ordered collection as a list; none for an array or a buffer."""
    if hasattr(values, "__array_interface__") or hasattr(values, "__array__"):
        return None
    with contextlib.suppress(TypeError):
        memoryview(values)
        return None
    with contextlib.suppress(TypeError):
        return list(values)
    return None


def native_column(name: str, values: Any) -> _Column:
    check_text(name, "the name of a column")
    check_has_rows(name, values)
    if hasattr(values, "_from_sequence") and hasattr(values, "isna"):
        # An extension array of pandas, which only exports its missing values as a series.
        values = needed("pandas", f'column "{name}", an array of pandas,').Series(values)
    if is_nothing(values):
        return name, None, _OnlyColumn(_atoll.nothing(name, len(values))), None, None
    if hasattr(values, "to_frame") and not hasattr(values, "__arrow_c_array__"):
        # A series of pandas or Polars, which exports Arrow as a frame.
        if is_plain(values):
            return _array(name, values)
        # Without the index of a pandas series, which would become another column, and called as errors should call it.
        series = values.reset_index(drop=True).rename(name) if hasattr(values, "reset_index") else values
        frame = series.to_frame()
        if hasattr(frame, "__arrow_c_stream__"):
            return name, None, _OnlyColumn(_rows_of_series(name, frame)), None, None
    if hasattr(values, "combine_chunks"):
        values = values.combine_chunks()
    if hasattr(values, "__arrow_c_array__"):
        return name, None, values, None, None
    if _is_single(values):
        raise _single(name, values)
    if not hasattr(values, "__array_interface__") and not hasattr(values, "__array__"):
        try:
            return _buffer(name, memoryview(values))
        except TypeError:
            return _listed(name, list(values))
    return _array(name, values)


def _rows_of_series(name: str, frame: Any) -> _atoll.Rows:
    try:
        return _atoll.rows(frame)
    except ImportError as error:
        # pandas leaves this to PyArrow, and says so if PyArrow is too old for it.
        raise _unusable("pyarrow", f'column "{name}" of pandas', error) from None
    except (TypeError, ValueError, NotImplementedError) as error:
        if isinstance(error, AtollError):
            raise
        # pandas has PyArrow inspect objects, and passes on its errors.
        raise InvalidInputError(f'column "{name}": {error}') from None


class _OnlyColumn:
    """The only column of some rows, as an Arrow array."""

    def __init__(self, held: _atoll.Rows) -> None:
        self._held = held

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._held.only_column()


def _listed(name: str, values: list[Any]) -> _Column:
    """Convert a list to a column; ``None`` marks a missing value."""
    kinds = {type(value) for value in values} - {type(None)}
    if not kinds and values:
        raise InvalidInputError(f'column "{name}": a list of None alone has no type; leave the column out')
    if kinds == {str}:
        _check_texts(name, values)
    if kinds <= {str} or kinds <= {bytes}:
        return name, "binary" if kinds == {bytes} else "utf8", values, None, None
    texts = {kind for kind in kinds if issubclass(kind, str | bytes)}
    if texts and (kinds - texts or len({issubclass(kind, str) for kind in texts}) > 1):
        return _beside_texts(name, values)
    if texts:
        # Subclasses of texts, such as NumPy's. No NumPy array of them, which would strip zeros from their ends.
        plain = str.__str__ if issubclass(texts.pop(), str) else bytes
        return _listed(name, [None if value is None else plain(value) for value in values])
    # By identity, since comparing an array returns an array.
    is_missing = bytes(value is None for value in values)
    mask = is_missing if any(is_missing) else None
    if kinds <= {bool}:
        return name, "bool", bytes(bool(value) for value in values), mask, None
    if kinds <= {int, bool}:
        type_name, code = ("int64", "q") if max(filter(None, values), default=0) < 2**63 else ("uint64", "Q")
        try:
            return name, type_name, array.array(code, (int(value or 0) for value in values)), mask, None
        except OverflowError:
            raise InvalidInputError(f'column "{name}": its integers do not fit 64 bits') from None
    if kinds <= {int, float, bool}:
        try:
            held = array.array("d", (0.0 if value is None else float(value) for value in values))
        except OverflowError:
            raise InvalidInputError(f'column "{name}": one of its integers is too large for a float64') from None
        check_exact(name, values, held)
        return name, "float64", held, mask, None
    return _of_numpy(name, values)


def _check_texts(name: str, values: list[Any]) -> None:
    """Refuse a text that cannot be encoded, naming its row; check row by row only if there is such a text."""
    for begin in range(0, len(values), _TEXTS_AT_ONCE):
        several = values[begin : begin + _TEXTS_AT_ONCE]
        try:
            "".join(filter(None, several)).encode()
        except UnicodeEncodeError:
            for row, value in enumerate(several, begin):
                if value is not None:
                    check_text(value, f'column "{name}", row {row}')


def check_exact(name: str, given: Iterable[Any], held: Iterable[Any], elements: int = 1) -> None:
    """Refuse an integer that was rounded because floats stand beside it; `elements` is the length of a vector, or 1."""
    for place, (value, became) in enumerate(zip(given, held, strict=True)):
        if isinstance(value, numbers.Integral) and int(became) != value:
            raise InvalidInputError.hinted(
                f'column "{name}", row {place // elements}: {value} stands beside floats, but no float has its value',
                "nothing is rounded on input: give all as integers, or all as floats",
            )


def of_lists(name: str, values: Sequence[Any], numpy: Any) -> Any:
    """Convert a list, or a list of rows, to a NumPy array without rounding; to a masked one if any value is masked."""
    kinds = set(map(type, values))
    if type(numpy.ma.masked) in kinds:
        # The masked constant has a type of its own, which says nothing about the values beside it.
        is_masked = numpy.array([value is numpy.ma.masked for value in values])
        there = of_lists(name, [value for value in values if value is not numpy.ma.masked], numpy)
        held = numpy.ma.masked_all((len(values), *there.shape[1:]), dtype=there.dtype)
        held[~is_masked] = there
        return held
    if any(issubclass(kind, numpy.ma.MaskedArray) for kind in kinds):
        # As items of a list, masked arrays lose their masks, and what is masked would become values.
        plain = [numpy.ma.getdata(value) if isinstance(value, numpy.ma.MaskedArray) else value for value in values]
        held = of_lists(name, plain, numpy)
        return numpy.ma.masked_array(held, mask=[numpy.ma.getmaskarray(value) for value in values])
    held = numpy.asanyarray(values)
    if held.dtype.kind == "f" and len(values) and not all(_is_float(value) for value in values):
        if all(isinstance(value, int | numpy.integer) for value in values) and min(values) >= 0:
            # NumPy makes floats of integers if some are signed and others need 64 bits.
            return numpy.array([int(value) for value in values], dtype="u8")
        check_exact(name, numpy.asarray(values, dtype=object).flat, held.flat, held.size // len(values) or 1)
    return held


def _is_float(value: Any) -> bool:
    return isinstance(value, float) or getattr(getattr(value, "dtype", None), "kind", "") == "f"


def _beside_texts(name: str, values: list[Any]) -> _Column:
    """Convert a list of texts beside other values: only pandas' marks for missing values may stand among texts."""
    told = [_none_for_nan(value) for value in values]
    others = sorted({type(value).__name__ for value in told} - {"NoneType"})
    if len(others) > 1:
        raise InvalidInputError.hinted(
            f'column "{name}" has values of the types {", ".join(others)}',
            "nothing is converted on input: give all as one",
        )
    return _listed(name, told)


def _of_numpy(name: str, values: list[Any]) -> _Column:
    """Convert a list of values that need NumPy: times, or lists of numbers."""
    values = without_nat(values)
    kinds = sorted({type(value).__name__ for value in values} - {"NoneType"})
    numpy = needed("numpy", f'column "{name}", a list of {", ".join(kinds)}')
    present = next((value for value in values if value is not None), None)
    if present is None:
        raise InvalidInputError(f'column "{name}": a list without a value has no type; leave the column out')
    filled = [present if value is None else value for value in values]
    try:
        held = times(filled, numpy)
        if held is None:
            held = of_lists(name, filled, numpy)
    except InvalidInputError:
        raise
    except (ValueError, OverflowError) as error:
        raise InvalidInputError(f'column "{name}": {error}') from None
    if held.dtype.kind == "O":
        told = f"the type {kinds[0]}" if len(kinds) == 1 else f"the types {', '.join(kinds)} mixed"
        raise InvalidInputError(f'column "{name}": a table cannot hold values of {told}')
    is_missing = [value is None for value in values]
    if any(is_missing):
        if held.ndim != 1:
            if isinstance(held, numpy.ma.MaskedArray):
                held[numpy.array(is_missing)] = numpy.ma.masked
                return _array(name, held)
            # Mark whole vectors here: a mask would mark each element.
            _, type_name, flat, _, elements = _array(name, held)
            return name, type_name, flat, bytes(is_missing), elements
        held = numpy.ma.masked_array(held, mask=is_missing)
    return _array(name, held)


def _buffer(name: str, view: memoryview) -> _Column:
    """Convert an object that has only Python's buffer protocol, such as ``array.array``."""
    kind = {"b": "i", "h": "i", "i": "i", "l": "i", "q": "i", "f": "f", "d": "f", "?": "b"}
    # ctypes spells out the byte order, even if it is the machine's.
    code: Any = view.format.lstrip("@=" + ("<" if sys.byteorder == "little" else ">"))
    letter = kind.get(code) or {"B": "u", "H": "u", "I": "u", "L": "u", "Q": "u"}.get(code)
    type_name = _NUMPY_TYPES.get(f"{letter}{view.itemsize}")
    if type_name is None or view.ndim not in (1, 2):
        raise InvalidInputError(f'column "{name}": a buffer of format {view.format} and shape {view.shape}')
    elements = view.shape[1] if view.shape is not None and view.ndim == 2 else None
    flat = memoryview(view.tobytes())
    return name, type_name, flat if letter == "b" else flat.cast(code), None, elements


def _array(name: str, values: Any) -> _Column:
    numpy = needed("numpy", "a column that is neither text nor Arrow")
    mask = None
    if isinstance(values, numpy.ma.MaskedArray):
        mask = numpy.ascontiguousarray(numpy.ma.getmaskarray(values)).reshape(-1).view(numpy.uint8)
        values = values.data
    held = numpy.asarray(values)
    check_array(name, held, is_masked=mask is not None)
    if held.dtype.kind in "OUST":
        listed = held.tolist()
        if not all(value is None or _is_float(value) for value in listed):
            listed = [_none_for_nan(value) for value in listed]
        if mask is not None:
            listed = [None if masked else value for value, masked in zip(listed, mask.tolist(), strict=True)]
        return _listed(name, listed)
    elements = held.shape[1] if held.ndim == 2 else None
    type_name, ticks = _numpy_type(name, held.dtype)
    if held.dtype.kind in "mM":
        # Not-a-time is NumPy's mark for a missing time.
        missing = numpy.isnat(held).reshape(-1)
        if missing.any():
            mask = missing.view(numpy.uint8) if mask is None else mask | missing.view(numpy.uint8)
        held = _times_in_unit(name, held, mask, numpy)
    # A flat buffer in C order and native byte order, of the type that was named.
    flat = numpy.ascontiguousarray(held).reshape(-1)
    flat = flat.astype(flat.dtype.newbyteorder("="), copy=False)
    flat = flat.view(ticks) if ticks else flat
    if type_name == "date32":
        days = flat.astype("i4")
        wrong = numpy.flatnonzero((days != flat) & (mask is None or mask == 0))
        if wrong.size:
            row = int(wrong[0]) // (elements or 1)
            raise InvalidInputError(f'column "{name}", row {row}: the date is beyond the years that a table can hold')
        flat = days
    return name, type_name, flat, mask, elements


def _times_in_unit(name: str, held: Any, mask: Any, numpy: Any) -> Any:
    """Convert times to the unit of a table, such as hours to seconds; refuse one that it does not hold exactly."""
    became, wrong = in_unit_of_table(held, mask, numpy)
    if wrong is not None:
        row = wrong // (held.shape[1] if held.ndim == 2 else 1)
        raise InvalidInputError.hinted(
            f'column "{name}", row {row}: {held.flat[wrong]!r} does not fit {became.dtype} exactly',
            "nothing is rounded on input: do that yourself first, for example with astype",
        )
    return became


def check_array(name: str, held: Any, *, is_masked: bool) -> None:
    """Refuse an array that cannot become a column, whatever its values are."""
    if held.dtype.kind in "OUST":
        # Objects may be rows of numbers, but there are no vectors of texts.
        if held.ndim != 1 and not (held.ndim == 2 and held.dtype.kind == "O" and not is_masked):
            raise InvalidInputError(f'column "{name}" has shape {held.shape}: a column of these is (n,)')
        return
    if held.ndim not in (1, 2):
        raise InvalidInputError(f'column "{name}" has shape {held.shape}: a column is (n,) or (n, k)')
    _numpy_type(name, held.dtype)


def _none_for_nan(value: Any) -> Any:
    # pandas marks a missing value with NaN, which is a value only among floats.
    return None if isinstance(value, float) and value != value else value


def _numpy_type(name: str, dtype: Any) -> tuple[str, str | None]:
    """Return the name of the type, and the type to view values as if Python's buffers do not know theirs."""
    if dtype.kind in "mM":
        unit = unit_of_table(dtype)
        if unit is not None:
            return "date32" if unit == "D" else f"{'timestamp' if dtype.kind == 'M' else 'duration'}[{unit}]", "i8"
    elif dtype.kind == "b":
        return "bool", "u1"
    elif dtype.str[1:] in _NUMPY_TYPES:
        return _NUMPY_TYPES[dtype.str[1:]], None
    raise InvalidInputError(f'column "{name}": a table cannot hold NumPy\'s {dtype}')


def numpy_columns(held: _atoll.Rows) -> dict[str, Any]:
    """Return columns as NumPy arrays that share the memory of the rows; masked where values are missing.

    Texts, bytes, truth values and dates are copied: into arrays of objects, unpacked, and widened to NumPy's dates. Of
    rows in several batches each call copies all columns, since an array of NumPy is one piece of memory.
    """
    return {name: numpy_column(held, name) for name in held.columns}


def numpy_column(held: _atoll.Rows, name: str) -> Any:
    """Return one column as a NumPy array, like those of :func:`numpy_columns`."""
    numpy = needed("numpy", ".numpy()")
    column = held.column(name)
    if not column.is_fixed:
        return numpy.array(column.objects(), dtype=object)
    values, missing = numpy.asarray(column), column.missing()
    # Copy the mask: plots, for example, extend it in place.
    return values if missing is None else numpy.ma.masked_array(values, mask=numpy.array(missing))


def fields(schema: Any) -> list[NotedField]:
    """Return the columns of a new table, from any description of them."""
    if is_frame(schema):
        columns = {str(name): values for name, values in columns_of_frame(schema)}
        try:
            known = [field for field in _atoll.fields(without_unnamed_levels(schema)) if field[0] in columns]
        except ImportError as error:
            raise _unusable("pyarrow", "a table like a frame of pandas", error) from None
        # Arrow does not export a default index, even if it has a name.
        for name, *_ in known:
            columns.pop(name, None)
        return known + [_field(name, values) for name, values in columns.items()]
    if hasattr(schema, "__arrow_c_schema__") or hasattr(schema, "__arrow_c_stream__"):
        return _atoll.fields(schema)
    if isinstance(schema, Mapping):
        return [_field(str(name), described) for name, described in schema.items()]
    # No notes here: what `rows` notes on a column is about these very values.
    return [(*field, {}) for field in rows(schema).schema.fields()]


def with_units(columns: list[NotedField], units: Mapping[str, str] | None) -> list[NotedField]:
    """Return the columns with these units, by name of the column, in place of those that they have.

    Raises ``InvalidInputError`` for a name that is no column.
    """
    if not isinstance(units, Mapping | None):
        raise InvalidInputError.hinted(f"units are texts by column, not {units!r}", 'write units={"vz": "Å/ps"}')
    told = {label(name, "the name of a column"): label(unit, "a unit") for name, unit in (units or {}).items()}
    unknown = sorted(told.keys() - {name for name, *_ in columns})
    if unknown:
        listed = ", ".join(name for name, *_ in columns)
        raise InvalidInputError.hinted(
            f'units name "{unknown[0]}", which is not a column of the table',
            f"its columns are {listed}; all elements of a vector have one unit, that of their column",
        )
    return [
        (name, kind, nullable, {**notes, "unit": told[name]} if name in told else notes)
        for name, kind, nullable, notes in columns
    ]


def _field(name: str, described: Any) -> NotedField:
    if isinstance(described, str):
        return _named_field(name, described)
    if isinstance(described, type) and described in _PYTHON_TYPES:
        return name, _PYTHON_TYPES[described], False, {}
    polars, kind = sys.modules.get("polars"), described if isinstance(described, type) else type(described)
    if polars is not None and issubclass(kind, polars.DataType):
        # May be null, as the types of Arrow may.
        found: list[NotedField] = _atoll.fields(polars.Series(name, [], dtype=described).to_frame())
        return found[0]
    if isinstance(described, type) or type(described).__name__.endswith("DType"):
        numpy = needed("numpy", "a type of NumPy")
        return name, _numpy_type(name, numpy.dtype(described))[0], False, {}
    if hasattr(described, "__arrow_c_schema__"):
        return name, *_atoll.type_name(name, described)
    try:
        example = None if _is_single(described) else native_column(name, described)
    except TypeError:
        example = None
    if example is None:
        raise InvalidInputError.hinted(
            f'column "{name}": {described!r} is neither a type nor an example of its values', 'write "float64" or an array'
        )
    _, type_name, nullable = _atoll.rows([example]).schema.fields()[0]
    return name, type_name, nullable, {}


def _named_field(name: str, described: str) -> NotedField:
    """Parse ``float64``, ``timestamp[us]``, or ``float32[3]`` for vectors; a question mark at the end allows nulls."""
    type_name, nullable = described.removesuffix("?"), described.endswith("?")
    element, bracket, length = type_name.removesuffix("]").partition("[")
    if bracket and length.isdigit():
        type_name = f"{_NUMPY_TYPES.get(element, element)}[{length}]"
    type_name = _NUMPY_TYPES.get(type_name, {"str": "utf8", "string": "utf8"}.get(type_name, type_name))
    return name, type_name, nullable, {}
