//! The oracle: what should be visible, derived only from the edits that became true.
//!
//! It knows rows and steps, but neither objects nor tombstones: packs and vacuums mean nothing to it.

use atoll_tables::protocol::{AddedColumn, BlockId, Edit, LastStep, Scope};

/// A set of rows, by bit.
pub type Rows = u64;

/// One row.
#[derive(Clone, Debug)]
pub struct Row {
    /// The block in which it is written.
    pub block: BlockId,
    /// Its weight.
    pub weight: u64,
}

/// All rows that any process writes in one exploration.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
}

/// The expression that selects the rows of weight 1.
pub const LIGHT: &str = "weight = 1";

impl Table {
    /// Two rows, of weights 1 and 2, for each block.
    pub fn of(blocks: Vec<BlockId>) -> Self {
        let pair = |block: BlockId| [1, 2].map(|weight| Row { block: block.clone(), weight });
        let rows: Vec<Row> = blocks.into_iter().flat_map(pair).collect();
        assert!(rows.len() <= 64);
        Self { rows }
    }

    pub fn rows_where(&self, holds: impl Fn(&Row) -> bool) -> Rows {
        let places = self.rows.iter().enumerate().filter(|(_, row)| holds(row));
        places.fold(0, |rows, (place, _)| rows | (1 << place))
    }

    pub fn block(&self, id: &BlockId) -> Rows {
        self.rows_where(|row| row.block == *id)
    }

    /// The rows of all ranks in a step of an attempt.
    pub fn step(&self, id: &BlockId) -> Rows {
        self.rows_where(|row| {
            (&row.block.run, row.block.attempt, row.block.step) == (&id.run, id.attempt, id.step)
        })
    }

    pub fn rows_in_scope(&self, scope: &Scope) -> Rows {
        self.rows_where(|row| {
            let of_run = scope.run.as_ref().is_none_or(|run| *run == row.block.run);
            let struck = scope.expression.as_deref().is_none_or(|text| text == LIGHT && row.weight == 1);
            of_run && struck && scope.steps.contains(row.block.step)
        })
    }

    pub fn names(&self, rows: Rows) -> String {
        let one = |row: &Row| {
            let BlockId { run, attempt, step, rank } = &row.block;
            format!("{run}/{attempt} step {step} rank {rank} weight {}", row.weight)
        };
        let rows = self.rows.iter().enumerate().filter(|(place, _)| (rows >> place) & 1 == 1);
        rows.map(|(_, row)| one(row)).collect::<Vec<_>>().join(", ")
    }
}

/// What should be visible in one version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Oracle {
    /// The visible rows.
    pub visible: Rows,
    /// The rows that have ever been visible.
    pub ever: Rows,
    /// Visible rows that were removed by an attempt that was to begin after another step, and had not seen
    /// them.
    pub taken_away: Rows,
    /// The added columns.
    pub columns: Vec<AddedColumn>,
    /// The rows of the blocks that have arrived.
    arrived: Rows,
    /// The last attempt that began; there is only one run.
    begun: u64,
    /// The step after which it was to begin, if it named one; the inner `None` stands for a run without
    /// steps.
    behind: Option<Option<u64>>,
}

impl Oracle {
    /// The oracle after an edit became true.
    pub fn after(&self, table: &Table, edit: &Edit) -> Self {
        let mut next = self.clone();
        match edit {
            Edit::Append { blocks } => {
                blocks.iter().for_each(|block| next.come(table, &block.id, table.block(&block.id)));
            }
            Edit::Load { run, attempt, steps, .. } => {
                let id = |step| BlockId { run: run.clone(), attempt: *attempt, step, rank: 0 };
                let ids = steps.iter().map(|step| id(step.step));
                ids.for_each(|id| next.come(table, &id, table.step(&id)));
            }
            Edit::Delete { scope } => next.visible &= !table.rows_in_scope(scope),
            Edit::Begin { run, attempt, last, .. } => {
                let earlier = table.rows_where(|row| row.block.run == *run && row.block.attempt < *attempt);
                next.arrived &= !earlier | next.ever;
                next.begun = next.begun.max(*attempt);
                next.behind = match last {
                    LastStep::Is(seen) => Some(*seen),
                    LastStep::Any => None,
                };
            }
            Edit::AddColumn { column } => next.columns.push(column.clone()),
            Edit::Pack { .. } | Edit::RaiseFloor { .. } | Edit::Forget { .. } => {}
        }
        next
    }

    /// Rows of a step arrive: those of one rank, or of all.
    fn come(&mut self, table: &Table, id: &BlockId, rows: Rows) {
        if id.attempt < self.begun {
            return;
        }
        self.arrived |= rows;
        let step = table.step(id);
        if step & !self.arrived != 0 || step & self.ever != 0 {
            return;
        }
        let superseded = table.rows_where(|row| {
            row.block.run == id.run && row.block.attempt < id.attempt && row.block.step >= id.step
        });
        if let Some(seen) = self.behind {
            let unseen = table.rows_where(|row| seen.is_none_or(|seen| row.block.step > seen));
            self.taken_away |= superseded & self.visible & unseen;
        }
        self.ever |= step;
        self.visible = (self.visible & !superseded) | step;
    }
}
