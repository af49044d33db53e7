//! A branching tube through which particles are carried: the same rows on every machine.

use arrow_array::{ArrayRef, Float32Array, Int32Array, RecordBatch};
use arrow_schema::{DataType, Schema};
use atoll_tables::protocol::BlockId;
use atoll_tables::{Roles, Table, TableSchema, column};
use fastrand::Rng;
use std::sync::Arc;

/// Lengths and radii of the trunk, its branches and their branches.
const LENGTHS: [f64; 3] = [4.0, 3.0, 2.0];
const RADII: [f64; 3] = [0.5, 0.35, 0.25];

/// Particles on their way.
pub struct Tube {
    random: Rng,
    particles: Vec<Particle>,
    frames: i32,
}

struct Particle {
    /// Selects the end, out of four, that the particle reaches.
    path: u32,
    travelled: f64,
    speed: f64,
    /// The position in the cross-section, from -1 to 1.
    across: [f64; 2],
}

/// A table indexed by position and step, sampled by row or by particle.
pub fn schema(samples_entities: bool) -> TableSchema {
    let float = |name| column(name, DataType::Float32, false);
    let columns = Schema::new(vec![
        column("pid", DataType::Int32, false),
        column("step", DataType::Int32, false),
        float("x"),
        float("y"),
        float("z"),
        float("vx"),
        float("vy"),
        float("vz"),
    ]);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let roles = Roles {
        id: names(&["pid", "step"]),
        sample_key: if samples_entities { names(&["pid"]) } else { Vec::new() },
        index: names(&["x", "y", "z", "step"]),
        salt: 0,
    };
    TableSchema::new(columns, &roles).unwrap()
}

impl Tube {
    pub fn new(seed: u64, particles: usize, frames: i32) -> Self {
        let mut random = Rng::with_seed(seed);
        let particles = (0..particles)
            .map(|_| Particle {
                path: random.u32(..4),
                travelled: random.f64() * 3.5,
                speed: 7.0 / f64::from(frames) * (0.6 + 0.6 * random.f64()),
                across: [random.f64() * 2.0 - 1.0, random.f64() * 2.0 - 1.0],
            })
            .collect();
        Self { random, particles, frames }
    }

    /// Moves all particles one step, and returns their positions.
    pub fn frame(&mut self, schema: &TableSchema, step: i32) -> RecordBatch {
        let end = LENGTHS.iter().sum::<f64>() - 0.1;
        let mut columns: [Vec<f32>; 6] = Default::default();
        for particle in &mut self.particles {
            let before = particle.place();
            particle.travelled += particle.speed * (0.8 + 0.4 * self.random.f64());
            if particle.travelled > end {
                particle.travelled = end + 0.03 * self.random.f64();
            }
            for across in &mut particle.across {
                *across = (*across + 0.1 * (self.random.f64() - 0.5)).clamp(-1.0, 1.0);
            }
            let place = particle.place();
            for axis in 0..3 {
                columns[axis].push(place[axis] as f32);
                columns[axis + 3].push(((place[axis] - before[axis]) * f64::from(self.frames)) as f32);
            }
        }
        let pid: Int32Array = (0..self.particles.len() as i32).collect::<Vec<_>>().into();
        let step: Int32Array = vec![step; self.particles.len()].into();
        let floats = columns.map(|column| Arc::new(Float32Array::from(column)) as ArrayRef);
        let columns = [vec![Arc::new(pid) as ArrayRef, Arc::new(step)], floats.to_vec()].concat();
        RecordBatch::try_new(Arc::clone(schema.columns()), columns).unwrap()
    }

    /// Writes all frames, one for each step, and returns them.
    pub async fn write(&mut self, table: &Table) -> Vec<RecordBatch> {
        table.begin("tube", 1, 1).await.unwrap();
        let mut frames = Vec::new();
        for step in 0..self.frames {
            let rows = self.frame(&table.schema(), step);
            let id = BlockId { run: "tube".into(), attempt: 1, step: step as u64, rank: 0 };
            table.append(id, &rows).await.unwrap();
            frames.push(rows);
        }
        frames
    }
}

impl Particle {
    fn place(&self) -> [f64; 3] {
        let side = |bit: u32| if self.path & bit == 0 { -1.0 } else { 1.0 };
        let directions = [[0.0, 0.0, -1.0], [0.8 * side(1), 0.0, -0.6], [0.5 * side(1), 0.7 * side(2), -0.5]];
        let (mut place, mut left, mut part) = ([0.0; 3], self.travelled, 0);
        while part < 2 && left > LENGTHS[part] {
            (0..3).for_each(|axis| place[axis] += directions[part][axis] * LENGTHS[part]);
            left -= LENGTHS[part];
            part += 1;
        }
        (0..3).for_each(|axis| place[axis] += directions[part][axis] * left);
        place[0] += self.across[0] * RADII[part];
        place[1] += self.across[1] * RADII[part];
        place
    }
}
