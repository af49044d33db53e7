//! The soak ledger: which seeds ran, added up over runs, machines and months.
//!
//! The file `benches/results/soak/NAME.jsonl` has one JSON line for each finished chunk of seeds. A soak
//! may be ended at any time: finished chunks stay counted, and the next run continues with fresh seeds.
//! Only one run at a time can open a ledger.
//!
//! A chunk may be a tally: its line has `cells`, numbers that add up. Adjacent tallies of one commit are
//! merged into one line, which grows.
//!
//! Invariant: only lines of the same format version are added up. A program raises its version when its
//! promises change, and the count starts again.
//! Invariant: no seed is counted twice.

use crate::failure::{Failure, shown};
use crate::lock::Lock;
use crate::workspace;
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A range of consecutive seeds, and how many of them failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The program that ran them.
    pub soak: String,
    /// Its format version.
    pub format: u64,
    /// The first seed.
    pub seed_from: u64,
    /// How many seeds.
    pub seeds: u64,
    /// How many of them failed.
    pub failures: u64,
    /// How many seconds they took; 0 if the time was not measured.
    pub seconds: u64,
    /// The line itself, with anything else that the program reports about the chunk.
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

    /// The chunk with its duration.
    pub fn taking(mut self, time: Duration) -> Self {
        self.seconds = time.as_secs();
        if let Some(mut fields) = self.fields() {
            fields.insert("seconds".to_owned(), self.seconds.into());
            self.line = Value::Object(fields).to_string();
        }
        self
    }

    /// The chunk with at least this many failures.
    pub fn failing(mut self, failures: u64) -> Self {
        if let Some(mut fields) = self.fields().filter(|_| failures > self.failures) {
            self.failures = failures;
            fields.insert("failures".to_owned(), failures.into());
            self.line = Value::Object(fields).to_string();
        }
        self
    }

    /// The first seed after it.
    fn end(&self) -> u64 {
        self.seed_from.saturating_add(self.seeds)
    }

    /// The chunk with the date, and with the commit unless the line names one itself.
    fn stamped(mut self, commit: &str, date: &str) -> Self {
        if let Some(mut fields) = self.fields() {
            fields.entry("commit").or_insert_with(|| commit.into());
            fields.entry("date").or_insert_with(|| date.into());
            self.line = Value::Object(fields).to_string();
        }
        self
    }

    /// Merges this chunk with the one after it, if both are tallies of one commit.
    fn with(&self, next: &Self) -> Option<Self> {
        let is_next = self.soak == next.soak && self.format == next.format && self.end() == next.seed_from;
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

    /// Parses a line; `None` if it is not about a chunk.
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

/// The sums over all chunks of one format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The format.
    pub format: u64,
    /// Seeds that were run.
    pub seeds: u64,
    /// How many of them failed.
    pub failures: u64,
    /// How many seconds those chunks took that report it.
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

/// The seeds run so far, and the file that lists them.
pub struct Ledger {
    path: PathBuf,
    chunks: Vec<Chunk>,
    commit: String,
    _lock: Lock,
}

impl Ledger {
    /// Opens the ledger of one soak and locks it for as long as this lives. A malformed line is an error
    /// that names it.
    pub fn open(name: &str) -> Result<Self, Failure> {
        Self::at(workspace::root()?.join("benches/results/soak").join(format!("{name}.jsonl")), commit()?)
    }

    fn at(path: PathBuf, commit: String) -> Result<Self, Failure> {
        let lock = Lock::take(&path.with_extension("lock"), "add to this ledger")?;
        Ok(Self { chunks: read_file(&path)?, path, commit, _lock: lock })
    }

    #[cfg(test)]
    pub fn for_test(path: PathBuf) -> Self {
        Self::at(path, String::new()).unwrap()
    }

    /// Adds a finished chunk, on disk before in memory.
    pub fn add(&mut self, chunk: Chunk) -> Result<(), Failure> {
        self.add_all(vec![chunk])
    }

    /// Adds finished chunks: all of them or, if one repeats a seed, none.
    pub fn add_all(&mut self, added: Vec<Chunk>) -> Result<(), Failure> {
        // Something other than this program may have added lines, such as a commit made on another machine.
        self.chunks = read_file(&self.path)?;
        let (before, mut chunks, mut lines) = (self.chunks.len(), self.chunks.clone(), String::new());
        let mut is_at_the_end = true;
        for chunk in added {
            if chunk.seed_from < next_seed(&chunks) {
                return Err(self.counted_already(&chunk));
            }
            let chunk = chunk.stamped(&self.commit, &date());
            match chunks.last().and_then(|last| last.with(&chunk)) {
                Some(grown) => {
                    is_at_the_end = false;
                    chunks.pop();
                    chunks.push(grown);
                }
                None => {
                    lines.push_str(&format!("{}\n", chunk.line));
                    chunks.push(chunk);
                }
            }
        }
        match is_at_the_end && chunks.len() == before + 1 {
            true => self.append(&lines)?,
            false => self.replace(&chunks)?,
        }
        self.chunks = chunks;
        Ok(())
    }

    fn counted_already(&self, chunk: &Chunk) -> Failure {
        Failure::Malformed {
            what: format!("the chunk of seeds from {} on", chunk.seed_from),
            problem: format!("{} has counted seeds below {}", shown(&self.path), next_seed(&self.chunks)),
        }
    }

    fn append(&self, line: &str) -> Result<(), Failure> {
        let doing = format!("add to {}", shown(&self.path));
        let mut file = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.path)
            .map_err(Failure::io(doing.clone()))?;
        file.write_all(line.as_bytes()).map_err(Failure::io(doing))
    }

    /// Writes a new file and renames it over the ledger, so that a crash leaves either the old or the new
    /// one.
    fn replace(&self, chunks: &[Chunk]) -> Result<(), Failure> {
        let doing = format!("rewrite {}", shown(&self.path));
        let lines = chunks.iter().map(|chunk| format!("{}\n", chunk.line));
        let beside = self.path.with_extension("jsonl.new");
        std::fs::write(&beside, lines.collect::<String>()).map_err(Failure::io(doing.clone()))?;
        std::fs::rename(&beside, &self.path).map_err(Failure::io(doing))
    }

    /// The first seed that no chunk has run, in any format.
    pub fn next_seed(&self) -> u64 {
        next_seed(&self.chunks)
    }

    /// The totals of one format: the program's own, of which the ledger may have no line yet.
    pub fn totals(&self, format: u64) -> Totals {
        let at_format = self.chunks.iter().filter(|chunk| chunk.format == format);
        at_format.fold(Totals { format, ..Totals::default() }, |totals, chunk| Totals {
            seeds: totals.seeds + chunk.seeds,
            failures: totals.failures + chunk.failures,
            seconds: totals.seconds + chunk.seconds,
            ..totals
        })
    }
}

