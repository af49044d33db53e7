//! The soak ledger: seeds that ran, added up over runs, machines and months.
//!
//! One JSON line for each finished chunk of seeds, in `benches/results/soak/NAME.jsonl`. A soak may be
//! ended at any time: what it finished stays counted, and the next run goes on with fresh seeds.
//!
//! Chunks that say more of each seed than one line bears are tallies, `cells` of numbers that add up: those of one commit
//! whose seeds follow each other are one line, which grows.
//!
//! Invariant: only lines of the same format version are added up; a program raises its version when what
//! it promises changes, and the count starts again.

use crate::failure::{Failure, shown};
use crate::workspace;
use serde_json::Value;
use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

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
    /// How long they took; 0 where nobody looked at a clock.
    pub seconds: u64,
    /// The line itself, with whatever else the program has to say about the chunk.
    line: String,
}

impl Chunk {
    /// A chunk that xtask ran itself.
    pub fn of(soak: &str, format: u64, seed_from: u64, seeds: u64, failures: u64) -> Self {
        let line = serde_json::json!({
            "soak": soak, "format": format, "seed_from": seed_from, "seeds": seeds, "failures": failures,
        });
        Self { soak: soak.to_owned(), format, seed_from, seeds, failures, seconds: 0, line: line.to_string() }
    }

    /// The chunk, and how long it took.
    pub fn taking(mut self, time: Duration) -> Self {
        self.seconds = time.as_secs();
        if let Some(mut fields) = self.fields() {
            fields.insert("seconds".to_owned(), self.seconds.into());
            self.line = Value::Object(fields).to_string();
        }
        self
    }

    /// The chunk with which commit ran it, unless it says so itself, and when.
    fn stamped(mut self, commit: &str, date: &str) -> Self {
        if let Some(mut fields) = self.fields() {
            fields.entry("commit").or_insert_with(|| commit.into());
            fields.entry("date").or_insert_with(|| date.into());
            self.line = Value::Object(fields).to_string();
        }
        self
    }

    /// This chunk and the one after it as one, if both are tallies of one commit.
    fn with(&self, next: &Self) -> Option<Self> {
        let is_next = self.soak == next.soak
            && self.format == next.format
            && self.seed_from + self.seeds == next.seed_from;
        let (mut line, other) = (self.fields()?, next.fields()?);
        if !is_next || line.get("commit")? != other.get("commit")? {
            return None;
        }
        let Value::Object(cells) = line.get_mut("cells")? else { return None };
        for (cell, numbers) in other.get("cells")?.as_object()? {
            let sum = cells.get_mut(cell)?.as_array_mut()?;
            for (sum, number) in sum.iter_mut().zip(numbers.as_array()?) {
                *sum = (sum.as_u64()? + number.as_u64()?).into();
            }
        }
        let (seeds, failures) = (self.seeds + next.seeds, self.failures + next.failures);
        line.extend([
            ("seeds".to_owned(), seeds.into()),
            ("failures".to_owned(), failures.into()),
            ("seconds".to_owned(), (self.seconds + next.seconds).into()),
            ("date".to_owned(), other.get("date")?.clone()),
        ]);
        Self::parse(&Value::Object(line).to_string())
    }

    fn fields(&self) -> Option<serde_json::Map<String, Value>> {
        match serde_json::from_str(&self.line) {
            Ok(Value::Object(fields)) => Some(fields),
            _ => None,
        }
    }

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
            seconds: number("seconds").unwrap_or(0),
            line: line.to_owned(),
        })
    }
}

/// What the chunks of one format add up to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The format.
    pub format: u64,
    /// Seeds that were run.
    pub seeds: u64,
    /// How many of them failed.
    pub failures: u64,
    /// How long those took whose chunks say so.
    pub seconds: u64,
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} seeds, {} failures", self.seeds, self.failures)?;
        match self.seconds {
            0 => Ok(()),
            seconds => write!(f, ", {} h {:02} min of them timed", seconds / 3600, seconds / 60 % 60),
        }
    }
}

