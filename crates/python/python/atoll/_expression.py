"""Conditions on rows, written with Python's operators, which become texts in the shared grammar.

Nothing is evaluated here. An expression knows its text and how tightly the text binds, so that parentheses are added
only where the grammar needs them and long chains stay flat.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ._convert import check_text
from .errors import InvalidInputError

if TYPE_CHECKING:
    from ._table import Table

# How tightly texts bind, in the order of the grammar.
_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _NEGATION, _ATOM = range(1, 9)

#: The most factors of a power: more of them are written as a product by who wants them.
_FACTORS_MAX = 4


class Expression:
    """A value computed from the columns of a row, or a condition on them.

    Made with :func:`col`, and combined with ``+ - * / %``, ``** 2`` to ``** 4``, ``== != < <= > >=``, ``&`` (and),
    ``|`` (or), ``~`` (not) and ``abs()``. Python's ``and``, ``or`` and ``not``, and chains such as ``0 < x < 1``,
    cannot be used. ``str()`` returns the text, which the command line takes as it is.
    """

    __slots__ = ("_binds", "_element", "_name", "_text")
    __hash__ = None  # type: ignore[assignment]
    # Makes NumPy scalars on the left defer: numpy.float64(1) < col("x") is an expression.
    __array_ufunc__ = None

    def __init__(self, text: str, binds: int, name: str | None = None, element: int | None = None) -> None:
        self._text = text
        self._binds = binds
        #: The column that the expression is, or is an element of; ``None`` for a computed value.
        self._name = name
        #: The index of the element; ``None`` for a whole column.
        self._element = element

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<atoll expression: {self._text}>"

    def __bool__(self) -> bool:
        raise TypeError("a condition is neither true nor false by itself: use & | ~ instead of and, or, not")

    def __getitem__(self, element: int) -> Expression:
        """Return an element of a vector column, counted from 0: ``col("pos")[0]``."""
        problem = f"{self._text}[{element!r}]: only an element of a vector column, from 0 on"
        if self._name is None:
            # The index would bind to the last part of the text alone, and not to the computed value.
            raise InvalidInputError.hinted(problem, 'take the element first: 1 - col("pos")[0] instead of (1 - col("pos"))[0]')
        if not isinstance(element, int) or element < 0 or self._element is not None:
            raise InvalidInputError(problem)
        return Expression(f"{self._text}[{element}]", _ATOM, self._name, element)

    #: Without this, Python would iterate over an object that can be indexed, and here without end.
    __iter__ = None

    def _within(self, binds: int) -> str:
        return self._text if self._binds >= binds else f"({self._text})"

    def _with(self, symbol: str, other: Any, binds: int, *, is_chain: bool = False) -> Expression:
        right = _as_expression(other)._within(binds if is_chain else binds + 1)
        # Comparisons do not chain, so their left side has to bind more tightly as well.
        left = self._within(binds + 1 if binds == _COMPARISON else binds)
        return Expression(f"{left} {symbol} {right}", binds)

    def __add__(self, other: Any) -> Expression:
        return self._with("+", other, _SUM)

    def __radd__(self, other: Any) -> Expression:
        return _as_expression(other) + self

    def __sub__(self, other: Any) -> Expression:
        return self._with("-", other, _SUM)

    def __rsub__(self, other: Any) -> Expression:
        return _as_expression(other) - self

    def __mul__(self, other: Any) -> Expression:
        return self._with("*", other, _PRODUCT)

    def __rmul__(self, other: Any) -> Expression:
        return _as_expression(other) * self

    def __truediv__(self, other: Any) -> Expression:
        return self._with("/", other, _PRODUCT)

    def __rtruediv__(self, other: Any) -> Expression:
        return _as_expression(other) / self

    def __mod__(self, other: Any) -> Expression:
        return self._with("%", other, _PRODUCT)

    def __rmod__(self, other: Any) -> Expression:
        return _as_expression(other) % self

    def __pow__(self, exponent: Any) -> Expression:
        """Return a power as the product that it is: the grammar has no powers."""
        try:
            factors = 0 if isinstance(exponent, bool) else operator.index(exponent)
        except TypeError:
            factors = 0
        if not 1 <= factors <= _FACTORS_MAX:
            raise InvalidInputError.hinted(
                f"{self._text} ** {exponent!r}: a power is a product here, of 1 to {_FACTORS_MAX} factors",
                "write the product or the quotient itself; .sqrt() is the power of 0.5",
            )
        power = self
        for _ in range(1, factors):
            power = power * self
        return power

    def __pos__(self) -> Expression:
        return self

    def __neg__(self) -> Expression:
        return Expression(f"-{self._within(_ATOM)}", _NEGATION)

    def __abs__(self) -> Expression:
        return self._call("abs")

    def _compare(self, symbol: str, other: Any) -> Expression:
        if other is None:
            raise InvalidInputError.hinted(
                f"{self._text} {symbol} None is true for no row", "use .is_null() or .is_not_null()"
            )
        return self._with(symbol, other, _COMPARISON)

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]
        return self._compare("=", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._compare("!=", other)

    def __lt__(self, other: Any) -> Expression:
        return self._compare("<", other)

    def __le__(self, other: Any) -> Expression:
        return self._compare("<=", other)

    def __gt__(self, other: Any) -> Expression:
        return self._compare(">", other)

    def __ge__(self, other: Any) -> Expression:
        return self._compare(">=", other)

    def __and__(self, other: Any) -> Expression:
        return self._with("and", other, _AND, is_chain=True)

    def __rand__(self, other: Any) -> Expression:
        return _as_expression(other) & self

    def __or__(self, other: Any) -> Expression:
        return self._with("or", other, _OR, is_chain=True)

    def __ror__(self, other: Any) -> Expression:
        return _as_expression(other) | self

    def __invert__(self) -> Expression:
        return Expression(f"not {self._within(_NOT)}", _NOT)

    def between(self, low: Any, high: Any) -> Expression:
        """Test ``low <= self <= high``: both ends are included, as in SQL. A box excludes its high end."""
        if low is None or high is None:
            raise InvalidInputError.hinted(
                f"{self._text} between {low!r} and {high!r} is true for no row",
                "write <= or >= for one end; box(x=(None, 5)) leaves an end open",
            )
        low, high = (_as_expression(end)._within(_SUM) for end in (low, high))
        return Expression(f"{self._within(_SUM)} between {low} and {high}", _COMPARISON)

    def is_in(self, values: Iterable[Any]) -> Expression:
        """Test whether the value is one of these numbers, texts or times; never true for no values.

        Raises ``InvalidInputError`` for a single text, whose letters would be taken as the values.
        """
        if isinstance(values, str | bytes):
            raise InvalidInputError.hinted(f"{values!r} is one value, but is_in takes several", f"is_in([{values!r}])")
        values = list(values)
        if any(value is None for value in values):
            raise InvalidInputError.hinted(
                f"{self._text} is never equal to None", "leave None out, and add | (...).is_null()"
            )
        listed = ", ".join(literal(value) for value in values)
        if not listed:
            return Expression("false", _ATOM)
        return Expression(f"{self._within(_SUM)} in ({listed})", _COMPARISON)

    def is_null(self) -> Expression:
        """Test whether the value is missing. The result is never null."""
        return Expression(f"{self._within(_SUM)} is null", _COMPARISON)

    def is_not_null(self) -> Expression:
        """Test whether there is a value, which may be NaN. The result is never null."""
        return Expression(f"{self._within(_SUM)} is not null", _COMPARISON)

    def is_nan(self) -> Expression:
        """Test whether the value is not a number (IEEE 754); null where the value is missing."""
        return Expression(f"{self._within(_SUM)} is nan", _COMPARISON)

    def _call(self, function: str) -> Expression:
        return Expression(f"{function}({self._text})", _ATOM)

    def sqrt(self) -> Expression:
        """Return the square root; NaN for negative values."""
        return self._call("sqrt")

    def floor(self) -> Expression:
        """Return the greatest integer that is not greater than the value."""
        return self._call("floor")

    def ceil(self) -> Expression:
        """Return the least integer that is not less than the value."""
        return self._call("ceil")


def col(name: str) -> Expression:
    """Return the value of a column, to build expressions from: ``atoll.col("vz") > 0.5``.

    Any name is allowed, also one with spaces. An element of a vector column is ``atoll.col("pos")[0]``.
    """
    if not isinstance(name, str):
        raise InvalidInputError(f"a column is named by a text, not by {name!r}")
    return Expression(quoted(name), _ATOM, name)


def quoted(name: str) -> str:
    """Quote a column's name if the grammar needs it."""
    if name.isidentifier() and name.isascii() and name.lower() not in _RESERVED:
        return name
    doubled = name.replace('"', '""')
    return f'"{doubled}"'


