//! The same questions through tables in memory, written anew for every seed, with the seed as salt; some are
//! packed.

use crate::cells::{Asked, Cell, Mode, Sampled, Tally, units_of};
use crate::population::{Population, Shape};
use crate::pure::{Question, Questions, looks, stopped};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use atoll_memory::MemoryStore;
use atoll_tables::estimate::{Confidence, Estimate, EstimateRequest, Stopping, Subject, Tolerance};
use atoll_tables::expression::{Column, Expression};
use atoll_tables::protocol::BlockId;
use atoll_tables::{PackOptions, Query, Roles, Table, TableSchema, column};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The rows of one step, so that a table has several blocks.
const ROWS_PER_STEP: usize = 25_000;

/// The tables of one in this many seeds are packed, which costs as much as all their questions.
const PACKED_EVERY: u64 = 8;

/// The rows of a population as a table stores them.
pub struct Written {
    rows: RecordBatch,
}

impl Written {
    pub fn new(population: &Population) -> Self {
        let numbers = |values: &[u32]| -> ArrayRef {
            Arc::new(Int64Array::from_iter_values(values.iter().map(|value| i64::from(*value))))
        };
        let count = population.entity.len() as i64;
        let mut columns: Vec<(&str, ArrayRef)> = vec![
            ("pid", numbers(&population.entity)),
            ("row", Arc::new(Int64Array::from_iter_values(0..count))),
            ("team", numbers(&population.group)),
        ];
        for (shape, values) in &population.columns {
            columns.push((shape.name(), Arc::new(Float64Array::from(values.clone()))));
        }
        Self { rows: RecordBatch::try_from_iter(columns).expect("columns of one length") }
    }

    fn schema(&self, sampled: Sampled, salt: u64) -> TableSchema {
        let fields = self.rows.schema();
        let fields =
            fields.fields().iter().map(|field| column(field.name(), field.data_type().clone(), false));
        let roles = Roles {
            id: vec!["pid".into(), "row".into()],
            sample_key: if sampled == Sampled::Entity { vec!["pid".into()] } else { Vec::new() },
            index: vec!["row".into()],
            salt,
        };
        TableSchema::new(Schema::new(fields.collect::<Vec<_>>()), &roles).expect("a schema")
    }

    async fn table(&self, sampled: Sampled, salt: u64) -> Table {
        let schema = self.schema(sampled, salt);
        assert_eq!(schema.columns().field(0).data_type(), &DataType::Int64);
        let table = Table::create(Arc::new(MemoryStore::new()), "run", schema).await.expect("a table");
        table.begin("run", 1, 1).await.expect("a run");
        for (step, from) in (0..).zip((0..self.rows.num_rows()).step_by(ROWS_PER_STEP)) {
            let rows = self.rows.slice(from, ROWS_PER_STEP.min(self.rows.num_rows() - from));
            let block = BlockId { run: "run".into(), attempt: 1, step, rank: 0 };
            table.append(block, &rows).await.expect("a step");
        }
        if salt.is_multiple_of(PACKED_EVERY) {
            table.pack(&PackOptions::whole()).await.expect("a packed table");
        }
        table
    }
}

/// Answers the cells once for every seed, from tables with that salt.
pub fn run(
    population: &Population,
    questions: &Questions,
    seeds: std::ops::Range<u64>,
) -> BTreeMap<Cell, Tally> {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(tallied(population, questions, seeds))
}

async fn tallied(
    population: &Population,
    questions: &Questions,
    seeds: std::ops::Range<u64>,
) -> BTreeMap<Cell, Tally> {
    let written = Written::new(population);
    let mut tallies: BTreeMap<Cell, Tally> = BTreeMap::new();
    for sampled in [Sampled::Row, Sampled::Entity] {
        let cells: Vec<(&Cell, &Question)> =
            questions.iter().filter(|(cell, _)| cell.sampled == sampled).collect();
        let readings = readings(&cells, units_of(population, sampled));
        for seed in seeds.clone().filter(|_| !cells.is_empty()) {
            let table = written.table(sampled, seed).await;
            let answers = answers(&table, &readings).await;
            for (cell, question) in &cells {
                tallies.entry(**cell).or_default().add(answer(&answers, **cell, question), question.truth);
            }
        }
    }
    tallies
}

