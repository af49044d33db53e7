//! What operations that are not in the order yet have to find in the cells, and which writes can still put
//! it there.
//!
//! The search decides from this, without trying, that a beginning of an order leads nowhere, and that what
//! some cells hold makes no difference any more. Everything here errs on one side only: "can still be found"
//! and "may still be seen" may be wrong, and cost tries; their opposites may not.
//!
//! Both rest on one observation. What an operation finds in a cell is what the last reset before it put
//! there (a put, a swap or a delete; if there is none, it is what the cell holds now), followed by the bytes
//! of the appends in between. So that value begins the one found, the reset was called before the operation
//! returned, and so was each append.

use super::chain::{Chain, HEAD};
use super::effects::{Effect, Value, cells_of, effects, found, value};
use super::{Answer, Cells, Operation};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// How far to look. A longer history is not looked through at each step; what lies further is taken to be
/// as it should be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sight {
    /// The most operations of a cell, those that return first, of which it is checked that they can still
    /// find what they found.
    pub(crate) operations: usize,
    /// The most found values of a cell that a value is compared with.
    pub(crate) values: usize,
    /// The most appends in a row that are checked to be left.
    pub(crate) appends: usize,
}

impl Sight {
    /// Enough for histories of dozens of concurrent operations.
    pub(crate) const USUAL: Self = Self { operations: 32, values: 64, appends: 32 };
}

/// The needs of all operations that are left.
#[derive(Debug)]
pub(crate) struct Needs<'a> {
    cells: BTreeMap<u8, CellNeeds<'a>>,
    operations: Vec<Known<'a>>,
    left: Left,
    sight: Sight,
}

/// What is known of an operation.
#[derive(Debug)]
struct Known<'a> {
    effects: Vec<(u8, Effect<'a>)>,
    found: Vec<Found>,
    /// The values of its cell that hold the bytes that it appends.
    holding: Vec<usize>,
}

/// That an operation found one of the values of a cell.
#[derive(Clone, Copy, Debug)]
struct Found {
    cell: u8,
    value: usize,
    /// Its member of the cell's chain; none if it need not be done.
    member: Option<usize>,
}

/// Which operations are left, and when each was called.
#[derive(Debug)]
struct Left {
    is_done: Vec<bool>,
    called: Vec<u64>,
}

impl Left {
    /// Whether the operation may come before one that returned at this moment.
    fn may_come(&self, operation: usize, returned: u64) -> bool {
        !self.is_done[operation] && self.called[operation] < returned
    }
}

/// The needs in one cell.
#[derive(Debug, Default)]
struct CellNeeds<'a> {
    /// Each value that some operation found, in their order.
    values: Vec<FoundValue<'a>>,
    /// The operations that must be done and found one of these values, in the order of their returns.
    finders: Vec<Finder>,
    /// Those of them that are left: finder `at` is the member `at + 1`.
    chain: Chain,
    /// The appends, by their bytes, and the lengths of these.
    appends: HashMap<&'a [u8], Vec<usize>>,
    lengths: BTreeSet<usize>,
}

#[derive(Debug)]
struct FoundValue<'a> {
    value: Value<'a>,
    /// How many operations that found it are left.
    left: usize,
    /// The resets that can begin it and what each puts, in the order of their calls.
    beginnings: Vec<(usize, Value<'a>)>,
}

#[derive(Debug)]
struct Finder {
    value: usize,
    returned: u64,
}

impl<'a> Needs<'a> {
    /// The needs of a whole history.
    pub(crate) fn new(history: &'a [Operation], sight: Sight) -> Self {
        let named = cells_of(history);
        let known = |operation: &'a Operation| Known {
            effects: effects(operation),
            found: Vec::new(),
            holding: Vec::new(),
        };
        let mut needs = Self {
            cells: BTreeMap::new(),
            operations: history.iter().map(known).collect(),
            left: Left {
                is_done: vec![false; history.len()],
                called: history.iter().map(|one| one.called).collect(),
            },
            sight,
        };
        let mut finds: BTreeMap<u8, Vec<(usize, Value<'a>)>> = BTreeMap::new();
        for (at, operation) in history.iter().enumerate() {
            found(operation, &named).into_iter().for_each(|(cell, value)| {
                finds.entry(cell).or_default().push((at, value));
            });
        }
        for cell in named {
            let finds = finds.remove(&cell).unwrap_or_default();
            needs.add_cell(history, cell, &finds);
        }
        needs
    }

