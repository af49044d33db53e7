//! Queries, their answers by brute force, and the comparison of an answer with them.

use crate::conditions::Condition;
use crate::particles::{Particle, batch};
use arrow_array::{Int64Array, RecordBatch};
use arrow_select::concat::concat_batches;
use atoll_tables::lattice::Scalar;
use atoll_tables::{Answer, Cut, Query, Refined, TableSchema, Weight, Window};
use fastrand::Rng;

/// A query, and the meaning of its filter for a row.
pub struct Wish {
    pub query: Query,
    pub condition: Option<Condition>,
}

/// A query, and the rows in its range by brute force, in order.
pub struct Asked {
    pub query: Query,
    range: Vec<Particle>,
}

impl Wish {
    /// A random query of the current version, sometimes cut at the weight of one of these rows.
    pub fn any(random: &mut Rng, schema: &TableSchema, rows: &[Particle]) -> Self {
        let depth = random.usize(..4);
        let condition = match random.u8(..8) {
            0 | 1 => None,
            2 | 3 => Some(Condition::of_entities(random)),
            _ => Some(Condition::any(random, depth)),
        };
        let query = Query {
            filter: condition.as_ref().map(|condition| condition.expression(schema)),
            window: some_window(random, rows),
            units: (random.u8(..4) == 0).then(|| some_count(random)),
            limit: (random.u8(..4) == 0).then(|| some_count(random)),
            columns: (random.bool()).then(|| some_columns(random, schema)),
            runs: None,
            objects: None,
            as_of: None,
            with_arriving: false,
        };
        Self { query, condition }
    }

    /// The same query, restricted by another condition.
    #[allow(dead_code)]
    pub fn also(mut self, schema: &TableSchema, other: Condition) -> Self {
        self.query = self.query.filter(other.expression(schema));
        self.condition = Some(match self.condition.take() {
            None => other,
            Some(condition) => condition.and(other),
        });
        self
    }

    /// The query with its expected rows, given the true rows of the table.
    pub fn of(self, rows: Vec<Particle>) -> Asked {
        let Self { query, condition } = self;
        let takes = |row: &Particle| condition.as_ref().is_none_or(|condition| condition.takes(row));
        let mut range: Vec<Particle> =
            rows.into_iter().filter(|row| query.window.takes(row.weight) && takes(row)).collect();
        range.sort_by_key(|row| (row.weight, row.pid, row.step));
        Asked { query, range }
    }
}

impl Asked {
    /// The number of rows in the range that the query returns.
    pub fn count(&self) -> usize {
        let weights: Vec<Weight> = self.range.iter().map(|row| row.weight).collect();
        let units = weights.chunk_by(PartialEq::eq).take(self.query.units.unwrap_or(usize::MAX));
        let rows = units.map(<[Weight]>::len).sum::<usize>();
        rows.min(self.query.limit.unwrap_or(usize::MAX))
    }

    /// The least and the greatest value of the expected rows.
    #[allow(dead_code)]
    pub fn ends(&self, value: impl Fn(&Particle) -> Option<Scalar>) -> (Option<Scalar>, Option<Scalar>) {
        let values: Vec<Scalar> = self.range[..self.count()].iter().filter_map(value).collect();
        let first = |order: std::cmp::Ordering| {
            values.iter().copied().reduce(
                |left, right| {
                    if right.partial_cmp(&left) == Some(order) { right } else { left }
                },
            )
        };
        (first(std::cmp::Ordering::Less), first(std::cmp::Ordering::Greater))
    }

    /// A range of the expected rows, with the columns of the query.
    fn batch(&self, schema: &TableSchema, rows: std::ops::Range<usize>) -> RecordBatch {
        let batch = batch(schema, &self.range[rows]);
        let Some(columns) = &self.query.columns else { return batch };
        let places: Vec<usize> = columns.iter().map(|name| batch.schema().index_of(name).unwrap()).collect();
        batch.project(&places).unwrap()
    }

    /// The number of rows in the range below a cut.
    fn below(&self, cut: Cut) -> usize {
        self.range.iter().filter(|row| cut.takes(row.weight)).count()
    }

