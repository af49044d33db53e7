//! Verbs on one cell, and `delete`.

use crate::cells::{EncodingArguments, bytes_object, cell_name};
use crate::session::Access;
use crate::text::Encoding;
use crate::verbs::kv::CellArguments;
use crate::{Failure, Session};
use atoll_store::{Batch, ByteRange, Cell, ReadOptions, SortRange, StoreError, Written};
use clap::Args;
use serde_json::{Value, json};

/// `atoll kv put`
#[derive(Args, Debug)]
pub struct Put {
    #[command(flatten)]
    cell: CellArguments,
    /// Value; `-` reads it from standard input
    #[arg(allow_negative_numbers = true)]
    value: String,
}

impl Put {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let (partition, sort) = self.cell.keys()?;
        self.cell.encoding.check_value(&self.value)?;
        let store = session.store(Access::Create).await?;
        let value = self.cell.encoding.value(&self.value, store.capabilities().limits.value_bytes).await?;
        let written = store.put(Cell::new(&partition, &sort), &value, session.write_options()?).await?;
        acknowledge(session, written)
    }
}

/// `atoll kv append`
#[derive(Args, Debug)]
pub struct Append {
    #[command(flatten)]
    cell: CellArguments,
    /// Bytes to append; `-` reads them from standard input
    #[arg(allow_negative_numbers = true)]
    value: String,
}

impl Append {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let (partition, sort) = self.cell.keys()?;
        self.cell.encoding.check_value(&self.value)?;
        let store = session.store(Access::Create).await?;
        let value = self.cell.encoding.value(&self.value, store.capabilities().limits.value_bytes).await?;
        let written = store.append(Cell::new(&partition, &sort), &value, session.write_options()?).await?;
        acknowledge(session, written)
    }
}

/// `atoll kv get`
#[derive(Args, Debug)]
pub struct Get {
    #[command(flatten)]
    cell: CellArguments,
    /// First byte to read
    #[arg(long, default_value_t = 0)]
    offset: u64,
    /// Number of bytes to read; by default to the end
    #[arg(long)]
    length: Option<u64>,
}

impl Get {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let (partition, sort) = self.cell.keys()?;
        let store = session.store(Access::Read).await?;
        let range = ByteRange { offset: self.offset, len: self.length };
        let options = ReadOptions { range, ..session.read_options()? };
        let value = store.get(Cell::new(&partition, &sort), options).await?;
        let Some(value) = value else { return Err(Failure::Absent { cell: cell_name(&partition, &sort) }) };
        show_value(session, self.cell.encoding, &value)
    }
}

/// Writes a value: text as it is, so that it can be redirected into a file.
pub(super) fn show_value(
    session: &Session,
    encoding: EncodingArguments,
    value: &[u8],
) -> Result<(), Failure> {
    let output = &session.output;
    if output.is_json() {
        return output.json(&Value::Object(bytes_object([("value", value)])));
    }
    if encoding.chosen() != Encoding::Text {
        return output.line(encoding.show(value));
    }
    output.bytes(value)?;
    // On a terminal the prompt must not follow the value directly; in a file the value stays as it is.
    if output.is_terminal() && !value.ends_with(b"\n") { output.line("") } else { Ok(()) }
}

/// `atoll kv delete`
#[derive(Args, Debug)]
#[command(
    override_usage = "atoll kv delete [OPTIONS] <PARTITION> <SORT|--all|--prefix PREFIX|--from FROM --to TO>"
)]
pub struct Delete {
    /// Partition key
    #[arg(allow_negative_numbers = true)]
    partition: String,
    /// Sort key of a single cell to remove
    #[arg(allow_negative_numbers = true, conflicts_with_all = ["all", "prefix", "from", "to"])]
    sort: Option<String>,
    /// Remove the whole partition
    #[arg(long, conflicts_with_all = ["prefix", "from", "to"])]
    all: bool,
    /// Remove all sort keys with this prefix
    #[arg(long, allow_negative_numbers = true, conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// Remove sort keys from this one on
    #[arg(long, allow_negative_numbers = true)]
    from: Option<String>,
    /// Remove sort keys up to, but not including, this one
    #[arg(long, allow_negative_numbers = true)]
    to: Option<String>,
    #[command(flatten)]
    encoding: EncodingArguments,
}

