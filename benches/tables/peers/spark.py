"""PySpark on z-ordered Parquet, on all processors of this machine, answers as Arrow."""

import importlib.util
import os
import shutil
import sys

import pyarrow as pa

from ..asked.question import Question
from .base import Peer, Unavailable, sql


class Spark(Peer):
    """The engine that the published model was built on."""

    name = "spark"

    def build(self) -> None:
        if importlib.util.find_spec("pyspark") is None:
            raise Unavailable("PySpark is not installed; it is in benches/tables/requirements.txt")
        if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
            raise Unavailable("PySpark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")

    def open(self) -> None:
        from pyspark.sql import SparkSession

        os.environ["PYSPARK_PYTHON"] = sys.executable
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "6g",
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.execution.arrow.pyspark.enabled": "true",
            "spark.sql.files.maxPartitionBytes": "32m",
            "spark.driver.maxResultSize": "0",
            "spark.log.level": "ERROR",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }
        builder = SparkSession.builder.master("local[*]").appName("bench")
        for name, value in settings.items():
            builder = builder.config(name, value)
        self._session = builder.getOrCreate()
        self._session.read.parquet(str(self.dataset.z_ordered)).createOrReplaceTempView("particles")

    def close(self) -> None:
        if hasattr(self, "_session"):
            self._session.stop()

    def ask(self, question: Question) -> pa.Table:
        return self._session.sql(sql(question, "particles", real="FLOAT")).toArrow()

    def bytes_on_disk(self) -> int:
        return self.dataset.z_ordered.stat().st_size
