//! The soak ledger: seeds that ran, added up over runs, machines and months.
//!
//! One JSON line for each finished chunk of seeds, in `benches/results/soak/NAME.jsonl`. A soak may be
//! ended at any time: what it finished stays counted, and the next run goes on with fresh seeds.
//!
//! Invariant: only lines of the same format version are added up; a program raises its version when what
//! it promises changes, and the count starts again.

use crate::failure::{Failure, shown};
use crate::workspace;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;

/// Some seeds, one after the other, and how many of them failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The program that ran them.
    pub soak: String,
    /// Its format version.
    pub format: u64,
    /// The first seed.
    pub seed_from: u64,
    /// How many.
    pub seeds: u64,
    /// How many of them failed.
    pub failures: u64,
    /// The line itself, with whatever else the program has to say about the chunk.
    line: String,
}

impl Chunk {
    /// Reads a line; none if it is not about a chunk.
    pub fn parse(line: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(line).ok()?;
        let number = |field: &str| value.get(field).and_then(Value::as_u64);
        Some(Self {
            soak: value.get("soak")?.as_str()?.to_owned(),
            format: number("format")?,
            seed_from: number("seed_from")?,
            seeds: number("seeds")?,
            failures: number("failures")?,
            line: line.to_owned(),
        })
    }
}

/// What was run so far.
pub struct Ledger {
    path: PathBuf,
    chunks: Vec<Chunk>,
}

impl Ledger {
    /// Opens the ledger of one soak; a line that is none is an error that names it.
    pub fn open(name: &str) -> Result<Self, Failure> {
        let folder = workspace::root()?.join("benches/results/soak");
        std::fs::create_dir_all(&folder).map_err(Failure::io(format!("make {}", shown(&folder))))?;
        let path = folder.join(format!("{name}.jsonl"));
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(Failure::io(format!("read {}", shown(&path)))(error)),
        };
        Ok(Self { chunks: read(&text, &shown(&path))?, path })
    }

    /// Adds a finished chunk, on disk before in memory.
    pub fn add(&mut self, chunk: Chunk) -> Result<(), Failure> {
        let doing = format!("add to {}", shown(&self.path));
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .map_err(Failure::io(doing.clone()))?;
        file.write_all(format!("{}\n", chunk.line).as_bytes()).map_err(Failure::io(doing))?;
        self.chunks.push(chunk);
        Ok(())
    }

    /// The first seed that no chunk has run, whatever its format.
    pub fn next_seed(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.seed_from + chunk.seeds).max().unwrap_or(0)
    }

    /// The newest format, and the seeds and failures at it.
    pub fn totals(&self) -> (u64, u64, u64) {
        let format = self.chunks.iter().map(|chunk| chunk.format).max().unwrap_or(0);
        let at_format = self.chunks.iter().filter(|chunk| chunk.format == format);
        at_format.fold((format, 0, 0), |(_, seeds, failures), chunk| {
            (format, seeds + chunk.seeds, failures + chunk.failures)
        })
    }
}

fn read(text: &str, path: &str) -> Result<Vec<Chunk>, Failure> {
    let malformed = |number: usize| Failure::Malformed {
        what: format!("{path}:{}", number + 1),
        problem: "the line is not about a chunk of seeds".to_owned(),
    };
    text.lines()
        .enumerate()
        .map(|(number, line)| Chunk::parse(line).ok_or_else(|| malformed(number)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(format: u64, seed_from: u64, seeds: u64, failures: u64) -> String {
        format!(
            r#"{{"soak":"crash","format":{format},"seed_from":{seed_from},"seeds":{seeds},"failures":{failures},"counts":{{}}}}"#
        )
    }

    fn ledger(chunks: &[(u64, u64, u64, u64)]) -> Ledger {
        let text =
            chunks.iter().map(|&(format, from, seeds, failures)| line(format, from, seeds, failures) + "\n");
        Ledger { path: PathBuf::new(), chunks: read(&text.collect::<String>(), "a.jsonl").unwrap() }
    }

    #[test]
    fn a_line_about_a_chunk_is_kept_whole() {
        let chunk = Chunk::parse(&line(3, 100, 50, 1)).unwrap();
        assert_eq!((chunk.format, chunk.seed_from, chunk.seeds, chunk.failures), (3, 100, 50, 1));
        assert!(chunk.line.contains("counts"));
        assert_eq!(Chunk::parse("{\"soak\":\"crash\"}"), None);
        assert_eq!(Chunk::parse("seed 7 holds"), None);
    }

    #[test]
    fn only_seeds_at_the_newest_format_add_up() {
        assert_eq!(ledger(&[(1, 0, 100, 9), (2, 100, 20, 0), (2, 120, 30, 1)]).totals(), (2, 50, 1));
        assert_eq!(ledger(&[]).totals(), (0, 0, 0));
    }

    #[test]
    fn the_next_run_takes_seeds_that_none_has_run() {
        assert_eq!(ledger(&[(1, 0, 100, 0), (2, 100, 20, 0)]).next_seed(), 120);
        assert_eq!(ledger(&[]).next_seed(), 0);
    }

    #[test]
    fn a_broken_line_is_named() {
        let failure = read(&format!("{}\nx\n", line(1, 0, 1, 0)), "a.jsonl");
        assert!(failure.unwrap_err().to_string().starts_with("a.jsonl:2 is malformed"));
    }
}