/// A question for a table: the answer of a cell, or one of the answers that its adversary sees.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Ask {
    shape: Shape,
    asked: Asked,
    units: usize,
    mode: Mode,
}

type Answers = BTreeMap<Ask, Estimate>;

/// Questions about the same rows, asked together as a user would.
struct AskedTogether {
    query: Query,
    /// Questions with a tolerance: about one column and about equally many units.
    within: Option<(Shape, usize)>,
    asks: Vec<Ask>,
    requests: Vec<EstimateRequest>,
}

/// All questions for a table of `units_there` units, each once.
fn readings(cells: &[(&Cell, &Question)], units_there: usize) -> Vec<AskedTogether> {
    let mut readings: Vec<AskedTogether> = Vec::new();
    let mut asks = BTreeSet::new();
    for (cell, question) in cells {
        let Cell { shape, asked, mode, .. } = **cell;
        let looks = if mode == Mode::Anytime { looks(cell.units) } else { vec![cell.units] };
        for units in looks {
            let ask = Ask { shape, asked, units, mode };
            if asks.insert(ask) {
                let share = units as f64 / units_there as f64;
                add(&mut readings, ask, share, question.width);
            }
        }
    }
    readings
}

fn add(readings: &mut Vec<AskedTogether>, ask: Ask, share: f64, width: f64) {
    let (query, request) = question_of(ask.shape, ask.asked);
    let sampled = |query: Query| query.sample(share).expect("a share");
    let (query, request) = match ask.mode {
        Mode::Fixed => (sampled(query), request),
        Mode::Within => (query, request.within(Tolerance::Absolute(width.max(1e-9)), None)),
        Mode::Anytime => {
            let confidence = Confidence::default().stopping(Stopping::ANYTIME);
            (sampled(query), request.confidence(confidence))
        }
    };
    let within = (ask.mode == Mode::Within).then_some((ask.shape, ask.units));
    let is_same = |other: &&mut AskedTogether| other.query == query && other.within == within;
    match readings.iter_mut().find(is_same) {
        Some(reading) => {
            reading.asks.push(ask);
            reading.requests.push(request);
        }
        None => readings.push(AskedTogether { query, within, asks: vec![ask], requests: vec![request] }),
    }
}

async fn answers(table: &Table, readings: &[AskedTogether]) -> Answers {
    let mut answers = Answers::new();
    for reading in readings {
        let found = table.estimate_all(&reading.query, &reading.requests).await.expect("estimates");
        answers.extend(reading.asks.iter().copied().zip(found.into_iter().map(|found| found.estimate)));
    }
    answers
}

/// The answer of a cell; with an adversary, the answer at which it stops.
fn answer<'a>(answers: &'a Answers, cell: Cell, question: &Question) -> &'a Estimate {
    let Cell { shape, asked, units, mode, .. } = cell;
    let of = |units: usize| &answers[&Ask { shape, asked, units, mode }];
    match mode {
        Mode::Fixed | Mode::Within => of(units),
        Mode::Anytime => stopped(&looks(units).into_iter().map(of).collect::<Vec<_>>(), question.truth),
    }
}

/// The question as a user asks it.
fn question_of(shape: Shape, asked: Asked) -> (Query, EstimateRequest) {
    let column = || Column::named(shape.name());
    let threshold = shape.threshold();
    let condition = |text: String| Expression::parse(&text).expect("a condition");
    let query = Query::default();
    match asked {
        Asked::Mean => (query, EstimateRequest::new(Subject::Mean(column()))),
        Asked::Sum => (query, EstimateRequest::new(Subject::Sum(column()))),
        Asked::Q50 => (query, EstimateRequest::new(Subject::Quantile(column(), 0.5))),
        Asked::Q99 => (query, EstimateRequest::new(Subject::Quantile(column(), 0.99))),
        Asked::Count => {
            let filter = condition(format!("{} > {threshold}", shape.name()));
            (query.filter(filter), EstimateRequest::new(Subject::Count))
        }
        Asked::Share => {
            let below = condition(format!("{} <= {threshold}", shape.name()));
            (query, EstimateRequest::new(Subject::Share(below)))
        }
        Asked::GroupMean => {
            (query.filter(condition("team = 1".to_owned())), EstimateRequest::new(Subject::Mean(column())))
        }
    }
}