    fn add_cell(&mut self, history: &[Operation], cell: u8, finds: &[(usize, Value<'a>)]) {
        let mut these = CellNeeds::default();
        let mut resets = Vec::new();
        for (at, known) in self.operations.iter().enumerate() {
            for (_, effect) in known.effects.iter().filter(|(of, _)| *of == cell) {
                match *effect {
                    Effect::Reset(value) => resets.push((at, value)),
                    Effect::Append(bytes) => {
                        these.appends.entry(bytes).or_default().push(at);
                        these.lengths.insert(bytes.len());
                    }
                }
            }
        }
        resets.sort_by_key(|&(at, _)| history[at].called);
        let values: BTreeSet<Value<'a>> = finds.iter().map(|&(_, value)| value).collect();
        for value in values {
            let begins =
                |&&(_, put): &&(usize, Value<'a>)| these.leads(&self.left, self.sight, put, value, u64::MAX);
            let beginnings = resets.iter().filter(begins).copied().collect();
            these.values.push(FoundValue { value, left: 0, beginnings });
        }
        let mut finds: Vec<_> = finds.iter().map(|&(at, value)| (history[at].returned, at, value)).collect();
        finds.sort_unstable_by_key(|&(returned, at, _)| (returned, at));
        for (returned, operation, value) in finds {
            let value = these.values.partition_point(|one| one.value < value);
            these.values[value].left += 1;
            let must = history[operation].answer != Answer::Unknown;
            let member = must.then_some(these.finders.len() + 1);
            if must {
                these.finders.push(Finder { value, returned });
            }
            self.operations[operation].found.push(Found { cell, value, member });
        }
        these.chain = Chain::new(these.finders.len());
        for (bytes, appends) in &these.appends {
            let holds = |one: &FoundValue| one.value.is_some_and(|value| contains(value, bytes));
            let holding: Vec<usize> =
                (0..these.values.len()).filter(|&at| holds(&these.values[at])).collect();
            appends.iter().for_each(|&at| self.operations[at].holding.clone_from(&holding));
        }
        self.cells.insert(cell, these);
    }

    /// The operation is in the order.
    pub(crate) fn lift(&mut self, operation: usize) {
        self.left.is_done[operation] = true;
        for found in &self.operations[operation].found {
            let Some(cell) = self.cells.get_mut(&found.cell) else { continue };
            cell.values[found.value].left -= 1;
            if let Some(member) = found.member {
                cell.chain.lift(member);
            }
        }
    }

    /// The operation that was put in the order last is no longer in it.
    pub(crate) fn unlift(&mut self, operation: usize) {
        self.left.is_done[operation] = false;
        for found in &self.operations[operation].found {
            let Some(cell) = self.cells.get_mut(&found.cell) else { continue };
            cell.values[found.value].left += 1;
            if let Some(member) = found.member {
                cell.chain.unlift(member);
            }
        }
    }

    /// Whether some operation that is left can no longer find what it found, now that `operation` is in the
    /// order and the cells are these. Only in cells that it wrote can that have changed.
    ///
    /// Complete: such an operation must be done, and what it found can neither be built upon what its cell
    /// holds nor upon what a reset that is left puts there, so no order begins like this.
    pub(crate) fn is_hopeless(&self, operation: usize, cells: &Cells) -> bool {
        self.operations[operation].effects.iter().any(|(cell, _)| {
            let now = value(cells.get(cell));
            self.cells.get(cell).is_some_and(|needs| needs.is_hopeless(&self.left, self.sight, now))
        })
    }

    /// Whether no operation that is left can see this value of the cell, whatever is done: none finds it or
    /// a longer one that appends make of it.
    ///
    /// So in any order that completes this one, nothing but appends and blind resets concerns the cell until
    /// the first reset: cells that differ only in values that nobody sees are completed by the same orders
    /// (less writes of unknown outcome that would do nothing).
    pub(crate) fn is_unseen(&self, cell: u8, value: Value) -> bool {
        self.cells.get(&cell).is_none_or(|needs| needs.is_unseen(&self.left, self.sight, value))
    }

    /// Whether the operation, whose outcome is known, may as well be next in the order, if its answer fits.
    ///
    /// Complete, in two cases. One that changes no cell can be moved from any later place to this one: no
    /// other one notices. And so can a blind write of which nobody sees what it makes of its cells, at
    /// whatever place, if nobody sees either what these hold now: where it was, nobody saw its cells until
    /// the next reset, and from here on nobody sees them until the next reset. (A swap that fits is none of
    /// these: it sees what its cell holds itself.)
    pub(crate) fn may_be_next(&self, operation: usize, cells: &Cells) -> bool {
        let known = &self.operations[operation];
        known.effects.iter().all(|&(cell, effect)| {
            let makes_unseen = match effect {
                Effect::Reset(put) => self.is_unseen(cell, put),
                // Appended to whatever, these bytes are part of what was found.
                Effect::Append(_) => self
                    .cells
                    .get(&cell)
                    .is_none_or(|needs| known.holding.iter().all(|&value| needs.values[value].left == 0)),
            };
            makes_unseen && self.is_unseen(cell, value(cells.get(&cell)))
        })
    }

    /// Whether a write of unknown outcome, which is in the order last, put something into a cell that an
    /// operation which is left may see.
    ///
    /// Complete: if it did not, then whatever order completes this one also does so without that write,
    /// since nobody sees the cells that it changed until their next resets; and it need not be done.
    pub(crate) fn matters(&self, operation: usize, before: &Cells, after: &Cells) -> bool {
        self.operations[operation].effects.iter().any(|(cell, _)| {
            before.get(cell) != after.get(cell) && !self.is_unseen(*cell, value(after.get(cell)))
        })
    }

    /// Adds one number for each cell to the key of a state: equal ones if both values are the same, or
    /// neither is seen by any operation that is left.
    pub(crate) fn add_key(&self, cells: &Cells, key: &mut Vec<u64>) {
        key.extend(self.cells.iter().map(|(cell, needs)| {
            let now = value(cells.get(cell));
            match now {
                _ if needs.is_unseen(&self.left, self.sight, now) => u64::MAX,
                None => 0,
                // A value that may be seen begins one that was found: the first of these and its length.
                Some(bytes) => {
                    let first = needs.values.partition_point(|one| one.value < now) as u64;
                    (first + 1) << 32 | bytes.len() as u64
                }
            }
        }));
    }
}

impl CellNeeds<'_> {
    fn is_hopeless(&self, left: &Left, sight: Sight, now: Value) -> bool {
        let mut member = self.chain.after(HEAD);
        let mut former = None;
        for _ in 0..sight.operations {
            let Some(finder) = self.finders.get(member - 1) else { return false };
            // A finder of the same value that returns later has no fewer writes before it.
            if former != Some(finder.value) && !self.can_find(left, sight, finder, now) {
                return true;
            }
            former = Some(finder.value);
            member = self.chain.after(member);
        }
        false
    }

    fn can_find(&self, left: &Left, sight: Sight, finder: &Finder, now: Value) -> bool {
        let Finder { value, returned } = *finder;
        let FoundValue { value, beginnings, .. } = &self.values[value];
        let is_led_to = |from: Value| self.leads(left, sight, from, *value, returned);
        let called = |&&(reset, _): &&(usize, Value)| left.called[reset] < returned;
        let mut resets = beginnings.iter().take_while(called);
        is_led_to(now) || resets.any(|&(reset, put)| !left.is_done[reset] && is_led_to(put))
    }

    fn is_unseen(&self, left: &Left, sight: Sight, value: Value) -> bool {
        let begun = value.unwrap_or_default();
        let first = self.values.partition_point(|one| one.value < value);
        let longer = |one: &&FoundValue| value.is_none() || one.value.is_some_and(|it| it.starts_with(begun));
        let longer = self.values.iter().skip(first).take_while(longer).filter(|one| one.left > 0);
        longer
            .enumerate()
            .all(|(at, one)| at < sight.values && !self.leads(left, sight, value, one.value, u64::MAX))
    }

    /// Whether appends that are left, and were called before this moment, can make of one value the other.
    /// That each is done only once is not considered.
    fn leads(&self, left: &Left, sight: Sight, from: Value, to: Value, returned: u64) -> bool {
        if from == to {
            return true;
        }
        let (begun, Some(to)) = (from.unwrap_or_default(), to) else { return false };
        if !to.starts_with(begun) {
            return false;
        }
        let is_left = |piece: &[u8]| {
            let appends = self.appends.get(piece);
            appends.is_some_and(|appends| appends.iter().any(|&append| left.may_come(append, returned)))
        };
        let mut ends = BTreeSet::from([begun.len()]);
        for _ in 0..sight.appends {
            let mut further = BTreeSet::new();
            for (end, length) in ends.iter().flat_map(|end| self.lengths.iter().map(move |it| (*end, *it))) {
                if to.get(end..end + length).is_some_and(is_left) {
                    if end + length == to.len() {
                        return true;
                    }
                    // Nothing is won by appending nothing.
                    further.extend((length > 0).then_some(end + length));
                }
            }
            if further.is_empty() {
                return false;
            }
            ends = further;
        }
        true
    }
}

fn contains(value: &[u8], bytes: &[u8]) -> bool {
    bytes.is_empty() || value.windows(bytes.len()).any(|part| part == bytes)
}
