//! `atoll ls`: lists partitions, or the keys of one.

use crate::cells::{EncodingArguments, insert_bytes};
use crate::session::Access;
use crate::transfer::RESERVED_PREFIX;
use crate::{Failure, Session};
use atoll_store::{PartitionQuery, Projection, ScanRequest, Store};
use clap::Args;
use serde_json::{Map, Value};

/// `atoll ls`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ls --store ./data
  atoll ls --store ./data --prefix UA/
  atoll ls --store ./data stations --limit 10
Partitions are listed in no particular order, the keys of a partition in key order with the length of each
value.")]
pub struct Ls {
    /// Partition whose keys to list
    #[arg(allow_negative_numbers = true)]
    partition: Option<String>,
    /// Only partitions (or keys) with this prefix
    #[arg(long, allow_negative_numbers = true)]
    prefix: Option<String>,
    /// At most this many entries
    #[arg(long)]
    limit: Option<u64>,
    /// Include partitions that belong to Atoll itself
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    encoding: EncodingArguments,
}

impl Ls {
    /// Runs the verb.
    ///
    /// # Errors
    /// Why the verb failed.
    pub async fn run(self, session: &Session) -> Result<(), Failure> {
        let prefix = self.prefix.as_deref().map(|prefix| self.encoding.decode("--prefix", prefix));
        let prefix = prefix.transpose()?.unwrap_or_default();
        let partition = self.partition.as_deref().map(|key| self.encoding.decode("the partition key", key));
        let partition = partition.transpose()?;
        let store = session.store(Access::Read).await?;
        match partition {
            Some(partition) => self.keys(session, &*store, partition, &prefix).await,
            None => self.partitions(session, &*store, prefix).await,
        }
    }

    async fn partitions(&self, session: &Session, store: &dyn Store, prefix: Vec<u8>) -> Result<(), Failure> {
        let mut query = PartitionQuery::prefix(prefix);
        let patience = session.patience()?;
        let mut left = self.limit.unwrap_or(u64::MAX);
        loop {
            let page = patience.read(store.partition_keys(query.clone())).await?;
            for key in page.partitions.iter().filter(|key| self.all || !key.starts_with(RESERVED_PREFIX)) {
                if left == 0 {
                    return Ok(());
                }
                left -= 1;
                session.output.either(
                    || self.encoding.show(key),
                    || Value::Object(crate::cells::bytes_object([("partition", key.as_slice())])),
                )?;
            }
            match page.resume {
                Some(resume) => query.resume = Some(resume),
                None => return Ok(()),
            }
        }
    }

    async fn keys(
        &self,
        session: &Session,
        store: &dyn Store,
        partition: Vec<u8>,
        prefix: &[u8],
    ) -> Result<(), Failure> {
        let range = atoll_store::SortRange::prefix(prefix);
        let mut request =
            ScanRequest { range, projection: Projection::KeysOnly, ..ScanRequest::all(partition) };
        let patience = session.patience()?;
        let mut left = self.limit.unwrap_or(u64::MAX);
        loop {
            let page = patience.read(store.scan(request.clone())).await?;
            for entry in &page.entries {
                if left == 0 {
                    return Ok(());
                }
                left -= 1;
                session.output.either(
                    || format!("{}\t{}", self.encoding.show(&entry.sort), entry.value_bytes),
                    || {
                        let mut object = Map::new();
                        insert_bytes(&mut object, "sort", &entry.sort);
                        object.insert("value_bytes".to_owned(), Value::from(entry.value_bytes));
                        Value::Object(object)
                    },
                )?;
            }
            match page.resume {
                Some(resume) => request.resume = Some(resume),
                None => return Ok(()),
            }
        }
    }
}
