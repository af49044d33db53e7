//! What questions of packed tables may cost: one table of bounds for all tests that count work.
//!
//! Counts are the same on every machine, so a bound is a little above what was counted. A change that costs
//! less may lower a bound; one that costs more has to say why.

use atoll_tables::Work;

/// Bytes of a row of the tube in memory.
pub const ROW_BYTES: f64 = 32.0;

/// An answer may take one more request for as many rows.
pub const ROWS_A_REQUEST: f64 = 25_000.0;

/// A median, and the value that one in twenty exceeds.
type Quantiles = (f64, f64);

/// The most that a class of questions may cost.
pub struct Bound {
    class: &'static str,
    /// Rows decoded for one returned.
    rows: Quantiles,
    /// Bytes read for one returned, directories left out.
    bytes: Quantiles,
    /// Requests of a question, less one for each [`ROWS_A_REQUEST`] rows returned.
    requests: Quantiles,
}

/// Boxes of 20,000 rows and more.
pub const LARGE: Bound =
    Bound { class: "large boxes", rows: (1.5, 2.1), bytes: (1.6, 2.5), requests: (32.0, 40.0) };

/// A tenth of those boxes.
pub const TENTH: Bound =
    Bound { class: "10 % of them", rows: (2.0, 3.0), bytes: (2.5, 4.1), requests: (32.0, 40.0) };

/// The first thousand rows of those boxes.
pub const FIRST: Bound =
    Bound { class: "their first 1000", rows: (5.0, 10.0), bytes: (4.8, 8.5), requests: (14.0, 28.0) };

/// Boxes of about a thousand rows.
pub const SMALL: Bound =
    Bound { class: "small boxes", rows: (11.0, 20.0), bytes: (13.0, 34.0), requests: (30.0, 40.0) };

/// Paths of particles: a band of 64 rows, some 1,560 bytes, for each row of 32 bytes are 49 bytes for one,
/// and short gaps between them come on top where few rows are in a band.
pub const PATH: Bound =
    Bound { class: "paths", rows: (1.5, 2.5), bytes: (32.0, 68.0), requests: (32.0, 40.0) };

/// Paths in one object with bands of 8 rows, some 330 bytes each and 150 KB apart, as the bands of a path
/// are in a large table. Whoever reads long gaps to save requests reads several hundred bytes for one.
pub const FAR_PATH: Bound = Bound {
    class: "paths from all over an object",
    rows: (1.5, 2.5),
    bytes: (26.0, 125.0),
    requests: (26.0, 32.0),
};

/// Rows decoded for one returned while the table is written: 1 % of everything.
pub const GLOBAL_MEANWHILE: Quantiles = (1.4, 1.6);

/// The same for a tenth of a box over the last steps.
pub const BOX_MEANWHILE: Quantiles = (2.1, 3.1);

/// Rows given to the estimator of a tolerance query, for one unit planned.
pub const TOLERANCE_GIVEN: Quantiles = (1.6, 2.0);

/// Rows decoded for them: as for the first rows of a box.
pub const TOLERANCE_DECODED: Quantiles = (4.8, 6.8);

impl Bound {
    /// Prints what the questions of the class cost, and compares it with the bounds.
    pub fn check(&self, works: &[Work]) {
        let Self { class, rows, bytes, requests } = self;
        let touched = ratios(works, |work, returned| work.rows_touched as f64 / returned);
        check(&format!("{class}: rows"), touched, *rows);
        let read = ratios(works, |work, returned| work.bytes as f64 / (returned * ROW_BYTES));
        check(&format!("{class}: bytes"), read, *bytes);
        let beyond = ratios(works, |work, returned| work.requests as f64 - returned / ROWS_A_REQUEST);
        check(&format!("{class}: requests"), beyond, *requests);
    }
}

/// A ratio of each work, which is told the number of rows returned.
fn ratios(works: &[Work], ratio: impl Fn(&Work, f64) -> f64) -> Vec<f64> {
    works.iter().map(|work| ratio(work, work.rows_returned.max(1) as f64)).collect()
}

/// Prints median and 95th percentile, and compares them with a bound.
pub fn check(what: &str, mut values: Vec<f64>, most: Quantiles) {
    assert!(values.len() >= 10, "{what}: {} values", values.len());
    values.sort_by(f64::total_cmp);
    let (median, high) = (values[values.len() / 2], values[values.len() * 19 / 20]);
    eprintln!("{what}: {median:.2} ({high:.2}), at most {:.2} ({:.2})", most.0, most.1);
    assert!(median <= most.0 && high <= most.1, "{what}: {median} ({high}) exceed {most:?}");
}