/// What was run so far.
pub struct Ledger {
    path: PathBuf,
    chunks: Vec<Chunk>,
    commit: String,
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
        Ok(Self { chunks: read(&text, &shown(&path))?, path, commit: commit()? })
    }

    /// Adds a finished chunk, on disk before in memory.
    pub fn add(&mut self, chunk: Chunk) -> Result<(), Failure> {
        let chunk = chunk.stamped(&self.commit, &date());
        match self.chunks.last().and_then(|last| last.with(&chunk)) {
            Some(grown) => self.replace_last(grown),
            None => self.append(chunk),
        }
    }

    fn append(&mut self, chunk: Chunk) -> Result<(), Failure> {
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

    /// Writes the ledger beside itself and then in its place: whoever ends this leaves one or the other.
    fn replace_last(&mut self, grown: Chunk) -> Result<(), Failure> {
        let doing = format!("rewrite {}", shown(&self.path));
        let before = &self.chunks[..self.chunks.len().saturating_sub(1)];
        let lines = before.iter().chain([&grown]).map(|chunk| format!("{}\n", chunk.line));
        let beside = self.path.with_extension("jsonl.new");
        std::fs::write(&beside, lines.collect::<String>()).map_err(Failure::io(doing.clone()))?;
        std::fs::rename(&beside, &self.path).map_err(Failure::io(doing))?;
        self.chunks.pop();
        self.chunks.push(grown);
        Ok(())
    }

    /// The first seed that no chunk has run, whatever its format.
    pub fn next_seed(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.seed_from + chunk.seeds).max().unwrap_or(0)
    }

    /// What was run at the newest format.
    pub fn totals(&self) -> Totals {
        let format = self.chunks.iter().map(|chunk| chunk.format).max().unwrap_or(0);
        let at_format = self.chunks.iter().filter(|chunk| chunk.format == format);
        at_format.fold(Totals { format, ..Totals::default() }, |totals, chunk| Totals {
            seeds: totals.seeds + chunk.seeds,
            failures: totals.failures + chunk.failures,
            seconds: totals.seconds + chunk.seconds,
            ..totals
        })
    }
}

/// The commit that is checked out; a tree that differs from it says so.
fn commit() -> Result<String, Failure> {
    let mut command = std::process::Command::new("git");
    command.args(["describe", "--always", "--dirty", "--exclude", "*"]).current_dir(workspace::root()?);
    crate::run::captured("git describe", &mut command).map(|text| text.trim().to_owned())
}

/// Today in UTC, as `2026-01-31`.
fn date() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    date_of(since.map_or(0, |since| since.as_secs() / 86_400))
}

/// The date so many days after 1970-01-01.
fn date_of(mut days: u64) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
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
        Ledger {
            path: PathBuf::new(),
            commit: String::new(),
            chunks: read(&text.collect::<String>(), "a.jsonl").unwrap(),
        }
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
    fn days_are_told_as_dates() {
        assert_eq!(date_of(0), "1970-01-01");
        assert_eq!(date_of(11_016), "2000-02-29");
        assert_eq!(date_of(20_453), "2025-12-31");
    }

    #[test]
    fn a_line_in_the_ledger_names_its_commit_and_its_day() {
        let stamped = Chunk::of("crash", 1, 100, 50, 0).stamped("abc1234", "2026-01-31");
        let line = stamped.line.clone();
        assert!(line.contains("\"commit\":\"abc1234\"") && line.contains("2026-01-31"), "{line}");
        assert_eq!(Chunk::parse(&line).map(|chunk| chunk.seed_from), Some(100));
        // What was run elsewhere says by which commit.
        assert_eq!(stamped.stamped("def5678", "2026-02-01").line, line);
    }

    fn tallied(commit: &str, seed_from: u64, right: u64) -> Chunk {
        let line = format!(
            r#"{{"soak":"coverage","format":1,"seed_from":{seed_from},"seeds":20,"failures":0,"cells":{{"a":[20,{right},3]}}}}"#
        );
        Chunk::parse(&line).unwrap().stamped(commit, "2026-01-31")
    }

    #[test]
    fn tallies_of_one_commit_grow_in_one_line() {
        let path = std::env::temp_dir().join(format!("atoll-ledger-{}.jsonl", std::process::id()));
        let mut ledger = Ledger { path: path.clone(), commit: String::new(), chunks: Vec::new() };
        for (commit, seed_from, right) in [("a", 0, 19), ("a", 20, 18), ("b", 40, 20), ("b", 80, 20)] {
            ledger.add(tallied(commit, seed_from, right)).unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        // Another commit, and seeds that leave some out, begin another line.
        assert_eq!(text.lines().count(), 3);
        let first = text.lines().next().unwrap();
        assert!(first.contains(r#""a":[40,37,6]"#) && first.contains(r#""seeds":40"#), "{first}");
        assert_eq!((ledger.next_seed(), ledger.totals().seeds), (100, 80));
        assert_eq!(read(&text, "a.jsonl").unwrap(), ledger.chunks);
    }

    #[test]
    fn only_seeds_at_the_newest_format_add_up() {
        let totals = ledger(&[(1, 0, 100, 9), (2, 100, 20, 0), (2, 120, 30, 1)]).totals();
        assert_eq!(totals, Totals { format: 2, seeds: 50, failures: 1, seconds: 0 });
        assert_eq!(ledger(&[]).totals(), Totals::default());
    }

    #[test]
    fn the_time_that_chunks_took_adds_up() {
        let timed = |from, seconds| Chunk::of("crash", 1, from, 50, 0).taking(Duration::from_secs(seconds));
        let text =
            [timed(0, 3000), timed(50, 4260), Chunk::of("crash", 1, 100, 50, 0)].map(|chunk| chunk.line);
        let chunks = read(&text.join("\n"), "a.jsonl").unwrap();
        let ledger = Ledger { path: PathBuf::new(), commit: String::new(), chunks };
        assert_eq!(ledger.totals().to_string(), "150 seeds, 0 failures, 2 h 01 min of them timed");
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
