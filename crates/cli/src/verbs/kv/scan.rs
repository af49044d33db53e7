//! `atoll kv scan`: the cells of a partition in order.

use crate::cells::{EncodingArguments, insert_bytes};
use crate::session::Access;
use crate::verbs::kv::cell::sort_range;
use crate::{Failure, Session};
use atoll_store::{Direction, Projection, ScanEntry, ScanRequest};
use clap::Args;
use serde_json::{Map, Value};

/// Cells per request.
const PAGE_ENTRIES: u64 = 1000;

/// `atoll kv scan`
#[derive(Args, Debug)]
pub struct Scan {
    /// Partition key
    #[arg(allow_negative_numbers = true)]
    partition: String,
    /// Only sort keys with this prefix
    #[arg(long, allow_negative_numbers = true, conflicts_with_all = ["from", "to"])]
    prefix: Option<String>,
    /// Only sort keys from this one on
    #[arg(long, allow_negative_numbers = true)]
    from: Option<String>,
    /// Only sort keys before this one
    #[arg(long, allow_negative_numbers = true)]
    to: Option<String>,
    /// List in descending order
    #[arg(long)]
    reverse: bool,
    /// At most this many cells
    #[arg(long)]
    limit: Option<u64>,
    /// Show only the keys
    #[arg(long)]
    keys_only: bool,
    #[command(flatten)]
    encoding: EncodingArguments,
}

impl Scan {
    pub(super) async fn run(self, session: &Session) -> Result<(), Failure> {
        let mut request = self.request()?;
        let store = session.store(Access::Read).await?;
        let patience = session.patience()?;
        let mut left = self.limit.unwrap_or(u64::MAX);
        while left > 0 {
            request.limit = usize::try_from(left.min(PAGE_ENTRIES)).unwrap_or(usize::MAX);
            let page = patience.read(store.scan(request.clone())).await?;
            for entry in &page.entries {
                self.show(session, entry)?;
            }
            left = left.saturating_sub(page.entries.len() as u64);
            match page.resume {
                Some(resume) => request.resume = Some(resume),
                None => break,
            }
        }
        Ok(())
    }

    fn request(&self) -> Result<ScanRequest, Failure> {
        let partition = self.encoding.decode("the partition key", &self.partition)?;
        Ok(ScanRequest {
            range: sort_range(
                self.encoding,
                self.prefix.as_deref(),
                self.from.as_deref(),
                self.to.as_deref(),
            )?,
            direction: if self.reverse { Direction::Backward } else { Direction::Forward },
            projection: if self.keys_only { Projection::KeysOnly } else { Projection::Values },
            ..ScanRequest::all(partition)
        })
    }

    fn show(&self, session: &Session, entry: &ScanEntry) -> Result<(), Failure> {
        let text = || {
            let sort = self.encoding.show(&entry.sort);
            if self.keys_only { sort } else { format!("{sort}\t{}", self.encoding.show(&entry.value)) }
        };
        session.output.either(text, || {
            let mut object = Map::new();
            insert_bytes(&mut object, "sort", &entry.sort);
            if !self.keys_only {
                insert_bytes(&mut object, "value", &entry.value);
            }
            object.insert("value_bytes".to_owned(), Value::from(entry.value_bytes));
            Value::Object(object)
        })
    }
}
