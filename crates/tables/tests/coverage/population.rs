//! Populations: tables of generated rows with a known truth, and the columns that are asked about.

use fastrand::Rng;

/// The rows of each population.
pub const ROWS: usize = 200_000;

/// The entities of each population.
pub const ENTITIES: usize = 20_000;

/// Groups of rows.
pub const GROUPS: u32 = 4;

/// The part of a value's variance that belongs to the entity; the rest changes from row to row.
const OF_ENTITY: f64 = 0.5;

/// The distribution of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Shape {
    /// A velocity: normal.
    Normal,
    /// Lognormal with a deviation of 1.5 of the logarithm.
    Lognormal,
    /// 1 in one of a hundred rows, 0 in the others.
    Indicator,
    /// Bimodal.
    Bimodal,
    /// Normal values of entities whose sizes fall as one over their rank.
    Zipf,
}

impl Shape {
    pub const ALL: [Self; 5] = [Self::Normal, Self::Lognormal, Self::Indicator, Self::Bimodal, Self::Zipf];

    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Lognormal => "lognormal",
            Self::Indicator => "indicator",
            Self::Bimodal => "bimodal",
            Self::Zipf => "zipf",
        }
    }

    /// A value with this distribution, from a standard normal number.
    fn value(self, latent: f64, noise: f64) -> f64 {
        match self {
            Self::Normal | Self::Zipf => 0.5 + latent,
            Self::Lognormal => (1.5 * latent).exp(),
            Self::Indicator => f64::from(latent > 2.326_348),
            Self::Bimodal => noise + if latent > 0.5 { 3.0 } else { -3.0 },
        }
    }

    /// Rows above this are counted: between one and thirty per cent of them.
    pub fn threshold(self) -> f64 {
        match self {
            Self::Normal | Self::Zipf => 1.0,
            Self::Lognormal => 5.0,
            Self::Indicator => 0.5,
            Self::Bimodal => 2.0,
        }
    }
}

/// The rows of one table: the entity of each, and its values.
pub struct Population {
    pub entity: Vec<u32>,
    pub group: Vec<u32>,
    pub columns: Vec<(Shape, Vec<f64>)>,
}

impl Population {
    /// Entities of five to fifteen rows, with a column of each shape but Zipf's.
    pub fn regular(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut sizes: Vec<usize> = (0..ENTITIES).map(|_| random.usize(5..=15)).collect();
        fit(&mut sizes);
        let shapes = [Shape::Normal, Shape::Lognormal, Shape::Indicator, Shape::Bimodal];
        Self::of_sizes(&sizes, &shapes, &mut random)
    }

    /// Entities whose sizes fall as one over their rank.
    pub fn zipf(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let harmonic: f64 = (1..=ENTITIES).map(|rank| 1.0 / rank as f64).sum();
        let size = |rank: usize| ((ROWS as f64 / harmonic / rank as f64).round() as usize).max(1);
        let mut sizes: Vec<usize> = (1..=ENTITIES).map(size).collect();
        fit(&mut sizes);
        Self::of_sizes(&sizes, &[Shape::Zipf], &mut random)
    }

    fn of_sizes(sizes: &[usize], shapes: &[Shape], random: &mut Rng) -> Self {
        let entity: Vec<u32> =
            sizes.iter().zip(0..).flat_map(|(size, entity)| std::iter::repeat_n(entity, *size)).collect();
        let column = |shape: &Shape, random: &mut Rng| -> (Shape, Vec<f64>) {
            let own: Vec<f64> = sizes.iter().map(|_| normal(random)).collect();
            let value = |entity: &u32| {
                let (own, row) = (own[*entity as usize], normal(random));
                shape.value(OF_ENTITY.sqrt() * own + (1.0 - OF_ENTITY).sqrt() * row, normal(random))
            };
            (*shape, entity.iter().map(value).collect())
        };
        let columns = shapes.iter().map(|shape| column(shape, random)).collect();
        let group = entity.iter().map(|_| random.u32(..GROUPS)).collect();
        Self { entity, group, columns }
    }

    pub fn column(&self, shape: Shape) -> &[f64] {
        &self.columns.iter().find(|(of, _)| *of == shape).expect("the population has the column").1
    }
}

/// Adjusts the sizes of the largest entities so that all sum up to [`ROWS`].
fn fit(sizes: &mut [usize]) {
    let total: usize = sizes.iter().sum();
    let mut missing = ROWS as i64 - total as i64;
    for place in (0..sizes.len()).cycle() {
        let size = &mut sizes[place];
        match missing {
            0 => return,
            1.. => (*size, missing) = (*size + 1, missing - 1),
            _ if *size > 1 => (*size, missing) = (*size - 1, missing + 1),
            _ => {}
        }
    }
}

/// A standard normal number (Box and Muller).
fn normal(random: &mut Rng) -> f64 {
    let (radius, angle) = (1.0 - random.f64(), random.f64());
    (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
}
