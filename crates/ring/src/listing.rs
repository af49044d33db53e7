//! Listings of keys: which slots a page covers, and whether all of them may be read when it is made.
//! `FLUSHALL` asks the same about the slots in which it finds nothing to delete.
//!
//! Invariant: a listing shows what a read would find in each slot that it covers, or it fails.

use atoll_keyspace::{KeyspaceError, SLOTS, ScanPage};
use atoll_resp::{ClusterRequest, Command, ReplyWriter, ScanRequest};

/// Most keys of a slot that are listed.
const KEYS_MAX: usize = 10_000;

/// The slots of a keyspace on this node, at one moment.
pub(crate) trait ListedSlots {
    /// Whether this node leads a slot.
    fn is_here(&self, number: u16) -> bool;

    /// Whether the cells of a slot hold what a read would find.
    fn may_read(&self, number: u16) -> bool;

    /// How many keys a slot has.
    fn keys_in(&self, number: u16) -> u64;

    /// The first keys of a slot.
    fn keys_of(&self, number: u16, most: usize) -> Result<Vec<Vec<u8>>, KeyspaceError>;

    /// A page of the keys of the slots that are `held`.
    fn scan(&self, request: &ScanRequest<'_>, held: &dyn Fn(u16) -> bool) -> Result<ScanPage, KeyspaceError>;
}

/// Why there is no listing now.
#[derive(Debug)]
pub(crate) enum Obstacle {
    /// This slot may not be read.
    Dark(u16),
    /// The store failed.
    Failed(KeyspaceError),
}

impl From<KeyspaceError> for Obstacle {
    fn from(error: KeyspaceError) -> Self {
        Self::Failed(error)
    }
}

/// Answers a command that lists keys. Unless it succeeds it writes nothing.
pub(crate) fn answer(
    command: &Command<'_>,
    slots: &impl ListedSlots,
    writer: &mut ReplyWriter<'_>,
) -> Result<(), Obstacle> {
    match command {
        Command::Scan(request) => write_page(writer, &scan(request, slots)?),
        Command::ScanRun(request) => write_page(writer, &scan_run(request, slots)?),
        Command::Cluster(ClusterRequest::CountKeys(number)) => {
            check(*number, slots)?;
            writer.integer(i64::try_from(slots.keys_in(*number)).unwrap_or(i64::MAX));
        }
        Command::Cluster(ClusterRequest::Keys { slot, count }) => {
            check(*slot, slots)?;
            let most = usize::try_from(*count).unwrap_or(KEYS_MAX).min(KEYS_MAX);
            write_keys(writer, &slots.keys_of(*slot, most)?);
        }
        Command::FlushAll => match (0..SLOTS).find(|&number| is_dark(number, slots)) {
            Some(number) => return Err(Obstacle::Dark(number)),
            None => writer.ok(),
        },
        _ => writer.error("ERR", "this node does not list that"),
    }
    Ok(())
}

/// A page over the slots that this node leads. If one of them cannot be read, there is none, whatever is in
/// the cells here: once another node leads the slot, it has keys of which this one knows nothing.
fn scan(request: &ScanRequest<'_>, slots: &impl ListedSlots) -> Result<ScanPage, Obstacle> {
    let page = slots.scan(request, &|number| slots.is_here(number))?;
    match seen(ScanPage::slot_of(request.cursor), &page).find(|&number| is_dark(number, slots)) {
        Some(number) => Err(Obstacle::Dark(number)),
        None => Ok(page),
    }
}

/// A page over adjacent slots that this node leads and may read now, complete up to its cursor.
fn scan_run(request: &ScanRequest<'_>, slots: &impl ListedSlots) -> Result<ScanPage, Obstacle> {
    let first = ScanPage::slot_of(request.cursor);
    let mut end = (first..SLOTS).find(|&number| !slots.is_here(number)).unwrap_or(SLOTS);
    let mut page = slots.scan(request, &|number| number < end);
    // Only the slots of the page are checked: there are many slots, and a page covers few.
    let mut of_page = page.iter().flat_map(|page| seen(first, page)).take_while(|&number| number < end);
    let dark = of_page.find(|&number| !slots.may_read(number));
    drop(of_page);
    if let Some(dark) = dark {
        end = dark;
        page = slots.scan(request, &|number| number < end);
    }
    if end == first {
        return Err(Obstacle::Dark(first));
    }
    let page = page?;
    let is_over = page.cursor == 0 || ScanPage::slot_of(page.cursor) >= end;
    let cursor = if is_over { ScanPage::cursor_of(end) } else { page.cursor };
    Ok(ScanPage { cursor, ..page })
}

/// Fails if this node leads a slot and cannot tell now what is in it. For a slot that it does not lead it
/// reports what its copy has, as nodes of a Redis Cluster do.
fn check(number: u16, slots: &impl ListedSlots) -> Result<(), Obstacle> {
    match is_dark(number, slots) {
        true => Err(Obstacle::Dark(number)),
        false => Ok(()),
    }
}

/// Whether this node leads a slot, and cannot tell now what is in it.
fn is_dark(number: u16, slots: &impl ListedSlots) -> bool {
    slots.is_here(number) && !slots.may_read(number)
}

/// The slots that a page covers from `first` on, including the one in which it continues.
fn seen(first: u16, page: &ScanPage) -> impl Iterator<Item = u16> + use<> {
    let last = if page.cursor == 0 { SLOTS } else { ScanPage::slot_of(page.cursor) };
    (first..SLOTS).take_while(move |&number| number <= last)
}

fn write_page(writer: &mut ReplyWriter<'_>, page: &ScanPage) {
    writer.array(2);
    writer.string(page.cursor.to_string().as_bytes());
    write_keys(writer, &page.keys);
}

fn write_keys(writer: &mut ReplyWriter<'_>, keys: &[Vec<u8>]) {
    writer.array(keys.len());
    keys.iter().for_each(|key| writer.string(key));
}
