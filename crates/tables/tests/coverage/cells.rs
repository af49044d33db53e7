//! Cells: what is estimated, of which column, how, and how often the answer was right.

use crate::population::{Population, Shape};
use atoll_tables::estimate::{Estimate, Quantity};

/// The unit that has one weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sampled {
    Row,
    Entity,
}

/// The quantity that is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Asked {
    Mean,
    Sum,
    Count,
    Q50,
    Q99,
    Share,
    GroupMean,
}

impl Asked {
    pub const ALL: [Self; 7] =
        [Self::Mean, Self::Sum, Self::Count, Self::Q50, Self::Q99, Self::Share, Self::GroupMean];

    /// The value of a row that counts for the quantity; NaN for other rows.
    pub fn value(self, shape: Shape, value: f64, group: u32) -> f64 {
        match self {
            Self::Count => f64::from(value > shape.threshold()),
            // The opposite condition, so that a share differs from a count.
            Self::Share => f64::from(value <= shape.threshold()),
            Self::GroupMean if group != 1 => f64::NAN,
            _ => value,
        }
    }

    pub fn is_quantile(self) -> bool {
        matches!(self, Self::Q50 | Self::Q99)
    }

    /// For a quantile, the share of the rows up to it.
    fn share(self) -> f64 {
        if self == Self::Q50 { 0.5 } else { 0.99 }
    }

    pub fn quantity(self, rows: u64) -> Quantity {
        match self {
            Self::Mean | Self::GroupMean => Quantity::Mean,
            Self::Sum => Quantity::Sum { rows: Some(rows) },
            Self::Count => Quantity::Count { rows: Some(rows) },
            Self::Share => Quantity::Share,
            Self::Q50 => Quantity::Quantile { share: 0.5 },
            Self::Q99 => Quantity::Quantile { share: 0.99 },
        }
    }

    /// The truth, by reading everything, without any code of the estimators.
    pub fn truth(self, values: &[f64]) -> f64 {
        let mut present: Vec<f64> = values.iter().copied().filter(|value| !value.is_nan()).collect();
        let sum: f64 = present.iter().sum();
        let count = present.len();
        match self {
            Self::Mean | Self::GroupMean | Self::Share => sum / count as f64,
            Self::Sum | Self::Count => sum,
            Self::Q50 | Self::Q99 => {
                present.sort_unstable_by(f64::total_cmp);
                // The shares 1/2 and 99/100 in integers: the first rank that reaches them.
                let hundredths = if self == Self::Q50 { 50 } else { 99 };
                present[(count * hundredths).div_ceil(100) - 1]
            }
        }
    }
}

/// The way of stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// At a share that was fixed beforehand.
    Fixed,
    /// When the estimate is narrow enough.
    Within,
    /// An adversary, who looks at every doubling and stops where the interval is wrong.
    Anytime,
}

impl Mode {
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Within, Self::Anytime];
}

/// One cell of the grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    pub sampled: Sampled,
    pub shape: Shape,
    pub asked: Asked,
    pub units: usize,
    pub mode: Mode,
}

impl Cell {
    /// Whether it is a quantile whose value most rows share: its interval is that value, and nearly always
    /// right.
    pub fn is_atom(self) -> bool {
        self.shape == Shape::Indicator && matches!(self.asked, Asked::Q50 | Asked::Q99)
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { sampled, shape, asked, units, mode } = self;
        write!(formatter, "{sampled:?} {asked:?} {} {units} {mode:?}", shape.name())
    }
}

/// All cells of the grid.
pub fn all() -> Vec<Cell> {
    let mut cells = Vec::new();
    for sampled in [Sampled::Row, Sampled::Entity] {
        for shape in Shape::ALL {
            for asked in Asked::ALL {
                for units in [100, 1000, 10_000] {
                    cells.extend(Mode::ALL.map(|mode| Cell { sampled, shape, asked, units, mode }));
                }
            }
        }
    }
    cells
}

/// The ten cells of every test run: both units, every quantity, every shape but one, and all ways of
/// stopping.
pub fn ten() -> Vec<Cell> {
    use Asked::{Count, GroupMean, Mean, Q50, Q99, Share, Sum};
    use Sampled::{Entity, Row};
    let cell = |sampled, asked, shape, units, mode| Cell { sampled, shape, asked, units, mode };
    vec![
        cell(Row, Mean, Shape::Normal, 1000, Mode::Fixed),
        cell(Row, Sum, Shape::Lognormal, 10_000, Mode::Fixed),
        cell(Row, Count, Shape::Indicator, 10_000, Mode::Fixed),
        cell(Row, Q99, Shape::Normal, 10_000, Mode::Fixed),
        cell(Row, Q50, Shape::Bimodal, 1000, Mode::Within),
        cell(Entity, Mean, Shape::Normal, 1000, Mode::Fixed),
        cell(Entity, Share, Shape::Indicator, 1000, Mode::Fixed),
        cell(Entity, GroupMean, Shape::Bimodal, 1000, Mode::Fixed),
        cell(Entity, Mean, Shape::Normal, 1000, Mode::Within),
        cell(Entity, Mean, Shape::Normal, 1000, Mode::Anytime),
    ]
}

/// The tally of a cell's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub answers: u64,
    pub right: u64,
    pub flagged: u64,
}

impl Tally {
    pub fn add(&mut self, estimate: &Estimate, truth: f64) {
        let is_right = holds(estimate, truth);
        self.answers += 1;
        self.right += u64::from(is_right);
        self.flagged += u64::from(!estimate.is_valid());
    }

