//! LAMMPS text dumps: snapshots of atoms, one line for each atom.
//!
//! Every row has the columns of `ITEM: ATOMS`, preceded by `step` and, if the dump has it, `time`.
//!
//! Invariant: a snapshot that is cut off is an error, never a smaller snapshot.
//! Invariant: a snapshot that repeats right after itself is an error, unless the caller accepts both. LAMMPS
//! writes a snapshot again when a run that appends to its dump is restarted, and its atoms would be there
//! twice.

use super::ReadOptions;
use super::source::{Input, RecordStream};
use super::text::Records;
use crate::{Format, RowFileError};
use std::io::{BufRead, BufReader};

/// The records of a dump.
pub(super) struct Dump {
    file: String,
    lines: BufReader<RecordStream>,
    /// The number of lines read.
    line_number: u64,
    /// The first line of the snapshot whose head was read last.
    snapshot_line: u64,
    line: Vec<u8>,
    names: Vec<String>,
    /// The fields that come from the head of the snapshot.
    head: Vec<Vec<u8>>,
    /// The byte ranges of the fields in the line of an atom.
    fields: Vec<(usize, usize)>,
    /// The number of atoms of the snapshot that are still to come.
    left: u64,
    may_repeat_steps: bool,
}

impl Dump {
    pub(super) fn open(input: &Input, options: &ReadOptions) -> Result<Self, RowFileError> {
        Self::new(input.name(), input.stream(Format::LammpsDump)?, options)
    }

    pub(super) fn new(
        file: String,
        source: RecordStream,
        options: &ReadOptions,
    ) -> Result<Self, RowFileError> {
        let mut dump = Self {
            file,
            lines: BufReader::with_capacity(64 << 10, source),
            line_number: 0,
            snapshot_line: 1,
            line: Vec::new(),
            names: Vec::new(),
            head: Vec::new(),
            fields: Vec::new(),
            left: 0,
            may_repeat_steps: options.may_repeat_steps,
        };
        if !dump.next_snapshot()? {
            return Err(dump.malformed("there is no snapshot in it"));
        }
        Ok(dump)
    }

    fn malformed(&self, problem: &str) -> RowFileError {
        let problem = format!("line {}: {problem}", self.line_number.max(1));
        RowFileError::Malformed { file: self.file.clone(), format: Format::LammpsDump, problem }
    }

    fn torn(&self, problem: impl Into<String>) -> RowFileError {
        RowFileError::Torn { file: self.file.clone(), problem: problem.into() }
    }

    /// Reads a line; false at the end of the file. A last line without a line end is one that was cut off.
    fn read_line(&mut self) -> Result<bool, RowFileError> {
        self.line.clear();
        let read_error = |source| RowFileError::Read { file: self.file.clone(), source };
        let consumed = self.lines.read_until(b'\n', &mut self.line).map_err(read_error)?;
        if consumed == 0 {
            return Ok(false);
        }
        // Earlier lines are never asked for again, as lines are counted here.
        let read = self.lines.get_ref().bytes_read();
        self.lines.get_mut().release_to(read);
        self.line_number += 1;
        if self.line.pop() != Some(b'\n') {
            return Err(self.torn(format!("line {} has no end", self.line_number)));
        }
        if self.line.last() == Some(&b'\r') {
            self.line.pop();
        }
        Ok(true)
    }

