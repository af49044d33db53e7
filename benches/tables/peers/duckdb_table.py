"""DuckDB with a table of its own, loaded in z-order, so that its zone maps skip most of it."""

import duckdb
import pyarrow as pa

from ..asked.question import Question
from .base import Peer, sql


class DuckdbTable(Peer):
    """The strongest rival among general databases."""

    name = "duckdb table"

    @property
    def _file(self) -> str:
        return str(self.folder / "rows.duckdb")

    def build(self) -> None:
        done = self.folder / "built"
        if done.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        for old in self.folder.iterdir():
            old.unlink()
        with duckdb.connect(self._file) as database:
            database.execute("SET preserve_insertion_order = true")
            database.execute(f"CREATE TABLE particles AS SELECT * FROM read_parquet('{self.dataset.z_ordered}')")
            database.execute("CHECKPOINT")
        done.touch()

    def open(self) -> None:
        self._database = duckdb.connect(self._file, read_only=True)

    def close(self) -> None:
        if hasattr(self, "_database"):
            self._database.close()

    def ask(self, question: Question) -> pa.Table:
        return self._database.sql(sql(question, "particles", real="FLOAT")).to_arrow_table()
