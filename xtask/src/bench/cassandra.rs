//! `cargo xtask bench cassandra`: what the bench of tables needs, a program that starts and ends nodes, which
//! is this one, and with rivals the older Spark and its connector.

use super::tables;
use crate::arguments::Arguments;
use crate::cassandra::{CONTROL, SPARK_CONNECTOR};
use crate::failure::Failure;
use crate::{run, venv};

/// What the connector's Spark needs of Python.
const REQUIREMENTS: &str = "benches/tables/on_cassandra/requirements-spark.txt";

/// Makes everything ready, and runs the bench with this terminal as its own.
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