    fn missing(&self) -> String {
        let step = String::from_utf8_lossy(self.head.first().map_or(&[], Vec::as_slice));
        format!("{} atoms of step {step} are missing", self.left)
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.line).unwrap_or("\u{fffd}").trim()
    }

    fn need_line(&mut self) -> Result<(), RowFileError> {
        if self.read_line()? { Ok(()) } else { Err(self.torn("it ends in the head of a snapshot")) }
    }

    /// Reads the head of the next snapshot; false at the end of the file.
    fn next_snapshot(&mut self) -> Result<bool, RowFileError> {
        let (mut step, mut time, mut atoms) = (None, None, None);
        let (mut is_first, mut first_line) = (true, 0);
        loop {
            if is_first {
                if !self.read_line()? {
                    return Ok(false);
                }
            } else {
                self.need_line()?;
            }
            if self.text().is_empty() && is_first {
                continue;
            }
            if is_first {
                (is_first, first_line) = (false, self.line_number);
            }
            let Some(item) = self.text().strip_prefix("ITEM:").map(|item| item.trim().to_owned()) else {
                return Err(self.malformed("`ITEM:` was expected"));
            };
            match item.split_whitespace().next().unwrap_or_default() {
                "TIMESTEP" => step = Some(self.step_line()?),
                "TIME" => time = Some(self.value_line()?),
                "UNITS" => drop(self.value_line()?),
                "NUMBER" => {
                    let text = self.value_line()?;
                    let count = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
                    atoms = Some(count.ok_or_else(|| self.malformed("a number of atoms was expected"))?);
                }
                "BOX" => (0..3).try_for_each(|_| self.need_line())?,
                "ATOMS" => {
                    let names = item.split_whitespace().skip(1).map(str::to_owned).collect();
                    self.begin(step, time, atoms, names)?;
                    self.snapshot_line = first_line;
                    return Ok(true);
                }
                other => return Err(self.malformed(&format!("`ITEM: {other}` is not known"))),
            }
        }
    }

    fn value_line(&mut self) -> Result<Vec<u8>, RowFileError> {
        self.need_line()?;
        Ok(self.text().as_bytes().to_vec())
    }

    /// The step of a snapshot that begins, while `head` still belongs to the one before it.
    fn step_line(&mut self) -> Result<Vec<u8>, RowFileError> {
        let step = self.value_line()?;
        if self.may_repeat_steps || self.head.first() != Some(&step) {
            return Ok(step);
        }
        let (line, step) = (self.line_number, String::from_utf8_lossy(&step));
        Err(RowFileError::Misfit {
            file: self.file.clone(),
            problem: format!("line {line}: a second snapshot of step {step} right behind the first"),
            hint: "LAMMPS writes a snapshot again where a run that appends to its dump is restarted: cut one of the two \
                   out, or keep both with `atoll table import --parts`",
        })
    }

    fn begin(
        &mut self,
        step: Option<Vec<u8>>,
        time: Option<Vec<u8>>,
        atoms: Option<u64>,
        columns: Vec<String>,
    ) -> Result<(), RowFileError> {
        let step = step.ok_or_else(|| self.malformed("the snapshot has no `ITEM: TIMESTEP`"))?;
        self.left = atoms.ok_or_else(|| self.malformed("the snapshot has no `ITEM: NUMBER OF ATOMS`"))?;
        let mut names = vec!["step".to_owned()];
        self.head = vec![step];
        if let Some(time) = time {
            names.push("time".to_owned());
            self.head.push(time);
        }
        names.extend(columns);
        if self.names.is_empty() {
            self.names = names;
        } else if self.names != names {
            return Err(self.malformed("the columns differ from those of the first snapshot"));
        }
        Ok(())
    }
}

impl Records for Dump {
    fn file(&self) -> &str {
        &self.file
    }

    fn names(&self) -> &[String] {
        &self.names
    }

    fn tells_columns_early(&self) -> bool {
        true
    }

    fn advance(&mut self) -> Result<bool, RowFileError> {
        while self.left == 0 {
            if !self.next_snapshot()? {
                return Ok(false);
            }
        }
        if !self.read_line()? {
            return Err(self.torn(self.missing()));
        }
        // A run that was killed within a snapshot and appends after its restart leaves the rest of it out.
        if self.line.starts_with(b"ITEM:") {
            return Err(self.torn(format!("line {}: {} before it", self.line_number, self.missing())));
        }
        self.left -= 1;
        self.fields.clear();
        let mut start = None;
        for (place, byte) in self.line.iter().enumerate() {
            match (byte.is_ascii_whitespace(), start) {
                (true, Some(from)) => {
                    self.fields.push((from, place));
                    start = None;
                }
                (false, None) => start = Some(place),
                _ => {}
            }
        }
        self.fields.extend(start.map(|from| (from, self.line.len())));
        Ok(true)
    }

    fn len(&self) -> usize {
        self.head.len() + self.fields.len()
    }

    fn field(&self, place: usize) -> &[u8] {
        match self.head.get(place) {
            Some(field) => field,
            None => {
                let (from, to) = self.fields.get(place - self.head.len()).copied().unwrap_or_default();
                &self.line[from..to]
            }
        }
    }

    fn line(&self) -> u64 {
        self.line_number
    }

    fn snapshot_line(&self) -> u64 {
        self.snapshot_line
    }

    fn bytes_read(&self) -> u64 {
        self.lines.get_ref().bytes_read()
    }
}