impl Delete {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let partition = self.encoding.decode("the partition key", &self.partition)?;
        let batch = match (&self.sort, self.all) {
            (Some(sort), _) => Batch::on(partition).delete(self.encoding.decode("the sort key", sort)?),
            (None, true) => Batch::on(partition).delete_range(SortRange::all()),
            (None, false) => Batch::on(partition).delete_range(self.range()?),
        };
        let store = session.store(Access::Change).await?;
        let written = store.write(batch, session.write_options()?).await?;
        acknowledge(session, written)
    }

    fn range(&self) -> Result<SortRange, Failure> {
        if self.prefix.is_none() && self.from.is_none() && self.to.is_none() {
            return Err(Failure::Usage {
                problem: "nothing to remove is named".to_owned(),
                hint: "give a sort key, --prefix, --from and --to, or --all for the whole partition"
                    .to_owned(),
            });
        }
        let is_empty = |text: &Option<String>| text.as_deref() == Some("");
        if is_empty(&self.prefix) || is_empty(&self.from) && self.to.is_none() {
            return Err(Failure::Usage {
                problem: "an empty text describes every sort key of the partition".to_owned(),
                hint: "--all removes them; is a variable of the script empty?".to_owned(),
            });
        }
        sort_range(self.encoding, self.prefix.as_deref(), self.from.as_deref(), self.to.as_deref())
    }
}

/// The range of sort keys given by flags.
pub(super) fn sort_range(
    encoding: EncodingArguments,
    prefix: Option<&str>,
    from: Option<&str>,
    to: Option<&str>,
) -> Result<SortRange, Failure> {
    use std::ops::Bound;
    if let Some(prefix) = prefix {
        return Ok(SortRange::prefix(&encoding.decode("--prefix", prefix)?));
    }
    let bound = |what, text: Option<&str>| text.map(|text| encoding.decode(what, text)).transpose();
    Ok(SortRange {
        from: bound("--from", from)?.map_or(Bound::Unbounded, Bound::Included),
        to: bound("--to", to)?.map_or(Bound::Unbounded, Bound::Excluded),
    })
}

/// `atoll kv cas`
#[derive(Args, Debug)]
pub struct Cas {
    #[command(flatten)]
    cell: CellArguments,
    /// Value to set; `-` reads it from standard input
    #[arg(allow_negative_numbers = true)]
    value: String,
    #[command(flatten)]
    expected: ExpectedArguments,
}

#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
struct ExpectedArguments {
    /// Value that the cell must hold
    #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
    expect: Option<String>,
    /// Require that the cell does not exist
    #[arg(long)]
    expect_absent: bool,
}

impl Cas {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let (partition, sort) = self.cell.keys()?;
        let expected = match &self.expected.expect {
            Some(text) => Some(self.cell.encoding.decode("the expected value", text)?),
            None => None,
        };
        self.cell.encoding.check_value(&self.value)?;
        let store = session.store(Access::Create).await?;
        let value = self.cell.encoding.value(&self.value, store.capabilities().limits.value_bytes).await?;
        let cell = Cell::new(&partition, &sort);
        let written =
            store.compare_and_swap(cell, expected.as_deref(), &value, session.write_options()?).await;
        let written = written.map_err(|error| match error {
            StoreError::Conflict(conflict) => {
                Failure::NotAsExpected { cell: cell_name(&partition, &sort), conflict }
            }
            other => other.into(),
        })?;
        acknowledge(session, written)
    }
}

/// Writes print nothing, as with other tools; as JSON they report the class of the acknowledgement.
fn acknowledge(session: &Session, written: Written) -> Result<(), Failure> {
    if !session.output.is_json() {
        return Ok(());
    }
    session.output.json(&json!({ "done": true, "durability": written.durability.name() }))
}
