"""PySpark on all processors of this machine, with answers as Arrow: on z-ordered Parquet, and on a table in its memory.

Both share one session, which ends when neither has it open.
"""

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from ..asked.question import Question
from .base import Peer, Unavailable, sql

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # More than half of it is for tables in memory and the work of questions: the whole table, in plain columns of 41
    # bytes a row, fits five times. PostgreSQL's 3 GB and Atoll's 4 GiB are in use besides, on a machine of 24 GiB.
    "spark.driver.memory": "6g",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.files.maxPartitionBytes": "32m",
    "spark.driver.maxResultSize": "0",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


class _Shared:
    """The single session; two sessions in one process would share a context anyway."""

    def __init__(self) -> None:
        self._users: set[str] = set()
        self._session: "SparkSession | None" = None

    def open(self, who: str, folder: Path) -> "SparkSession":
        """The session, started if it does not run."""
        from pyspark.sql import SparkSession

        self._users.add(who)
        if self._session is None:
            os.environ["PYSPARK_PYTHON"] = sys.executable
            builder = SparkSession.builder.master("local[*]").appName("bench")
            for name, value in {**_SETTINGS, "spark.sql.warehouse.dir": str(folder / "warehouse")}.items():
                builder = builder.config(name, value)
            self._session = builder.getOrCreate()
        return self._session

    def close(self, who: str) -> None:
        """Stops the session once no user has it open."""
        self._users.discard(who)
        if not self._users and self._session is not None:
            session, self._session = self._session, None
            session.stop()


_SHARED = _Shared()


class _Spark(Peer):
    """The engine that the published model was built on."""

    view: ClassVar[str]

    def build(self) -> None:
        if importlib.util.find_spec("pyspark") is None:
            raise Unavailable("PySpark is not installed; it is in benches/tables/requirements.txt")
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise Unavailable("PySpark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")

    def open(self) -> None:
        self._session = _SHARED.open(self.name, self.folder.parent / "spark")
        self._session.read.parquet(str(self._rows())).createOrReplaceTempView(self.view)

    def close(self) -> None:
        _SHARED.close(self.name)

    def ask(self, question: Question) -> pa.Table:
        return self._session.sql(sql(question, self.view, real="FLOAT")).toArrow()

    def _rows(self) -> Path:
        return self.dataset.z_ordered

    def bytes_on_disk(self) -> int:
        return self._rows().stat().st_size


class SparkParquet(_Spark):
    """Spark reading what it needs from the file each time."""

    name = "spark parquet"
    view = "particles"


class SparkWarm(_Spark):
    """Spark with its columns kept in memory once a first question has read them, for users who query one table
    repeatedly.
    """

    name = "spark warm"
    view = "particles_in_memory"
    is_only_warm = True

    def open(self) -> None:
        super().open()
        self._session.sql(f"CACHE LAZY TABLE {self.view}")

    def close(self) -> None:
        session = self.__dict__.pop("_session", None)
        try:
            if session is not None:
                session.sql(f"UNCACHE TABLE IF EXISTS {self.view}")
        finally:
            super().close()

    def _rows(self) -> Path:
        # Spark answers every read of a cached file from memory: this link gives the cached rows a name of their own, so
        # that the other view still reads Parquet.
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = self.folder / "rows.parquet"
        rows.unlink(missing_ok=True)
        rows.hardlink_to(self.dataset.z_ordered)
        return rows