/// The commit that is checked out, marked if the tree differs from it.
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

/// The date `days` days after 1970-01-01.
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

fn next_seed(chunks: &[Chunk]) -> u64 {
    chunks.iter().map(Chunk::end).max().unwrap_or(0)
}

/// The chunks of a file; empty if there is no file yet.
fn read_file(path: &Path) -> Result<Vec<Chunk>, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => read(&text, &shown(path)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Failure::io(format!("read {}", shown(path)))(error)),
    }
}

/// Parses chunks; none may begin before the previous one ends.
pub fn read(text: &str, path: &str) -> Result<Vec<Chunk>, Failure> {
    let malformed = |number: usize, problem: String| Failure::Malformed {
        what: format!("{path}:{}", number + 1),
        problem,
    };
    let (mut chunks, mut next) = (Vec::new(), 0);
    for (number, line) in text.lines().enumerate() {
        let Some(chunk) = Chunk::parse(line) else {
            return Err(malformed(number, "the line is not about a chunk of seeds".to_owned()));
        };
        if chunk.seed_from < next {
            return Err(malformed(number, format!("lines before it have counted seeds below {next}")));
        }
        next = chunk.end();
        chunks.push(chunk);
    }
    Ok(chunks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    fn line(format: u64, seed_from: u64, seeds: u64, failures: u64) -> String {
        format!(
            r#"{{"soak":"crash","format":{format},"seed_from":{seed_from},"seeds":{seeds},"failures":{failures},"counts":{{}}}}"#
        )
    }

    /// A ledger in a temporary folder, which is removed with it.
    struct TemporaryLedger {
        ledger: Ledger,
        folder: PathBuf,
    }

    impl TemporaryLedger {
        fn with(text: &str) -> Self {
            static COUNT: AtomicU64 = AtomicU64::new(0);
            let number = COUNT.fetch_add(1, Ordering::Relaxed);
            let folder = std::env::temp_dir().join(format!("atoll-ledger-{}-{number}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let path = folder.join("a.jsonl");
            std::fs::write(&path, text).unwrap();
            Self { ledger: Ledger::at(path, String::new()).unwrap(), folder }
        }

        fn text(&self) -> String {
            std::fs::read_to_string(&self.ledger.path).unwrap()
        }
    }

    impl Drop for TemporaryLedger {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.folder));
        }
    }

    fn kept(chunks: &[(u64, u64, u64, u64)]) -> TemporaryLedger {
        let text =
            chunks.iter().map(|&(format, from, seeds, failures)| line(format, from, seeds, failures) + "\n");
        TemporaryLedger::with(&text.collect::<String>())
    }

    #[test]
    fn a_ledger_that_another_run_has_is_refused() {
        let kept = kept(&[(1, 0, 100, 0)]);
        assert!(Ledger::at(kept.ledger.path.clone(), String::new()).is_err());
    }

    #[test]
    fn a_seed_is_counted_once() {
        let twice = format!("{}\n{}\n", line(1, 0, 100, 0), line(2, 99, 10, 0));
        let failure = read(&twice, "a.jsonl").unwrap_err().to_string();
        assert!(failure.starts_with("a.jsonl:2 is malformed"), "{failure}");
        let mut kept = kept(&[(1, 0, 100, 0)]);
        assert!(kept.ledger.add(Chunk::of("crash", 1, 99, 10, 0)).is_err());
        assert!(kept.ledger.add(Chunk::of("crash", 1, 100, 10, 0)).is_ok());
    }

    #[test]
    fn chunks_are_added_together_or_not_at_all() {
        let mut kept = kept(&[(1, 0, 100, 0)]);
        let before = kept.text();
        let chunks =
            [(100, 10), (110, 10), (115, 10)].map(|(from, seeds)| Chunk::of("crash", 1, from, seeds, 0));
        assert!(kept.ledger.add_all(chunks.to_vec()).is_err());
        assert_eq!((kept.text(), kept.ledger.next_seed()), (before, 100));
        kept.ledger.add_all(chunks[..2].to_vec()).unwrap();
        assert_eq!((kept.text().lines().count(), kept.ledger.next_seed()), (3, 120));
    }

    #[test]
    fn lines_that_came_by_another_way_stay() {
        let mut kept = TemporaryLedger::with("");
        kept.ledger.add(tallied("a", 0, 19)).unwrap();
        let other = tallied("a", 20, 18).line + "\n";
        std::fs::write(&kept.ledger.path, kept.text() + &other).unwrap();
        assert!(kept.ledger.add(tallied("a", 20, 18)).is_err(), "they were counted meanwhile");
        kept.ledger.add(tallied("a", 40, 18)).unwrap();
        assert_eq!(kept.ledger.totals(1).seeds, 60);
        assert_eq!(read(&kept.text(), "a.jsonl").unwrap(), kept.ledger.chunks);
    }

    #[test]
    fn a_chunk_whose_run_failed_says_so() {
        let chunk = tallied("a", 0, 19).failing(1);
        assert_eq!(Chunk::parse(&chunk.line).map(|chunk| chunk.failures), Some(1));
        assert_eq!(Chunk::of("crash", 1, 0, 9, 3).failing(1).failures, 3);
    }

    #[test]
    fn every_ledger_that_is_kept_can_be_read() {
        let folder = workspace::root().unwrap().join("benches/results/soak");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        for path in files.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")) {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            assert!(read_file(&path).unwrap().iter().all(|chunk| chunk.soak == name), "{name}");
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
        // A chunk that was run elsewhere names its own commit.
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
        let mut kept = TemporaryLedger::with("");
        for (commit, seed_from, right) in [("a", 0, 19), ("a", 20, 18), ("b", 40, 20), ("b", 80, 20)] {
            kept.ledger.add(tallied(commit, seed_from, right)).unwrap();
        }
        let text = kept.text();
        // Another commit begins a new line, and so does a gap in the seeds.
        assert_eq!(text.lines().count(), 3);
        let first = text.lines().next().unwrap();
        assert!(first.contains(r#""a":[40,37,6]"#) && first.contains(r#""seeds":40"#), "{first}");
        assert_eq!((kept.ledger.next_seed(), kept.ledger.totals(1).seeds), (100, 80));
        assert_eq!(read(&text, "a.jsonl").unwrap(), kept.ledger.chunks);
    }

    #[test]
    fn only_seeds_at_the_format_of_the_program_add_up() {
        let kept = kept(&[(1, 0, 100, 9), (2, 100, 20, 0), (2, 120, 30, 1)]);
        assert_eq!(kept.ledger.totals(2), Totals { format: 2, seeds: 50, failures: 1, seconds: 0 });
        assert_eq!(kept.ledger.totals(3), Totals { format: 3, ..Totals::default() }, "none ran yet");
    }

    #[test]
    fn the_time_that_chunks_took_adds_up() {
        let timed = |from, seconds| Chunk::of("crash", 1, from, 50, 0).taking(Duration::from_secs(seconds));
        let text =
            [timed(0, 3000), timed(50, 4260), Chunk::of("crash", 1, 100, 50, 0)].map(|chunk| chunk.line);
        let kept = TemporaryLedger::with(&text.join("\n"));
        assert_eq!(kept.ledger.totals(1).to_string(), "150 seeds, 0 failures, 2 h 01 min of them timed");
    }

    #[test]
    fn the_next_run_takes_seeds_that_none_has_run() {
        assert_eq!(kept(&[(1, 0, 100, 0), (2, 100, 20, 0)]).ledger.next_seed(), 120);
        assert_eq!(kept(&[]).ledger.next_seed(), 0);
    }

    #[test]
    fn a_broken_line_is_named() {
        let failure = read(&format!("{}\nx\n", line(1, 0, 1, 0)), "a.jsonl");
        assert!(failure.unwrap_err().to_string().starts_with("a.jsonl:2 is malformed"));
    }
}
