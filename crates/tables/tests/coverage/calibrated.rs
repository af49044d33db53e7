//! Totals of rows of which a part is counted, through the estimators alone: every seed orders the units
//! differently.
//!
//! Of each entity six rows in ten are counted, as if they lay in steps that a region contains. The values lie
//! far from zero, so that the number of the other rows, which is not known, makes most of the uncertainty.

use crate::Tallies;
use crate::cells::{Asked, Cell, Mode, Sampled, units_of};
use crate::population::{Population, Shape};
use crate::pure::{FIRST_ROWS, Order, looks, stopped};
use atoll_tables::estimate::{
    Confidence, Estimate, KnownPart, Quantity, Reading, Step, Stopping, Tolerance, Units,
};
use atoll_tables::{Cut, Window};
use std::ops::Range;

/// How far the values are moved away from zero.
const SHIFT: f64 = 3.0;

/// The tallies of all cells, and two mean half widths of the first cell: with what is counted, and without.
pub struct Found {
    pub tallies: Tallies,
    pub widths: (f64, f64),
}

/// A question, with what is known from all rows.
struct Question {
    cell: Cell,
    values: Vec<f64>,
    truth: f64,
    /// Half the mean width of an interval from as many units as the cell has.
    width: f64,
}

fn is_counted(row: usize) -> bool {
    row % 10 < 6
}

/// The number of counted rows.
fn counted_rows(population: &Population) -> u64 {
    (0..population.entity.len()).filter(|row| is_counted(*row)).count() as u64
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for sampled in [Sampled::Row, Sampled::Entity] {
        for (shape, asked, units) in [
            (Shape::Normal, Asked::Sum, 1000),
            (Shape::Bimodal, Asked::Sum, 1000),
            (Shape::Lognormal, Asked::Sum, 10_000),
            (Shape::Normal, Asked::Count, 1000),
        ] {
            cells.extend(Mode::ALL.map(|mode| Cell { sampled, shape, asked, units, mode }));
        }
    }
    cells
}

impl Question {
    fn new(population: &Population, cell: Cell) -> Self {
        let value = |(row, value): (usize, &f64)| match cell.asked {
            // The condition holds for every counted row.
            Asked::Count => f64::from(is_counted(row) || *value > cell.shape.threshold()),
            _ => value + SHIFT,
        };
        let values: Vec<f64> = population.column(cell.shape).iter().enumerate().map(value).collect();
        let truth = values.iter().sum();
        let share = cell.units as f64 / units_of(population, cell.sampled) as f64;
        let squares = residuals(population, cell, &values);
        Self { cell, values, truth, width: 1.96 * ((1.0 - share) / share * squares).sqrt() }
    }

    fn quantity(&self) -> Quantity {
        match self.cell.asked {
            Asked::Count => Quantity::Count { rows: None },
            _ => Quantity::Sum { rows: None },
        }
    }
}

/// The sum of squared residuals of units: what a unit has beyond the mean of the counted rows, and all that
/// it has of the others.
fn residuals(population: &Population, cell: Cell, values: &[f64]) -> f64 {
    let counted = values.iter().enumerate().filter(|(row, _)| is_counted(*row)).map(|(_, value)| *value);
    let mean = counted.sum::<f64>() / counted_rows(population) as f64;
    let mut of_units = vec![0.0; values.len()];
    for (row, value) in values.iter().enumerate() {
        let unit = if cell.sampled == Sampled::Row { row } else { population.entity[row] as usize };
        of_units[unit] += if is_counted(row) { value - mean } else { *value };
    }
    of_units.iter().map(|residual| residual * residual).sum()
}

/// Answers all cells once for every seed, on both halves of the seeds in parallel.
pub fn run(seeds: Range<u64>) -> Found {
    let population = Population::regular(1);
    let questions: Vec<Question> = cells().into_iter().map(|cell| Question::new(&population, cell)).collect();
    let middle = seeds.start + (seeds.end - seeds.start) / 2;
    let of_seeds = |seeds: Range<u64>| half(&population, &questions, seeds);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| of_seeds(middle..seeds.end));
        let mut found = of_seeds(seeds.start..middle);
        let other = other.join().expect("no panic");
        for (cell, tally) in other.tallies {
            found.tallies.entry(cell).or_default().join(&tally);
        }
        let count = (seeds.end - seeds.start).max(1) as f64;
        let mean = |one: f64, other: f64| (one + other) / count;
        found.widths = (mean(found.widths.0, other.widths.0), mean(found.widths.1, other.widths.1));
        found
    })
}

