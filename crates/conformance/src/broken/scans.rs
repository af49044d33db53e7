//! Planted flaws of scans and listings, one type each.

use super::planted::Flaw;
use atoll_memory::MemoryStore;
use atoll_store::{
    Batch, Direction, ErrorKind, PartitionPage, PartitionQuery, ScanEntry, ScanPage, ScanRequest, Store,
    StoreFuture, Token, WriteOptions, Written,
};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use tokio::task::yield_now;

/// Begins each later page one key too late.
#[derive(Default)]
pub struct KeySkippedAtPageEdge;

impl Flaw for KeySkippedAtPageEdge {
    fn scan<'a>(&'a self, honest: &'a MemoryStore, request: ScanRequest) -> StoreFuture<'a, ScanPage> {
        Box::pin(async move {
            let resumes = request.resume.is_some();
            let mut page = honest.scan(request).await?;
            if resumes && page.entries.len() > 1 {
                page.entries.remove(0);
            }
            Ok(page)
        })
    }
}

/// Begins each later page with the last key of the page before.
#[derive(Default)]
pub struct DuplicateOnResume {
    last: Mutex<HashMap<Token, ScanEntry>>,
}

impl Flaw for DuplicateOnResume {
    fn scan<'a>(&'a self, honest: &'a MemoryStore, mut request: ScanRequest) -> StoreFuture<'a, ScanPage> {
        Box::pin(async move {
            let former = request.resume.as_ref().filter(|_| request.limit > 1);
            let former = former.and_then(|token| self.last.lock().get(token).cloned());
            request.limit -= usize::from(former.is_some());
            let mut page = honest.scan(request).await?;
            if let (Some(token), Some(last)) = (&page.resume, page.entries.last()) {
                self.last.lock().insert(token.clone(), last.clone());
            }
            page.entries.splice(..0, former);
            Ok(page)
        })
    }
}

/// Treats the empty sort key as the start of the partition, before its first cell.
#[derive(Default)]
pub struct EmptySortKeySkipped;

impl Flaw for EmptySortKeySkipped {
    fn scan<'a>(&'a self, honest: &'a MemoryStore, request: ScanRequest) -> StoreFuture<'a, ScanPage> {
        Box::pin(async move {
            let mut page = honest.scan(request).await?;
            if page.entries.len() > 1 {
                page.entries.retain(|entry| !entry.sort.is_empty());
            }
            Ok(page)
        })
    }
}

/// Returns the pages of a backward scan in the right order, and the entries of each in the wrong one.
#[derive(Default)]
pub struct BackwardScanOrder;

impl Flaw for BackwardScanOrder {
    fn scan<'a>(&'a self, honest: &'a MemoryStore, request: ScanRequest) -> StoreFuture<'a, ScanPage> {
        Box::pin(async move {
            let backward = request.direction == Direction::Backward;
            let mut page = honest.scan(request).await?;
            if backward {
                page.entries.reverse();
            }
            Ok(page)
        })
    }
}

/// Reads a page entry by entry while others write.
#[derive(Default)]
pub struct TornPage;

impl Flaw for TornPage {
    fn scan<'a>(&'a self, honest: &'a MemoryStore, request: ScanRequest) -> StoreFuture<'a, ScanPage> {
        Box::pin(async move {
            if request.limit > 100 {
                return honest.scan(request).await;
            }
            let mut step = ScanRequest { limit: request.limit.min(1), ..request };
            let mut page = honest.scan(step.clone()).await?;
            while page.entries.len() < request.limit && page.resume.is_some() {
                yield_now().await;
                step.resume = page.resume;
                let next = honest.scan(step.clone()).await?;
                page.entries.extend(next.entries);
                page.resume = next.resume;
            }
            Ok(page)
        })
    }
}

/// Resumes by the number of entries returned so far, although keys may have come or gone since.
#[derive(Default)]
pub struct ResumeByCount {
    returned: Mutex<HashMap<Token, usize>>,
}

impl Flaw for ResumeByCount {
    fn scan<'a>(&'a self, honest: &'a MemoryStore, request: ScanRequest) -> StoreFuture<'a, ScanPage> {
        Box::pin(async move {
            let returned = request.resume.as_ref().and_then(|token| self.returned.lock().get(token).copied());
            if request.resume.is_some() && returned.is_none() {
                return honest.scan(request).await;
            }
            let skip = returned.unwrap_or(0);
            let limit = request.limit.saturating_add(skip);
            let mut page = honest.scan(ScanRequest { limit, resume: None, ..request }).await?;
            if let Some(token) = &page.resume {
                self.returned.lock().insert(token.clone(), page.entries.len());
            }
            page.entries.drain(..skip.min(page.entries.len()));
            Ok(page)
        })
    }
}

/// Fills a page up to its number of entries, whatever their bytes.
#[derive(Default)]
pub struct PageBytesIgnored;

impl Flaw for PageBytesIgnored {
    fn scan<'a>(&'a self, honest: &'a MemoryStore, request: ScanRequest) -> StoreFuture<'a, ScanPage> {
        Box::pin(async move {
            let mut page = honest.scan(request.clone()).await?;
            while page.entries.len() < request.limit && page.resume.is_some() {
                let limit = request.limit - page.entries.len();
                let next = honest.scan(ScanRequest { limit, resume: page.resume, ..request.clone() }).await?;
                page.entries.extend(next.entries);
                page.resume = next.resume;
            }
            Ok(page)
        })
    }
}

/// Begins from the start when it does not recognize the token.
#[derive(Default)]
pub struct ForeignTokenAccepted;

impl Flaw for ForeignTokenAccepted {
    fn scan<'a>(&'a self, honest: &'a MemoryStore, request: ScanRequest) -> StoreFuture<'a, ScanPage> {
        Box::pin(async move {
            match honest.scan(request.clone()).await {
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    honest.scan(ScanRequest { resume: None, ..request }).await
                }
                result => result,
            }
        })
    }
}

/// Lists every partition that ever had a cell.
#[derive(Default)]
pub struct EmptyPartitionsListed {
    ever: Mutex<BTreeSet<Vec<u8>>>,
}

impl Flaw for EmptyPartitionsListed {
    fn write<'a>(
        &'a self,
        honest: &'a MemoryStore,
        batch: Batch,
        options: WriteOptions,
    ) -> StoreFuture<'a, Written> {
        self.ever.lock().insert(batch.partition.clone());
        honest.write(batch, options)
    }

    fn partition_keys<'a>(
        &'a self,
        honest: &'a MemoryStore,
        query: PartitionQuery,
    ) -> StoreFuture<'a, PartitionPage> {
        Box::pin(async move {
            let page = honest.partition_keys(query.clone()).await?;
            if query.resume.is_some() || page.resume.is_some() {
                return Ok(page);
            }
            let ever = self.ever.lock();
            let partitions = ever.iter().filter(|key| key.starts_with(&query.prefix)).cloned().collect();
            Ok(PartitionPage { partitions, resume: None })
        })
    }
}

/// Gives every reader all partitions.
#[derive(Default)]
pub struct SplitsOverlap;

impl Flaw for SplitsOverlap {
    fn partition_keys<'a>(
        &'a self,
        honest: &'a MemoryStore,
        mut query: PartitionQuery,
    ) -> StoreFuture<'a, PartitionPage> {
        if let Some(split) = query.split.as_mut().filter(|split| split.token.0.len() == 8) {
            split.token = Token([0_u32.to_le_bytes(), 1_u32.to_le_bytes()].concat());
            query.limit = usize::MAX;
        }
        honest.partition_keys(query)
    }
}
