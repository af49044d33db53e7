"""A session of Spark that reads a table of Cassandra: a question a line on standard input, a line for each answer.

Runs alone, in the environment of the older Spark that the connector is for.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

import pyarrow as pa


def main() -> None:
    """Answers questions until standard input ends."""
    asked = _arguments()
    # Only answers go to standard output; all other output goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    rows = _rows(asked)
    _say(answers, {"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        started = time.perf_counter()
        chosen = rows.where(f"prio < {question['cut']}").select(*question["columns"])
        batches = chosen._collect_as_arrow()
        seconds = time.perf_counter() - started
        table = pa.Table.from_batches(batches)
        with pa.OSFile(question["answer"], "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        _say(answers, {"seconds": seconds, "rows": table.num_rows})


def _rows(asked: argparse.Namespace):  # noqa: ANN202: the type is of a package that only this environment has
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars": ",".join(str(jar) for jar in sorted(asked.jars.glob("*.jar"))),
        "spark.cassandra.connection.host": asked.host,
        "spark.cassandra.connection.port": asked.port,
        # Larger pages and smaller splits than the default: both suit a scan on one machine.
        "spark.cassandra.input.fetch.sizeInRows": "5000",
        "spark.cassandra.input.split.sizeInMB": "64",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.driver.maxResultSize": "0",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.warehouse.dir": str(asked.scratch),
    }
    builder = SparkSession.builder.master("local[*]").appName("bench")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    reader = session.read.format("org.apache.spark.sql.cassandra")
    return reader.options(keyspace=asked.keyspace, table="rows").load()


def _say(answers, said: dict) -> None:  # noqa: ANN001
    answers.write(json.dumps(said) + "\n")
    answers.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", required=True)
    parser.add_argument("--keyspace", required=True)
    parser.add_argument("--jars", type=Path, required=True)
    parser.add_argument("--scratch", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