    /// Judges the answer to [`Table::query`](atoll_tables::Table::query).
    pub fn judge(&self, schema: &TableSchema, answer: &Answer) {
        let count = self.count();
        assert_eq!(answer.rows, self.batch(schema, 0..count));
        assert!(answer.weights.iter().eq(self.range[..count].iter().map(|row| &row.weight)));
        assert!(self.below(answer.cut) <= count, "rows below the cut are missing");
        if count > 0 {
            assert!(answer.cut >= Cut::below(self.range[count - 1].weight), "the cut is too low");
        }
        if self.query.units.is_none() && self.query.limit.is_none() {
            assert_eq!(answer.cut, self.query.window.until());
        }
        let work = answer.work;
        assert!(work.rows_returned == count as u64 && work.rows_touched >= work.rows_returned);
    }

    /// Judges all batches of a refinement.
    pub fn judge_refinement(&self, schema: &TableSchema, batches: &[Refined]) {
        let (mut done, mut cut) = (0, Cut::NOTHING);
        for (place, refined) in batches.iter().enumerate() {
            let rows = done..done + refined.rows.num_rows();
            assert!(rows.end <= self.range.len(), "rows that are not there");
            assert!(refined.weights.iter().eq(self.range[rows.clone()].iter().map(|row| &row.weight)));
            // A limit may cut a unit in two; then nothing is known beyond what precedes its first row.
            let is_cut_in_two = refined.is_last && self.query.limit == Some(rows.end);
            let behind = self.range.get(rows.end).map(|row| row.weight);
            assert!(
                behind.is_none() || behind.as_ref() != refined.weights.last() || is_cut_in_two,
                "a unit in part"
            );
            assert!(rows.is_empty() || cut < refined.cut || is_cut_in_two, "the cut stood still");
            (done, cut) = (rows.end, refined.cut);
            assert!(self.below(cut) <= done, "rows below the cut are missing");
            assert_eq!(refined.work.rows_returned as usize, done);
            assert_eq!(refined.version, batches[0].version, "another version");
            assert_eq!(refined.is_last, place + 1 == batches.len(), "the last batch is not the last");
        }
        assert_eq!(done, self.count());
        let all = concat_batches(&batches[0].rows.schema(), batches.iter().map(|refined| &refined.rows));
        assert_eq!(all.unwrap(), self.batch(schema, 0..done));
    }

    /// Judges all batches of an unordered answer, which have the columns `step` and `pid`.
    pub fn judge_batches(&self, batches: &[RecordBatch]) {
        let mut found: Vec<(i64, i64)> = Vec::new();
        for batch in batches {
            let numbers = |place: usize| -> Vec<i64> {
                let column: &Int64Array = batch.column(place).as_any().downcast_ref().unwrap();
                column.values().to_vec()
            };
            assert!(batch.num_rows() > 0);
            found.extend(numbers(1).into_iter().zip(numbers(0)));
        }
        let mut expected: Vec<(i64, i64)> =
            self.range[..self.count()].iter().map(|row| (row.pid, row.step)).collect();
        found.sort_unstable();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
}

fn some_window(random: &mut Rng, rows: &[Particle]) -> Window {
    match random.u8(..6) {
        0 | 1 => Window::below(Cut::ALL),
        2 => Window::below(Cut::of_share(random.f64() * random.f64()).unwrap()),
        3 => Window::below(Cut::of_share(random.f64().powi(8)).unwrap()),
        4 => {
            let from = random.f64();
            Cut::window(from, from + (1.0 - from) * random.f64()).unwrap()
        }
        // At exactly the weight of a row: up to it, through it, from it, or after it.
        _ => {
            let Some(row) = random.choice(rows) else { return Window::below(Cut::ALL) };
            let cut = if random.bool() { Cut::below(row.weight) } else { Cut::through(row.weight) };
            if random.bool() { Window::below(cut) } else { Window::above(cut) }
        }
    }
}

fn some_count(random: &mut Rng) -> usize {
    let most = 4usize.pow(random.u32(..7));
    random.usize(..=most)
}

fn some_columns(random: &mut Rng, schema: &TableSchema) -> Vec<String> {
    let fields = schema.columns().fields();
    let names: Vec<String> = fields.iter().map(|field| field.name().clone()).collect();
    let count = random.usize(..names.len());
    random.choose_multiple(names, count)
}

/// Prints the query when a test fails.
pub struct PrintOnFailure(Query);

impl PrintOnFailure {
    /// Prints `query` if a failure occurs during its lifetime.
    pub fn of(query: &Query) -> Self {
        Self(query.clone())
    }
}

impl Drop for PrintOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let filter = self.0.filter.as_ref().map(ToString::to_string);
            eprintln!("the query was {:?} with the filter {filter:?}", self.0);
        }
    }
}
