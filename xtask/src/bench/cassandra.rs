//! `cargo xtask bench cassandra`: prepares what the bench of tables needs and runs it. It needs a program
//! that starts and stops nodes, which is this one, and with rivals an older Spark with its Cassandra
//! connector.

use super::tables;
use crate::arguments::Arguments;
use crate::cassandra::{CONTROL, SPARK_CONNECTOR};
use crate::failure::Failure;
use crate::{run, venv};

/// Python packages of the Spark that the connector needs.
const REQUIREMENTS: &str = "benches/tables/on_cassandra/requirements-spark.txt";

/// Prepares everything and runs the bench on this terminal.
pub fn run(arguments: Arguments) -> Result<(), Failure> {
    let words = arguments.rest();
    let mut command = tables::command("tables.on_cassandra")?;
    command.env(CONTROL, std::env::current_exe().map_err(Failure::io("find this program"))?);
    if words.iter().any(|word| word == "--peers") {
        let python = venv::made("bench-spark", REQUIREMENTS)?;
        command.arg("--spark-python").arg(python).arg("--spark-jars").arg(SPARK_CONNECTOR.folder()?);
    }
    command.args(words.iter().filter(|word| *word != "--"));
    run::attached("bench cassandra", &mut command)
}
