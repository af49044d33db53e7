//! Random ways to pack.

use atoll_tables::PackOptions;
use atoll_tables::cube::Shape;
use fastrand::Rng;

/// Random options that leave blocks alone while they have fewer rows than some number below `rows_min`.
pub fn some_options(random: &mut Rng, rows_min: u64) -> PackOptions {
    PackOptions {
        shape: Shape {
            cube_rows: random.usize(1..500),
            leaf_rows: random.usize(1..1500),
            layer_rows: random.usize(1..300),
            band_rows: random.usize(1..200),
            object_bytes: 1 << random.usize(10..20),
        },
        is_whole: random.bool(),
        rows_min: random.u64(..rows_min),
        fan: random.usize(2..5),
        tree_bytes_max: 1 << random.u32(10..24),
        is_settling: random.bool(),
        share: 1.0,
        bytes_per_second: None,
    }
}
