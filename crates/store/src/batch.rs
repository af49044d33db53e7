//! Writes: a batch of conditions and mutations on one partition key, and how it is acknowledged.

use crate::{Buffer, PartitionKey, SortKey, SortRange};
use std::time::Duration;

/// Conditions and mutations on one partition key: all conditions hold at one point and all mutations
/// apply in their order, or nothing happens.
///
/// Conditions see the cells as they were before the mutations. A batch may have no conditions; one without
/// mutations only checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// The partition that the batch is about.
    pub partition: PartitionKey,
    /// What must hold. The first condition that does not is returned with the value found.
    pub conditions: Vec<Condition>,
    /// The changes, applied in this order.
    pub mutations: Vec<Mutation>,
}

/// What must hold for a batch to apply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The cell does not exist.
    Absent(SortKey),
    /// The cell exists and holds exactly this value (at most 1 MiB).
    Equals(SortKey, Buffer),
}

impl Condition {
    /// The sort key the condition is about.
    #[must_use]
    pub fn sort(&self) -> &[u8] {
        match self {
            Self::Absent(sort) | Self::Equals(sort, _) => sort,
        }
    }

    /// Whether the condition holds for a cell with this value.
    #[must_use]
    pub fn holds(&self, current: Option<&[u8]>) -> bool {
        match self {
            Self::Absent(_) => current.is_none(),
            Self::Equals(_, expected) => current == Some(expected.as_slice()),
        }
    }
}

/// One change to one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// Sets the value.
    Put(SortKey, Buffer),
    /// Adds bytes at the end of the value; an absent cell counts as empty.
    Append(SortKey, Buffer),
    /// Removes the cell; an absent cell is no error.
    Delete(SortKey),
    /// Removes every cell of the range; an empty or inverted range is no error.
    DeleteRange(SortRange),
}

impl Batch {
    /// An empty batch on `partition`.
    pub fn on(partition: impl Into<PartitionKey>) -> Self {
        Self { partition: partition.into(), conditions: Vec::new(), mutations: Vec::new() }
    }

    /// Requires that `sort` does not exist.
    #[must_use]
    pub fn if_absent(mut self, sort: impl Into<SortKey>) -> Self {
        self.conditions.push(Condition::Absent(sort.into()));
        self
    }

    /// Requires that `sort` holds `value`.
    #[must_use]
    pub fn if_equals(mut self, sort: impl Into<SortKey>, value: impl Into<Buffer>) -> Self {
        self.conditions.push(Condition::Equals(sort.into(), value.into()));
        self
    }

    /// Requires that `sort` holds `expected`; `None` requires that it is absent.
    #[must_use]
    pub fn if_is(self, sort: impl Into<SortKey>, expected: Option<impl Into<Buffer>>) -> Self {
        match expected {
            None => self.if_absent(sort),
            Some(value) => self.if_equals(sort, value),
        }
    }

    /// Sets `sort` to `value`.
    #[must_use]
    pub fn put(mut self, sort: impl Into<SortKey>, value: impl Into<Buffer>) -> Self {
        self.mutations.push(Mutation::Put(sort.into(), value.into()));
        self
    }

    /// Adds `bytes` at the end of the value of `sort`.
    #[must_use]
    pub fn append(mut self, sort: impl Into<SortKey>, bytes: impl Into<Buffer>) -> Self {
        self.mutations.push(Mutation::Append(sort.into(), bytes.into()));
        self
    }

    /// Removes `sort`.
    #[must_use]
    pub fn delete(mut self, sort: impl Into<SortKey>) -> Self {
        self.mutations.push(Mutation::Delete(sort.into()));
        self
    }

    /// Removes every sort key in `range`.
    #[must_use]
    pub fn delete_range(mut self, range: SortRange) -> Self {
        self.mutations.push(Mutation::DeleteRange(range));
        self
    }

    /// The number of conditions and mutations together.
    #[must_use]
    pub fn operations(&self) -> usize {
        self.conditions.len() + self.mutations.len()
    }
}

/// What an acknowledged write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Durability {
    /// Nothing, but it is never torn.
    Buffered,
    /// The end of the process.
    Flushed,
    /// The loss of power.
    Synced,
}

impl Durability {
    /// All classes, weakest first.
    pub const ALL: [Self; 3] = [Self::Buffered, Self::Flushed, Self::Synced];

    /// Stable name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Buffered => "buffered",
            Self::Flushed => "flushed",
            Self::Synced => "synced",
        }
    }

    /// The class of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.name() == name)
    }
}

/// Names one write of one client, so that a retry is applied once.
///
/// A request id belongs to one batch, for ever. A refused write leaves no trace of its id, so its retry is
/// judged anew. The retry of a write that took effect is acknowledged without being applied again
/// ([`Written::repeated`]), whatever its conditions say by now, and at the durability that the retry asks
/// for. The store remembers the id together with the write: it survives whatever the write survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId {
    /// The client; random, so that two clients never share it.
    pub client: u128,
    /// The client's own count of its writes.
    pub sequence: u64,
}

/// How a write is carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// What the acknowledged write must survive; the store's default for none. A class that the store does
    /// not offer is raised to a stronger one that it offers, or refused as `unsupported` if there is none.
    pub durability: Option<Durability>,
    /// How long the caller waits; forever for none. When the time is up, the outcome is unknown, or refused
    /// where the write cannot have taken effect.
    pub deadline: Option<Duration>,
    /// Makes a retry idempotent: the write is applied once, for as long as the store remembers the id.
    pub request: Option<RequestId>,
}

impl WriteOptions {
    /// The default options with this durability class.
    #[must_use]
    pub fn durable(durability: Durability) -> Self {
        Self { durability: Some(durability), ..Self::default() }
    }
}

/// The acknowledgement of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The class at which it was acknowledged; never weaker than asked for.
    pub durability: Durability,
    /// Whether this call changed nothing, because the request id had been seen or a created cell already held
    /// this value.
    pub repeated: bool,
}
