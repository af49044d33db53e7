//! The same questions through tables: written anew for each seed, with the seed as salt, in memory; some are packed.

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
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows of one step, so that a table has several blocks.
const ROWS_PER_STEP: usize = 25_000;

/// Of so many seeds one has its tables packed, which costs as much as all of its questions.
const PACKED_EVERY: u64 = 8;

/// The rows of a population as a table has them.
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

/// Answers the cells once for each seed, of tables with that salt.
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
    for seed in seeds {
        for sampled in [Sampled::Row, Sampled::Entity] {
            let mut cells = questions.iter().filter(|(cell, _)| cell.sampled == sampled).peekable();
            if cells.peek().is_none() {
                continue;
            }
            let table = written.table(sampled, seed).await;
            let mut looks = Looks { table: &table, population, seen: BTreeMap::new() };
            for (cell, question) in cells {
                let estimate = looks.answer(*cell, question).await;
                tallies.entry(*cell).or_default().add(&estimate, question.truth);
            }
        }
    }
    tallies
}

/// The answers of one table, of which those of adversaries are kept: each of them looks where others have looked.
struct Looks<'t> {
    table: &'t Table,
    population: &'t Population,
    seen: BTreeMap<(Shape, Asked, usize), Estimate>,
}

impl Looks<'_> {
    async fn answer(&mut self, cell: Cell, question: &Question) -> Estimate {
        match cell.mode {
            Mode::Fixed => self.sampled(cell, cell.units, Confidence::default()).await,
            Mode::Within => {
                let (query, request) = asked(cell);
                let tolerance = Tolerance::Absolute(question.width.max(1e-9));
                estimate(self.table, &query, &request.within(tolerance, None)).await
            }
            Mode::Anytime => self.adversary(cell, question.truth).await,
        }
    }

    /// The estimate from a sample of so many units, on average.
    async fn sampled(&self, cell: Cell, units: usize, confidence: Confidence) -> Estimate {
        let (query, request) = asked(cell);
        let share = units as f64 / units_of(self.population, cell.sampled) as f64;
        let query = query.sample(share).expect("a share");
        estimate(self.table, &query, &request.confidence(confidence)).await
    }

    async fn adversary(&mut self, cell: Cell, truth: f64) -> Estimate {
        let confidence = Confidence::default().stopping(Stopping::ANYTIME);
        let key = |units: usize| (cell.shape, cell.asked, units);
        for units in looks(cell.units) {
            if !self.seen.contains_key(&key(units)) {
                let answer = self.sampled(cell, units, confidence).await;
                self.seen.insert(key(units), answer);
            }
        }
        let answers = looks(cell.units).into_iter().map(|units| &self.seen[&key(units)]);
        stopped(&answers.collect::<Vec<_>>(), truth).clone()
    }
}

async fn estimate(table: &Table, query: &Query, request: &EstimateRequest) -> Estimate {
    table.estimate(query, request).await.expect("an estimate").estimate
}

/// The question as a user puts it.
fn asked(cell: Cell) -> (Query, EstimateRequest) {
    let column = || Column::named(cell.shape.name());
    let threshold = cell.shape.threshold();
    let condition = |text: String| Expression::parse(&text).expect("a condition");
    let query = Query::default();
    match cell.asked {
        Asked::Mean => (query, EstimateRequest::new(Subject::Mean(column()))),
        Asked::Sum => (query, EstimateRequest::new(Subject::Sum(column()))),
        Asked::Q50 => (query, EstimateRequest::new(Subject::Quantile(column(), 0.5))),
        Asked::Q99 => (query, EstimateRequest::new(Subject::Quantile(column(), 0.99))),
        Asked::Count => {
            let filter = condition(format!("{} > {threshold}", cell.shape.name()));
            (query.filter(filter), EstimateRequest::new(Subject::Count))
        }
        Asked::Share => {
            let below = condition(format!("{} <= {threshold}", cell.shape.name()));
            (query, EstimateRequest::new(Subject::Share(below)))
        }
        Asked::GroupMean => {
            (query.filter(condition("team = 1".to_owned())), EstimateRequest::new(Subject::Mean(column())))
        }
    }
}
