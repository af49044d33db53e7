//! Random conditions: the text that a user writes, and its meaning for a row.

use crate::particles::{EPOCH_MS, NAMES, Particle, said_of};
use atoll_tables::TableSchema;
use atoll_tables::expression::Expression;
use fastrand::Rng;

/// Whether a condition holds for a row; `None` if that is unknown.
type Holds = Box<dyn Fn(&Particle) -> Option<bool> + Send + Sync>;

/// A condition.
pub struct Condition {
    pub text: String,
    pub holds: Holds,
}

impl Condition {
    fn new(text: String, holds: impl Fn(&Particle) -> Option<bool> + Send + Sync + 'static) -> Self {
        Self { text, holds: Box::new(holds) }
    }

    /// The expression, for a table with this schema.
    pub fn expression(&self, schema: &TableSchema) -> Expression {
        let text = said_of(schema, &self.text);
        Expression::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Whether a row passes this filter.
    pub fn takes(&self, row: &Particle) -> bool {
        (self.holds)(row) == Some(true)
    }

    /// A random condition of at most this depth.
    pub fn any(random: &mut Rng, depth: usize) -> Self {
        if depth == 0 {
            return Self::simple(random);
        }
        match random.u8(..10) {
            0..5 => {
                let (left, right) = (Self::any(random, depth - 1), Self::any(random, depth - 1));
                let text = format!("({} and {})", left.text, right.text);
                Self::new(text, move |row| match ((left.holds)(row), (right.holds)(row)) {
                    (Some(false), _) | (_, Some(false)) => Some(false),
                    (Some(true), Some(true)) => Some(true),
                    _ => None,
                })
            }
            5..7 => {
                let (left, right) = (Self::any(random, depth - 1), Self::any(random, depth - 1));
                let text = format!("({} or {})", left.text, right.text);
                Self::new(text, move |row| match ((left.holds)(row), (right.holds)(row)) {
                    (Some(true), _) | (_, Some(true)) => Some(true),
                    (Some(false), Some(false)) => Some(false),
                    _ => None,
                })
            }
            7 => {
                let inner = Self::any(random, depth - 1);
                let text = format!("not ({})", inner.text);
                Self::new(text, move |row| (inner.holds)(row).map(|holds| !holds))
            }
            _ => Self::simple(random),
        }
    }

    /// A condition that selects few particles, so that their weights are known.
    pub fn of_entities(random: &mut Rng) -> Self {
        // The first particles of each rank of each run, which occur in most steps.
        let mut pid = || random.i64(0..4) % 2 * 1_000_000 + random.i64(0..2) * 100_000 + random.i64(0..200);
        let (first, second, third) = (pid(), pid(), pid());
        match random.u8(..8) {
            0..3 => Self::new(format!("pid = {first}"), move |row| Some(row.pid == first)),
            3 => Self::new(format!("pid in ({first}, {second}, {third})"), move |row| {
                Some([first, second, third].contains(&row.pid))
            }),
            4 => {
                let text = format!("(pid = {first} or ({second} = pid and kind < 3))");
                Self::new(text, move |row| Some(row.pid == first || (row.pid == second && row.kind < 3)))
            }
            5 => {
                let last = first + random.i64(0..20);
                let text = format!("pid between {first} and {last}");
                Self::new(text, move |row| Some((first..=last).contains(&row.pid)))
            }
            _ => {
                let step = random.i64(0..14);
                let text = format!("(pid in ({first}, {second}) and step = {step})");
                Self::new(text, move |row| Some([first, second].contains(&row.pid) && row.step == step))
            }
        }
    }

    /// The conjunction of both.
    #[allow(dead_code)]
    pub fn and(self, other: Self) -> Self {
        let text = format!("({}) and ({})", self.text, other.text);
        Self::new(text, move |row| match ((self.holds)(row), (other.holds)(row)) {
            (Some(false), _) | (_, Some(false)) => Some(false),
            (Some(true), Some(true)) => Some(true),
            _ => None,
        })
    }

    /// A condition on the added column.
    #[allow(dead_code)]
    pub fn of_charge(random: &mut Rng) -> Self {
        let least = random.f32();
        match random.u8(..4) {
            0 => Self::new("charge is null".to_owned(), |row| Some(row.charge.is_none())),
            1 => Self::new("charge is not null".to_owned(), |row| Some(row.charge.is_some())),
            2 => {
                Self::new(format!("charge >= {least:?}"), move |row| row.charge.map(|charge| charge >= least))
            }
            _ => Self::new(format!("not (charge >= {least:?})"), move |row| {
                row.charge.map(|charge| charge < least)
            }),
        }
    }

    /// A condition on rows near a point where `x` is periodic.
    fn of_images(random: &mut Rng) -> Self {
        let (x, y, radius) = (random.f64() * 3.0, random.f64(), random.f64() * 0.4);
        let length = 0.9 + random.f64();
        let text = format!("near((x, y), ({x:?}, {y:?}), {radius:?}, cell({length:?}, inf))");
        Self::new(text, move |row| {
            let far = row.y? - y;
            let square = |count: f64| {
                let near = row.x - x - count * length;
                near * near + far * far
            };
            Some((-9..=9).any(|count| square(f64::from(count)) <= radius * radius))
        })
    }

    fn simple(random: &mut Rng) -> Self {
        match random.u8(..20) {
            19 => Self::of_images(random),
            16..19 => Self::of_entities(random),
            0..6 => {
                let low = random.f64() * 3.0;
                let high = low + random.f64();
                let text = format!("(x >= {low:?} and x < {high:?})");
                Self::new(text, move |row| Some(row.x >= low && row.x < high))
            }
            6 | 7 => {
                let (first, length) = (random.i64(0..14), random.i64(0..4));
                let text = format!("step between {first} and {}", first + length);
                Self::new(text, move |row| Some((first..=first + length).contains(&row.step)))
            }
            8 => {
                let steps = [random.i64(0..14), random.i64(0..14)];
                let text = format!("step in ({}, {})", steps[0], steps[1]);
                Self::new(text, move |row| Some(steps.contains(&row.step)))
            }
            9 => {
                let minute = random.i64(0..14);
                let text = format!("time < timestamp '2026-01-01T00:{minute:02}:00.5Z'");
                Self::new(text, move |row| Some(row.time_ms < EPOCH_MS + minute * 60_000 + 500))
            }
            10 => {
                let low = random.f64();
                Self::new(format!("y > {low:?}"), move |row| row.y.map(|y| y > low))
            }
            11 => Self::new("y is null".to_owned(), |row| Some(row.y.is_none())),
            12 => Self::new("y is not nan".to_owned(), |row| row.y.map(|y| !y.is_nan())),
            13 => {
                let kind = random.u8(..5);
                Self::new(format!("kind = {kind}"), move |row| Some(row.kind == kind))
            }
            14 => {
                let name = random.choice(NAMES).unwrap();
                Self::new(format!("name = '{name}'"), move |row| row.name.map(|own| own == name))
            }
            _ => {
                let least = random.f64() * 3.0;
                let text = format!("x + vz > {least:?}");
                Self::new(text, move |row| Some(row.x + f64::from(row.vz) > least))
            }
        }
    }
}
