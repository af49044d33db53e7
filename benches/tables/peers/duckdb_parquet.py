"""DuckDB on z-ordered Parquet, with its cache of footers on."""

import duckdb
import pyarrow as pa

from ..asked.question import Question
from .base import Peer, sql


class DuckdbParquet(Peer):
    """DuckDB without a load step and without a format of its own."""

    name = "duckdb parquet"

    def build(self) -> None:
        """Does nothing: the dataset's own file is enough."""

    def open(self) -> None:
        self._database = duckdb.connect()
        self._database.execute("SET parquet_metadata_cache = true")

    def close(self) -> None:
        if hasattr(self, "_database"):
            self._database.close()

    def ask(self, question: Question) -> pa.Table:
        source = f"read_parquet('{self.dataset.z_ordered}')"
        return self._database.sql(sql(question, source, real="FLOAT")).to_arrow_table()

    def bytes_on_disk(self) -> int:
        return self.dataset.z_ordered.stat().st_size
