"""Answers: the rows of a query in memory, for every tool, and the work that finding them took."""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, SupportsIndex

from . import _atoll
from ._columns import INTEGERS
from ._convert import batch_rows, needed, numpy_column, numpy_columns
from .errors import UnsupportedError

if TYPE_CHECKING:
    import numpy
    import pandas
    import polars
    import pyarrow

_ROWS_SHOWN = 10


@dataclasses.dataclass(frozen=True)
class Work:
    """The work behind an answer: counts that do not depend on the load of the machine."""

    #: Blocks of the version.
    blocks: int = 0
    #: Bands of blocks that were decoded.
    bands: int = 0
    #: Rows in those bands.
    rows_touched: int = 0
    #: Rows that were returned.
    rows_returned: int = 0
    #: Requests to the store, each a contiguous range of one object.
    requests: int = 0
    #: Bytes that the requests returned.
    bytes: int = 0


class Answer:
    """The rows of a query, lightest first, so that the first k are themselves a sample; unordered if the query was.

    Arrow libraries take an answer as it is, without a copy: ``polars.DataFrame(answer)``, ``pyarrow.table(answer)``,
    ``duckdb.sql("select avg(vz) from answer")``. An answer can be pickled with its rows, as an Arrow stream.
    """

    #: The version that was read.
    version: int
    #: The work that reading it took.
    work: Work

    def __init__(self, rows: _atoll.Rows, version: int, work: Work, *, ordered: bool = True) -> None:
        self._rows = rows
        self._ordered = ordered
        self.version = version
        self.work = work

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def columns(self) -> list[str]:
        """The names of the columns, in order."""
        return self._rows.columns

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the rows take."""
        return self._rows.nbytes

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._rows.__arrow_c_schema__()

    def arrow(self) -> pyarrow.Table:
        """Return the rows as a PyArrow table, without a copy. Needs ``pyarrow``."""
        return needed("pyarrow", ".arrow()").table(self)

    def polars(self) -> polars.DataFrame:
        """Return the rows as a Polars frame, without a copy of numbers. Needs ``polars``."""
        return needed("polars", ".polars()").DataFrame(self)

    def pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas frame. Needs ``pandas``; with ``pyarrow`` installed, nulls keep their places.

        A vector column becomes a column of arrays. A column of integers with missing values gets pandas' nullable
        ``Int64`` or a similar type: as floats, large integers would be rounded.
        """
        frames = needed("pandas", ".pandas()")
        frame = self._pandas(frames)
        for name, values in self._integers_with_gaps().items():
            if values.ndim == 1:
                frame[name] = frames.arrays.IntegerArray(values.data.copy(), values.mask.copy())
            else:
                rows = [None if row.mask.all() else row if row.mask.any() else row.data.copy() for row in values]
                frame[name] = frames.Series(rows, index=frame.index, dtype=object)
        return frame

    def _pandas(self, frames: Any) -> Any:
        try:
            return self.arrow().to_pandas()
        except UnsupportedError:
            # PyArrow is not installed.
            columns = {name: list(array) if array.ndim > 1 else array for name, array in self.numpy().items()}
            return frames.DataFrame(columns)

    def _integers_with_gaps(self) -> dict[str, Any]:
        """Return the integer columns that have missing values, as masked arrays."""
        names = [name for name, kind, _ in self._rows.schema.fields() if _number_kind(kind) in INTEGERS]
        gaps = [name for name in names if self._rows.has_missing(name)]
        return {name: numpy_column(self._rows, name) for name in gaps}

    def numpy(self) -> dict[str, numpy.ndarray]:
        """Return the columns by name as read-only NumPy arrays that share the answer's memory. Needs ``numpy``.

        Shape (n,), or (n, k) for a column of vectors. Where values are missing, the array is masked. Times lose their
        zone: they are UTC. Texts and bytes become arrays of objects. If the answer lies in several parts of memory, as
        an unordered one may, each call copies the columns.
        """
        return numpy_columns(self._rows)

    def batches(self, rows: SupportsIndex = 65_536) -> Iterator[Answer]:
        """Yield the answer in pieces of at most ``rows`` rows, in the same order, without a copy."""
        rows = batch_rows(rows)
        starts = range(0, len(self), rows)
        return (Answer(self._rows.slice(start, rows), self.version, self.work, ordered=self._ordered) for start in starts)

    def __repr__(self) -> str:
        touched, returned = self.work.rows_touched, self.work.rows_returned
        return (
            f"<atoll answer: {len(self):,} rows of {', '.join(self.columns)}; version {self.version}, "
            f"read {touched:,} rows for {returned:,}>"
        )

    def _repr_html_(self) -> str:
        try:
            columns = numpy_columns(self._rows.slice(0, _ROWS_SHOWN))
        except Exception:  # Without NumPy there is nothing to format values with.
            return f"<pre>{html.escape(repr(self))}</pre>"
        cells = zip(*columns.values(), strict=True)
        head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(value))}</td>" for value in row) + "</tr>" for row in cells
        )
        order = "the lightest first" if self._ordered else "in no order"
        more = f"<p>{len(self):,} rows, {order}; version {self.version}, read {self.work.rows_touched:,}</p>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _number_kind(kind: str) -> str:
    """Return the type of a column's numbers, or of its vectors' elements, as in ``fixed_size_list[int64?, 2]``."""
    return kind.removeprefix("fixed_size_list[").partition(",")[0].removesuffix("?")
