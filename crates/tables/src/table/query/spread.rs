//! Spread: how far apart the weights of all rows of a query lie, and how many rows there are at most.
//!
//! The weights of a table lie anywhere. Those of a table made from a sample of another one, under the same
//! salt, lie all in the window of that sample, so the share of weights below a cut is not the share of its
//! rows. The version names the weights of cubes. Blocks have theirs in their directories, which a query has
//! usually opened already; they are looked at only until the weights are seen to lie far enough apart.
//!
//! Invariant: no weight of a row of the query lies outside of the range, unless this is wide enough.
//! Invariant: the query has no more rows than are counted here.

use super::bound_query::BoundQuery;
use super::source::{CandidatePiece, Source, open, pieces};
use super::{Query, Table, TableError, Union, Work, sum_of};
use crate::protocol::Manifest;
use crate::{Cut, Weight, Window};
use std::sync::Arc;

/// The most blocks that are opened at once.
const OPENED_MAX: usize = 256;

/// Where the rows of a query can be, whatever its window.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spread {
    /// Rows of all pieces that may have one of the query's.
    pub(crate) rows: u64,
    /// The least and the greatest weight of these, or bounds of them.
    range: Option<(Weight, Weight)>,
    /// The work it took.
    pub(crate) work: Work,
}

impl Spread {
    /// The share of all weights that lie between the least and the greatest, these included.
    pub(crate) fn width(&self) -> f64 {
        let width = |(least, greatest)| Cut::through(greatest).share() - Cut::below(least).share();
        self.range.map_or(0.0, width)
    }

    /// Takes in the weights of further rows.
    fn extend(&mut self, range: Option<(Weight, Weight)>) {
        self.range = self.range.into_iter().chain(range).reduce(around);
    }
}

impl Table {
    /// The spread of the weights of a query's rows; the query must take all weights. No more is looked at
    /// once the weights are known to be `width_min` apart.
    ///
    /// # Errors
    /// As [`Table::count`].
    pub(crate) async fn spread(&self, query: &Query, width_min: f64) -> Result<Spread, TableError> {
        self.restart_if_vacuumed(query, |table, query, manifest| spread_of(table, query, manifest, width_min))
            .await
    }
}

impl Union {
    /// The spread of the weights of a query's rows in all tables, as [`Table::spread`].
    ///
    /// # Errors
    /// As [`Union::count`].
    pub(crate) async fn spread(&self, query: &Query, width_min: f64) -> Result<Spread, TableError> {
        self.ask(query, || self.spread_once(query, width_min)).await
    }

    async fn spread_once(&self, query: &Query, width_min: f64) -> Result<Spread, TableError> {
        let (union, _, of_each, _) = self.pinned(query).await?;
        let mut all = Spread::default();
        for (table, query) in union.tables().iter().zip(&of_each) {
            let is_wide = all.width() >= width_min;
            let one = table.spread(query, if is_wide { 0.0 } else { width_min }).await?;
            all.extend(one.range);
            all.rows = all.rows.saturating_add(one.rows);
            all.work = sum_of(all.work, one.work);
        }
        Ok(all)
    }
}

async fn spread_of(
    table: Table,
    query: &Query,
    manifest: Arc<Manifest>,
    width_min: f64,
) -> Result<Spread, TableError> {
    let mut asked = BoundQuery::count(&table, query)?;
    let all = pieces(&table, &mut asked, &manifest)?;
    let rows = all.iter().map(|piece| piece.rows).fold(0, u64::saturating_add);
    let mut spread = Spread { rows, ..Spread::default() };
    let (named, mut others): (Vec<CandidatePiece>, Vec<CandidatePiece>) =
        all.into_iter().partition(|piece| piece.named_weights().is_some());
    named.iter().for_each(|piece| spread.extend(piece.named_weights()));
    // Blocks that were written in the order of weights have the least in the first and the greatest in the
    // last, so the last one comes early.
    if others.len() > 2 {
        let last = others.len() - 1;
        others.swap(1, last);
    }
    let mut from = 0;
    while from < others.len() && spread.width() < width_min {
        let to = others.len().min(from + OPENED_MAX.min(from + 1));
        let opened = open(&table, &asked, &others[from..to], &mut spread.work).await?;
        opened.iter().for_each(|source| spread.extend(weights_of(source)));
        from = to;
    }
    Ok(spread)
}

/// The least and the greatest weight of the rows that are read of a part; `None` without rows.
fn weights_of(source: &Source) -> Option<(Weight, Weight)> {
    let all = Window::below(Cut::ALL);
    let bands = (0..source.part.band_count()).map(|band| source.part.facts(band, all));
    let (least, greatest) = bands.map(|facts| (facts.least, facts.greatest)).reduce(around)?;
    source.window.clipped(least, greatest)
}

/// The range around two.
fn around(one: (Weight, Weight), other: (Weight, Weight)) -> (Weight, Weight) {
    (one.0.min(other.0), one.1.max(other.1))
}