    pub fn join(&mut self, other: &Self) {
        self.answers += other.answers;
        self.right += other.right;
        self.flagged += other.flagged;
    }

    /// The cell in words and numbers.
    pub fn line(&self, cell: Cell) -> String {
        let verdict = match (self.holds(cell), self.is_mostly_flagged()) {
            (true, false) => "holds",
            (true, true) => "holds, doubted",
            (false, true) => "doubted",
            (false, false) => "BREAKS",
        };
        let (least, most) = self.allowed(cell);
        let [right, flagged] = [self.right, self.flagged].map(|count| self.share(count) * 100.0);
        let (least, most) = (least * 100.0, most.min(1.0) * 100.0);
        let cell = cell.to_string();
        format!(
            "{cell:<36} {right:5.1} % right of {least:.1} to {most:.1} %, {flagged:5.1} % doubted; {verdict}"
        )
    }

    fn share(&self, count: u64) -> f64 {
        count as f64 / self.answers as f64
    }

    pub fn is_mostly_flagged(&self) -> bool {
        2 * self.flagged > self.answers
    }

    /// Whether the coverage of the cell keeps the promise, by the rule of the tests.
    pub fn holds(&self, cell: Cell) -> bool {
        self.margin(cell) >= 0.0
    }

    /// The distance of the coverage from breaking the rule, in either direction; negative if it is broken.
    pub fn margin(&self, cell: Cell) -> f64 {
        let (least, most) = self.allowed(cell);
        let coverage = self.share(self.right);
        let above = if most >= 1.0 { f64::INFINITY } else { most - coverage };
        (coverage - least).min(above)
    }

    /// The least and the greatest coverage that keep the rule, including three standard errors of the run.
    fn allowed(&self, cell: Cell) -> (f64, f64) {
        let three_errors = 3.0 * (0.95f64 * 0.05 / self.answers as f64).sqrt();
        let (least, most) = match cell.mode {
            Mode::Anytime => (0.95, 1.0),
            _ if cell.is_atom() => (0.93, 1.0),
            Mode::Fixed | Mode::Within => (0.93, 0.975),
        };
        (least - three_errors, most + three_errors)
    }
}

/// Whether an interval contains the truth, up to the rounding of sums in another order.
pub fn holds(estimate: &Estimate, truth: f64) -> bool {
    let rounding = truth.abs() * 1e-9;
    estimate.low <= truth + rounding && truth - rounding <= estimate.high
}

/// What is known of a question from all rows, before any sample is drawn: the truth, and the width of
/// samples.
pub struct Planned {
    pub truth: f64,
    asked: Asked,
    rows: f64,
    units: f64,
    /// The sum of squared residuals of units, and the number of rows with a value.
    squares: f64,
    count: f64,
    /// For a quantile, all values in rising order.
    rising: Vec<f64>,
}

impl Planned {
    pub fn new(population: &Population, sampled: Sampled, shape: Shape, asked: Asked) -> Self {
        let column = population.column(shape).iter().zip(&population.group);
        let values: Vec<f64> = column.map(|(value, group)| asked.value(shape, *value, *group)).collect();
        let (truth, rows) = (asked.truth(&values), values.len() as f64);
        let (shares, of_share) = match asked {
            Asked::Q50 | Asked::Q99 => {
                let up_to = values.iter().map(|value| f64::from(*value <= truth)).collect();
                (up_to, asked.share())
            }
            Asked::Sum | Asked::Count => (values.clone(), truth / rows),
            _ => (values.clone(), truth),
        };
        let (squares, count) = residuals(population, sampled, &shares, of_share);
        let mut rising = if asked.is_quantile() { values } else { Vec::new() };
        rising.sort_unstable_by(f64::total_cmp);
        let units = units_of(population, sampled) as f64;
        Self { truth, asked, rows, units, squares, count, rising }
    }

    /// Half the mean width of an interval from this many units, which a plan would ask for.
    pub fn width(&self, units: usize) -> f64 {
        let share = units as f64 / self.units;
        let width = 1.96 * ((1.0 - share) / share * self.squares).sqrt() / self.count;
        let at = |share: f64| self.rising[((share * self.rows) as usize).min(self.rising.len() - 1)];
        match self.asked {
            Asked::Sum | Asked::Count => width * self.rows,
            Asked::Q50 | Asked::Q99 => {
                0.5 * (at(self.asked.share() + width) - at(self.asked.share() - width))
            }
            _ => width,
        }
    }
}

/// The sum of squared residuals of units at the truth, and the number of rows with a value.
fn residuals(population: &Population, sampled: Sampled, values: &[f64], truth: f64) -> (f64, f64) {
    let mut residuals = vec![0.0; values.len()];
    let mut count = 0.0;
    for (row, value) in values.iter().enumerate().filter(|(_, value)| !value.is_nan()) {
        let unit = match sampled {
            Sampled::Row => row,
            Sampled::Entity => population.entity[row] as usize,
        };
        residuals[unit] += value - truth;
        count += 1.0;
    }
    (residuals.iter().map(|residual| residual * residual).sum(), count)
}

/// The number of units.
pub fn units_of(population: &Population, sampled: Sampled) -> usize {
    match sampled {
        Sampled::Row => population.entity.len(),
        Sampled::Entity => population.entity.last().map_or(0, |last| *last as usize + 1),
    }
}
