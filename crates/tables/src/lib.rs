//! Tables: every sample of every region at the cost of what it returns.
//!
//! A table has a schema, an id, a sample key and up to eight index columns. Every sampling unit has a fixed
//! [`Weight`], a hash of its sample key. Writers append blocks sorted by weight, so a sample of a block is a
//! prefix of it.
//!
//! This crate depends on nothing below the store contract.
//!
//! Invariant: the same query at the same version gives the same rows, regardless of packing in between.

pub mod block;
mod boundary;
pub mod cube;
pub mod estimate;
pub mod expression;
pub mod lattice;
mod name;
pub mod part;
#[cfg_attr(not(feature = "planted"), allow(dead_code))]
mod planted;
pub mod protocol;
mod readable;
mod room;
mod schema;
#[cfg(test)]
mod seeds;
mod step_column;
mod table;
mod threads;
mod vector;
mod weight;

pub use boundary::{Boundary, BoundaryError, CELL_ATTRIBUTE};
pub use name::NAME_BYTES_MAX;
#[cfg(feature = "planted")]
pub use planted::{Bug, draw_names_from, plant};
pub use readable::{Readable, Refining, Scanning};
pub use schema::{
    COLUMNS_MAX, INDEX_COLUMNS_MAX, IndexColumn, Role, Roles, SchemaError, TableSchema, TypeName, column,
    is_same_column,
};
pub use step_column::{STEP_COLUMN, other_step};
pub use table::{
    Answer, AttributeChanges, Attributes, AttributesOf, Batches, Belonging, Belongs, CopyProgress,
    CopyReport, Count, Explanation, Extreme, KeepPacked, Loader, OfObjects, OfRuns, PackOptions,
    PackProgress, PackReport, Query, QuerySplit, Refined, Refinement, RunState, RunSummary, Scanned,
    SnapshotSummary, StepSummary, Table, TableError, TableInfo, TableSummary, Union, UnionRefinement,
    VacuumReport, WholeStep, Within, Work,
};
pub use weight::{Cut, Salt, Weight, WeightError, Window, order, weights};
