"""PostgreSQL with PostGIS: one table in z-order, an index over three dimensions, and one over four.

The points are expressions over plain columns, which keeps the heap small; steps have an index of their own, which
PostgreSQL combines with either. Both are to its advantage. The four-dimensional index has the priority as its fourth
dimension, and is given the cut that corresponds to a limit, which no real user knows.
"""

import io
from pathlib import Path
from typing import ClassVar

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from ..asked.question import ALL, Question
from ..data.dataset import Dataset
from ..data.rows import AXES, COLUMNS, SCHEMA
from .base import Peer, sql
from .postgres_server import Server

_SERVERS: dict[Path, Server] = {}
_TYPES = {"pid": "i4", "step": "i8", "type": "i2", "prio": "i4"}
_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_FAR = 1e30


class _Postgis(Peer):
    dimensions: ClassVar[int]

    def __init__(self, dataset: Dataset, folder: Path) -> None:
        super().__init__(dataset, folder)
        place = folder / "postgis"
        self._server = _SERVERS.setdefault(place, Server(place))
        self._done = folder / f"postgis-built-{self.dimensions}d"
        self._connection: psycopg.Connection | None = None

    def build(self) -> None:
        self._server.make()
        if self._done.exists():
            return
        try:
            self.open()
            _load(self._connection, self.dataset)
            point = _point(self.dimensions)
            index = f"CREATE INDEX point_{self.dimensions}d ON particles USING gist (({point}) gist_geometry_ops_nd)"
            self._connection.execute(f"DROP INDEX IF EXISTS point_{self.dimensions}d")
            self._connection.execute(index)
            self._connection.execute("VACUUM ANALYZE particles")
            self._connection.execute("CHECKPOINT")
        finally:
            self.close()
        self._done.touch()

    def open(self) -> None:
        self._connection = psycopg.connect(self._server.start(self.name), autocommit=True)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        try:
            if connection is not None:
                connection.close()
        finally:
            self._server.stop(self.name)

    def ask(self, question: Question) -> pa.Table:
        text = sql(question, "particles", real="real", hints=self._hints(question))
        return _copied(self._connection, text)

    def _hints(self, question: Question) -> tuple[str, ...]:
        low, high = zip(*(_closed(question, axis) for axis in AXES), strict=True)
        if self.dimensions == 4:
            cut = min(question.cut, question.told or ALL)
            low, high = (*low, 0), (*high, cut)
            if cut == ALL and not question.box:
                return ()
        elif not set(question.box) & set(AXES):
            return ()
        corners = (f"ST_MakePoint({', '.join(map(repr, corner))})" for corner in (low, high))
        return (f"{_point(self.dimensions)} &&& ST_MakeLine({', '.join(corners)})",)

    def bytes_on_disk(self) -> int:
        indexes = f"pg_relation_size('steps') + pg_relation_size('point_{self.dimensions}d')"
        query = f"SELECT pg_table_size('particles') + {indexes}"
        return int(self._connection.execute(query).fetchone()[0])


class Postgis3d(_Postgis):
    """PostGIS with the index over places."""

    name = "postgis 3-d"
    dimensions = 3


class Postgis4d(_Postgis):
    """PostGIS with the index over places and priorities."""

    name = "postgis 4-d told the cut"
    dimensions = 4


def _point(dimensions: int) -> str:
    return f"ST_MakePoint({', '.join((*AXES, 'prio')[:dimensions])})"


def _closed(question: Question, axis: str) -> tuple[float, float]:
    low, high = question.box.get(axis, (None, None))
    return -_FAR if low is None else low, _FAR if high is None else high


def _layout(names: tuple[str, ...]) -> np.dtype:
    """The layout of a row in PostgreSQL's binary copy: the number of fields, and before each field its length."""
    fields = [("fields", ">i2")]
    for name in names:
        kind = _TYPES.get(name, "f4")
        fields += [(f"{name} length", ">i4"), (name, f">{kind}")]
    return np.dtype(fields)


def _copied(connection: psycopg.Connection, text: str) -> pa.Table:
    output = io.BytesIO()
    with connection.cursor().copy(f"COPY ({text}) TO STDOUT (FORMAT binary)") as copy:
        for piece in copy:
            output.write(piece)
    rows = np.frombuffer(output.getbuffer()[len(_HEADER) : -len(_TRAILER)], dtype=_layout(COLUMNS))
    return pa.table([rows[name].astype(_native(name)) for name in COLUMNS], schema=SCHEMA)


def _native(name: str) -> np.dtype:
    return SCHEMA.field(name).type.to_pandas_dtype()


def _load(connection: psycopg.Connection, dataset: Dataset) -> None:
    """Loads the table, unless it exists with all its rows."""
    found = connection.execute("SELECT to_regclass('particles')").fetchone()[0]
    if found and connection.execute("SELECT count(*) FROM particles").fetchone()[0] == dataset.rows:
        return
    connection.execute("CREATE EXTENSION IF NOT EXISTS postgis")
    connection.execute("DROP TABLE IF EXISTS particles")
    reals = ", ".join(f"{name} real NOT NULL" for name in COLUMNS[3:])
    connection.execute(
        f"CREATE TABLE particles (pid int NOT NULL, step bigint NOT NULL, type smallint NOT NULL, {reals},"
        " prio int NOT NULL)"
    )
    names = (*COLUMNS, "prio")
    layout = _layout(names)
    copying = f"COPY particles ({', '.join(names)}) FROM STDIN (FORMAT binary)"
    with connection.cursor().copy(copying) as copy:
        copy.write(_HEADER)
        for batch in pq.ParquetFile(dataset.z_ordered).iter_batches(batch_size=131_072, columns=list(names)):
            rows = np.empty(batch.num_rows, dtype=layout)
            rows["fields"] = len(names)
            for name in names:
                rows[f"{name} length"] = layout[name].itemsize
                rows[name] = batch[name].to_numpy()
            copy.write(rows.tobytes())
        copy.write(_TRAILER)
    connection.execute("CREATE INDEX steps ON particles (step)")