/// As [`run`], with the sums of the widths.
fn half(population: &Population, questions: &[Question], seeds: Range<u64>) -> Found {
    let mut found = Found { tallies: Tallies::new(), widths: (0.0, 0.0) };
    let rows = counted_rows(population);
    for seed in seeds {
        for sampled in [Sampled::Row, Sampled::Entity] {
            let order = Order::new(population, sampled, seed);
            let asked = Drawn { population, order: &order, rows };
            for question in questions.iter().filter(|question| question.cell.sampled == sampled) {
                let estimate = asked.answer(question);
                found.tallies.entry(question.cell).or_default().add(&estimate, question.truth);
            }
            if let Some(first) = questions.first().filter(|first| first.cell.sampled == sampled) {
                let known = asked.sampled(first, first.cell.units, Confidence::default(), true);
                let alone = asked.sampled(first, first.cell.units, Confidence::default(), false);
                found.widths.0 += known.half_width();
                found.widths.1 += alone.half_width();
            }
        }
    }
    found
}

/// Rows in the order that a seed gives them.
struct Drawn<'d> {
    population: &'d Population,
    order: &'d Order,
    /// The number of counted rows.
    rows: u64,
}

impl Drawn<'_> {
    /// The values of a range of the rows, and whether each is counted.
    fn of(&self, question: &Question, rows: Range<usize>) -> (Vec<f64>, Vec<bool>) {
        let rows = &self.order.rows[rows];
        let value = |row: &u32| question.values[*row as usize];
        (rows.iter().map(value).collect(), rows.iter().map(|row| is_counted(*row as usize)).collect())
    }

    fn answer(&self, question: &Question) -> Estimate {
        let units = question.cell.units;
        match question.cell.mode {
            Mode::Fixed => self.sampled(question, units, Confidence::default(), true),
            Mode::Within => self.within(question),
            Mode::Anytime => {
                let confidence = Confidence::default().stopping(Stopping::ANYTIME);
                let looks = looks(units).into_iter();
                let answers: Vec<Estimate> =
                    looks.map(|units| self.sampled(question, units, confidence, true)).collect();
                stopped(&answers.iter().collect::<Vec<_>>(), question.truth).clone()
            }
        }
    }

    fn sampled(&self, question: &Question, units: usize, confidence: Confidence, is_known: bool) -> Estimate {
        let share = units as f64 / units_of(self.population, question.cell.sampled) as f64;
        let cut = Cut::of_share(share).expect("a share");
        let rows = cut.prefix(&self.order.weights);
        let units = Units::within(&self.order.weights[..rows], Window::below(cut)).expect("in order");
        let (values, is_counted) = self.of(question, 0..rows);
        let quantity = question.quantity();
        if !is_known {
            return quantity.estimate(&units, &values, &confidence).expect("an estimate");
        }
        let known = KnownPart { rows: self.rows, of_rows: &is_counted };
        quantity.estimate_beside(known, &units, &values, &confidence).expect("an estimate")
    }

    fn within(&self, question: &Question) -> Estimate {
        let tolerance = Tolerance::Absolute(question.width);
        let reading = Reading::new(question.quantity(), Confidence::default(), tolerance, None, Cut::NOTHING);
        let mut reading = reading.expect("a tolerance");
        let weights = &self.order.weights;
        let (mut from, mut wanted) = (0, FIRST_ROWS);
        loop {
            let mut to = (from + wanted as usize).min(weights.len());
            while to < weights.len() && weights[to] == weights[to - 1] {
                to += 1;
            }
            let until = weights.get(to).map_or(Cut::ALL, |next| Cut::below(*next));
            let (values, is_counted) = self.of(question, from..to);
            let known = Some(KnownPart { rows: self.rows, of_rows: &is_counted });
            let is_last = to == weights.len();
            let step = reading.push_beside(known, &weights[from..to], &values, until, is_last);
            match step.expect("in order") {
                Step::GoOn { rows } => (from, wanted) = (to, rows),
                Step::Stop(estimate) => return estimate,
            }
        }
    }
}