_RESERVED = {
    "and", "or", "not", "in", "is", "between", "null", "nan", "inf", "true", "false",
    "timestamp", "abs", "sqrt", "floor", "ceil",
}  # fmt: skip


def condition_text(condition: Expression | str) -> str:
    """Return a condition as a text in the grammar."""
    if not isinstance(condition, Expression | str):
        raise InvalidInputError.hinted(
            f"a condition is an expression or a text, not {condition!r}",
            'write atoll.col("type") == 2: a plain Python comparison is evaluated before Atoll sees it',
        )
    text = str(condition)
    check_text(text, "a condition")
    return text


def column_name(column: str | Expression) -> str:
    """Return the name of a column, or of an element such as ``pos[0]``: given as a text or made by :func:`col`."""
    name, element = (column._name, column._element) if isinstance(column, Expression) else (column, None)
    if not isinstance(name, str):
        told = f"{column} is computed" if isinstance(column, Expression) else f"it is not {column!r}"
        raise InvalidInputError.hinted(f"a column is needed here, but {told}", 'name one: "x", or "pos[0]"')
    check_text(name, "the name of a column")
    return name if element is None else f"{name}[{element}]"


def column_parts(column: str | Expression, table: Table) -> tuple[str, int | None]:
    """Return the column that is named, and the index of the element; ``None`` for the column as a whole.

    ``pos[0]`` is an element of ``pos``, unless the table has a column of that very name, such as LAMMPS'
    ``c_stress[1]``.
    """
    if isinstance(column, Expression) and column._name is not None and column._element is not None:
        return column._name, column._element
    name = column_name(column)
    base, _, element = name.removesuffix("]").rpartition("[")
    is_element = base and name.endswith("]") and element.isascii() and element.isdigit()
    # Check the name first, so that an unpickled table is only opened for names that can be an element. Nothing is read:
    # making a query costs nothing.
    return (base, int(element)) if is_element and name not in table._native.known_columns else (name, None)


