//! An import that is killed halfway, and the rows that it had acknowledged by then.

use super::product::Product;
use super::tables::Table;
use crate::console::{Step, Verdict};
use crate::failure::Failure;
use crate::run;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Small, so that there are many acknowledgements between which the kill can fall.
const WINDOW: &str = "import.window=128KiB";

/// Imports until `kill_at` rows are acknowledged, kills the program with SIGKILL, which it cannot handle,
/// and returns how many rows it had acknowledged by then.
pub fn import_and_kill(product: &Product, table: &Table, kill_at: u64) -> Result<u64, Failure> {
    let path = table.path.to_string_lossy();
    let mut words = Product::import_words(table, &path);
    words.extend(["--progress", "json", "--set", WINDOW]);
    let mut step = Step::start(format!("import {} until {kill_at} rows are acknowledged", table.name));
    let mut command = product.command(&words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Failure::io("start atoll kv import"))?;
    let (mut acknowledged, mut killed, mut said) = (0, false, Vec::new());
    // Lines still in the pipe after the kill were acknowledged before it, so they count.
    for line in child.stderr.take().into_iter().flat_map(|stderr| BufReader::new(stderr).lines()) {
        let line = line.map_err(Failure::io("read from atoll kv import"))?;
        match acknowledged_in(&line) {
            Some(rows) => acknowledged = rows,
            None => said.push(line),
        }
        step.tick(&format!("{acknowledged} rows"));
        if acknowledged >= kill_at && !killed {
            child.kill().map_err(Failure::io("kill atoll kv import"))?;
            killed = true;
        }
    }
    let status = child.wait().map_err(Failure::io("wait for atoll kv import"))?;
    if killed && !status.success() {
        step.end(Verdict::Passed, &format!("killed with -9; {acknowledged} rows were acknowledged"));
        return Ok(acknowledged);
    }
    step.end(Verdict::Failed, &run::ended(status));
    said.iter().for_each(|line| println!("       {line}"));
    Err(Failure::Command { what: "the import that was to be killed".to_owned(), ended: run::ended(status) })
}

/// The rows in `{"progress":{"records":N,...}}`.
fn acknowledged_in(line: &str) -> Option<u64> {
    serde_json::from_str::<Value>(line).ok()?.pointer("/progress/records")?.as_u64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_rows_are_read_from_progress_lines() {
        assert_eq!(acknowledged_in(r#"{"progress":{"offset":1,"lines":2,"records":77}}"#), Some(77));
        assert_eq!(acknowledged_in("error: disk full"), None);
    }
}
