//! The grid through the estimators alone: every seed orders the units differently.

use crate::cells::{Cell, Mode, Planned, Sampled, Tally, holds, units_of};
use crate::population::Population;
use atoll_tables::estimate::{Confidence, Estimate, Reading, Step, Stopping, Tolerance, Units};
use atoll_tables::{Cut, Weight, Window};
use fastrand::Rng;
use std::collections::BTreeMap;

/// The rows in the first batch of a reading.
pub const FIRST_ROWS: u64 = 1000;

/// The units at the adversary's first look.
const FIRST_LOOK: usize = 40;

/// Rows in the order of their weights.
pub struct Order {
    pub weights: Vec<Weight>,
    pub rows: Vec<u32>,
}

impl Order {
    pub fn new(population: &Population, sampled: Sampled, seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let count = units_of(population, sampled);
        let mut units: Vec<(u64, u32)> = (0..count as u32).map(|unit| (random.u64(1..), unit)).collect();
        units.sort_unstable();
        let mut starts = vec![0; count + 1];
        for row in 0..population.entity.len() {
            let unit = if sampled == Sampled::Row { row } else { population.entity[row] as usize };
            starts[unit + 1] = row as u32 + 1;
        }
        let mut order = Self { weights: Vec::new(), rows: Vec::new() };
        for (weight, unit) in units {
            let rows = starts[unit as usize]..starts[unit as usize + 1];
            let weight = Weight::new(weight).expect("drawn from 1 up");
            order.weights.extend(rows.clone().map(|_| weight));
            order.rows.extend(rows);
        }
        order
    }

    fn values(&self, population: &Population, cell: Cell, rows: std::ops::Range<usize>) -> Vec<f64> {
        let column = population.column(cell.shape);
        let value = |row: &u32| {
            let row = *row as usize;
            cell.asked.value(cell.shape, column[row], population.group[row])
        };
        self.rows[rows].iter().map(value).collect()
    }
}

/// What is known of a question before any sample is drawn.
pub struct Question {
    pub truth: f64,
    pub width: f64,
}

/// The questions about a population.
pub type Questions = BTreeMap<Cell, Question>;

/// The truth and the planned width of every cell whose column the population has.
pub fn questions(population: &Population, cells: &[Cell]) -> Questions {
    let mut planned = BTreeMap::new();
    let has_column = |cell: &&Cell| population.columns.iter().any(|(shape, _)| *shape == cell.shape);
    let question = |cell: &Cell| {
        let Cell { sampled, shape, asked, .. } = *cell;
        let planned = planned
            .entry((sampled, shape, asked))
            .or_insert_with(|| Planned::new(population, sampled, shape, asked));
        (*cell, Question { truth: planned.truth, width: planned.width(cell.units) })
    };
    cells.iter().filter(has_column).map(question).collect()
}

/// Answers the cells once for every seed.
pub fn run(
    population: &Population,
    questions: &Questions,
    seeds: std::ops::Range<u64>,
) -> BTreeMap<Cell, Tally> {
    let mut tallies: BTreeMap<Cell, Tally> = BTreeMap::new();
    for seed in seeds {
        for sampled in [Sampled::Row, Sampled::Entity] {
            if questions.keys().all(|cell| cell.sampled != sampled) {
                continue;
            }
            let order = Order::new(population, sampled, seed);
            for (cell, question) in questions.iter().filter(|(cell, _)| cell.sampled == sampled) {
                let estimate = answer(population, &order, *cell, question);
                tallies.entry(*cell).or_default().add(&estimate, question.truth);
            }
        }
    }
    tallies
}

fn answer(population: &Population, order: &Order, cell: Cell, question: &Question) -> Estimate {
    match cell.mode {
        Mode::Fixed => sampled(population, order, cell, cell.units, Confidence::default()),
        Mode::Within => within(population, order, cell, question.width),
        Mode::Anytime => adversary(population, order, cell, question.truth),
    }
}

fn sampled(
    population: &Population,
    order: &Order,
    cell: Cell,
    units: usize,
    confidence: Confidence,
) -> Estimate {
    let share = units as f64 / units_of(population, cell.sampled) as f64;
    let cut = Cut::of_share(share).expect("a share");
    let rows = cut.prefix(&order.weights);
    let units = Units::within(&order.weights[..rows], Window::below(cut)).expect("in order");
    let values = order.values(population, cell, 0..rows);
    let quantity = cell.asked.quantity(population.entity.len() as u64);
    quantity.estimate(&units, &values, &confidence).expect("an estimate")
}

fn within(population: &Population, order: &Order, cell: Cell, width: f64) -> Estimate {
    let quantity = cell.asked.quantity(population.entity.len() as u64);
    let tolerance = Tolerance::Absolute(width.max(1e-9));
    let reading = Reading::new(quantity, Confidence::default(), tolerance, None, Cut::NOTHING);
    let mut reading = reading.expect("a tolerance");
    let (mut from, mut wanted) = (0, FIRST_ROWS);
    loop {
        let mut to = (from + wanted as usize).min(order.weights.len());
        while to < order.weights.len() && order.weights[to] == order.weights[to - 1] {
            to += 1;
        }
        let until = order.weights.get(to).map_or(Cut::ALL, |next| Cut::below(*next));
        let values = order.values(population, cell, from..to);
        let is_last = to == order.weights.len();
        match reading.push(&order.weights[from..to], &values, until, is_last).expect("in order") {
            Step::GoOn { rows } => (from, wanted) = (to, rows),
            Step::Stop(estimate) => return estimate,
        }
    }
}

/// Looks whenever the sample has doubled.
fn adversary(population: &Population, order: &Order, cell: Cell, truth: f64) -> Estimate {
    let confidence = Confidence::default().stopping(Stopping::ANYTIME);
    let answer = |units| sampled(population, order, cell, units, confidence);
    let answers: Vec<Estimate> = looks(cell.units).into_iter().map(answer).collect();
    stopped(&answers.iter().collect::<Vec<_>>(), truth).clone()
}

/// Where the adversary stops: at an interval without the truth, and at a doubted one only if there is no
/// other.
pub fn stopped<'a>(answers: &[&'a Estimate], truth: f64) -> &'a Estimate {
    let wrong =
        |valid: bool| answers.iter().position(|answer| answer.is_valid() == valid && !holds(answer, truth));
    let stop = wrong(true).or_else(|| wrong(false)).unwrap_or(answers.len() - 1);
    answers[stop]
}

/// The units at which the adversary looks.
pub fn looks(units: usize) -> Vec<usize> {
    let doublings = (0..).map(|doubling| FIRST_LOOK << doubling).take_while(|looked| *looked < units);
    doublings.chain([units]).collect()
}