def column_text(column: str | Expression, table: Table) -> str:
    """Return a column, or an element of a vector such as ``pos[0]``, as a text in the grammar."""
    name, element = column_parts(column, table)
    return quoted(name) if element is None else f"{quoted(name)}[{element}]"


def literal(value: Any) -> str:
    """Return a Python or NumPy value as a literal of the grammar.

    A ``datetime`` without a zone is taken as UTC.
    """
    kind = type(value).__name__
    if kind in ("MaskedConstant", "NaTType") or (kind == "datetime64" and value != value):
        # A masked number of NumPy is a zero to `item`.
        raise InvalidInputError.hinted(f"{value!r} is no value, and equals none", "leave it out, or ask .is_null()")
    if kind == "datetime64":
        return f"timestamp '{_instant(value)}'"
    if kind == "timedelta64":
        # For some units, `item` returns a bare number.
        raise InvalidInputError.hinted(
            f"{value!r} is a duration, which conditions cannot compare", "divide it by one of the column's unit"
        )
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    # Of a subclass, such as an enumeration, the number and not its name.
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, str):
        check_text(value, "a text of a condition")
        doubled = value.replace("'", "''")
        return f"'{doubled}'"
    if isinstance(value, datetime.datetime | datetime.date):
        return f"timestamp '{value.isoformat()}'"
    raise InvalidInputError(f"{value!r} is a {type(value).__name__}: not a number, text, time or truth value")


def _as_expression(value: Any) -> Expression:
    if isinstance(value, Expression):
        return value
    text = literal(value)
    return Expression(text, _NEGATION if text.startswith("-") else _ATOM)


def _instant(value: Any) -> str:
    """Return a NumPy instant as a text with at least seconds: NumPy omits what is finer than its unit."""
    unit = value.dtype.str.partition("[")[2].rstrip("]").lstrip("0123456789")
    written = value.astype("M8[ns]" if unit in ("ns", "ps", "fs", "as") else "M8[us]")
    # A value that does not survive the round trip was truncated or wrapped around.
    if written.astype(value.dtype) != value and value == value:
        raise InvalidInputError(f"{value!r} is not a whole number of nanoseconds within the years that a table can hold")
    return str(written)
