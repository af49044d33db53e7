"""PySpark on all processors of this machine, answers as Arrow: on z-ordered Parquet, and on a table in its memory.

Both ask one session, which ends when neither has it open.
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
    # More than half of it is for tables in memory and what questions need: the whole table, in plain columns 41 bytes a row,
    # has room there five times. PostgreSQL's 3 GB and Atoll's 4 GiB are beside it on a machine of 24 GiB.
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
    """The one session; two in a process would be one context all the same."""

    def __init__(self) -> None:
        self._users: set[str] = set()
        self._session: "SparkSession | None" = None

    def open(self, who: str, folder: Path) -> "SparkSession":
        """It, started if it does not run."""
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
        """Stops it if nobody else has it open."""
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
    """Reads what it needs of the file each time."""

    name = "spark parquet"
    view = "particles"


class SparkWarm(_Spark):
    """As those ask who ask the same table again and again: its columns stay in memory, once a first question read them."""

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
        # Spark answers from memory whatever reads the very file that is kept there: this one has a name of its own, so that
        # the other view still reads Parquet.
        self.folder.mkdir(parents=True, exist_ok=True)
        rows = self.folder / "rows.parquet"
        rows.unlink(missing_ok=True)
        rows.hardlink_to(self.dataset.z_ordered)
        return rows
