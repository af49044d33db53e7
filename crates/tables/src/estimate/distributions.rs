//! Quantiles of the normal and of Student's distribution, for error bars.
//!
//! The normal quantile is algorithm AS 241 (Wichura, "The percentage points of the normal distribution",
//! Applied Statistics 37, 1988), good to about 1e-15. Student's is the inverse of the closed form for whole
//! degrees of freedom up to 40 and the expansion about the normal quantile above (Abramowitz and Stegun,
//! 26.7.3 to 26.7.5), good to 1e-8.
//!
//! Invariant: both rise with the probability, and are odd about one half.
#![allow(clippy::excessive_precision, reason = "coefficients are given as they were published")]

/// The most degrees of freedom for which the closed form is inverted; beyond, the expansion is as good.
const CLOSED_FORM_MAX: u64 = 40;

/// The value below which a standard normal number lies with this probability. Infinite for 0 and 1, NaN
/// outside of them.
#[must_use]
pub fn normal_quantile(probability: f64) -> f64 {
    if !(0.0..=1.0).contains(&probability) {
        return f64::NAN;
    }
    let from_half = probability - 0.5;
    if from_half.abs() <= 0.425 {
        return from_half * rational(0.180_625 - from_half * from_half, &CENTRE);
    }
    let tail = if from_half < 0.0 { probability } else { 1.0 - probability };
    if tail <= 0.0 {
        return f64::INFINITY.copysign(from_half);
    }
    let depth = (-tail.ln()).sqrt();
    let value = if depth <= 5.0 { rational(depth - 1.6, &MIDDLE) } else { rational(depth - 5.0, &FAR) };
    value.copysign(from_half)
}

/// The value below which a number of Student's distribution lies with this probability. Infinite for zero
/// degrees of freedom: one observation says nothing about the spread.
#[must_use]
pub fn student_quantile(probability: f64, degrees: u64) -> f64 {
    let normal = normal_quantile(probability);
    if !normal.is_finite() || normal == 0.0 {
        return normal;
    }
    match degrees {
        0 => f64::INFINITY.copysign(normal),
        1..=CLOSED_FORM_MAX => inverted(probability.max(1.0 - probability), degrees).copysign(normal),
        _ => expanded(normal, degrees as f64),
    }
}

/// The expansion of Student's quantile in powers of one over the degrees of freedom.
fn expanded(z: f64, degrees: f64) -> f64 {
    let square = z * z;
    let terms = [
        (square + 1.0) / 4.0,
        ((5.0 * square + 16.0) * square + 3.0) / 96.0,
        (((3.0 * square + 19.0) * square + 17.0) * square - 15.0) / 384.0,
        ((((79.0 * square + 776.0) * square + 1482.0) * square - 1920.0) * square - 945.0) / 92_160.0,
    ];
    let series = terms.iter().rev().fold(0.0, |sum, term| (sum + term) / degrees);
    z * (1.0 + series)
}

/// The quantile by bisection over the angle in which the closed form rises.
fn inverted(probability: f64, degrees: u64) -> f64 {
    let within = 2.0 * probability - 1.0;
    let (mut low, mut high) = (0.0, std::f64::consts::FRAC_PI_2);
    // 60 halvings leave nothing of the 53 bits of an angle.
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if probability_within(middle, degrees) < within {
            low = middle;
        } else {
            high = middle;
        }
    }
    (0.5 * (low + high)).tan() * (degrees as f64).sqrt()
}

/// The probability that a number of Student's distribution lies within `tan(angle) * sqrt(degrees)` of zero.
fn probability_within(angle: f64, degrees: u64) -> f64 {
    let (sine, cosine) = angle.sin_cos();
    let is_odd = degrees % 2 == 1;
    let mut term = if is_odd { cosine } else { 1.0 };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    // The factors are 2/3, 4/5, ... for odd degrees and 1/2, 3/4, ... for even ones.
    let mut factor = if is_odd { 2.0 } else { 1.0 };
    while factor + 2.0 < degrees as f64 {
        term *= factor / (factor + 1.0) * cosine * cosine;
        sum += term;
        factor += 2.0;
    }
    if is_odd { (angle + sine * sum) * std::f64::consts::FRAC_2_PI } else { sine * sum }
}

/// A quotient of two polynomials; the coefficients of each go from the highest power down.
fn rational(x: f64, coefficients: &[[f64; 8]; 2]) -> f64 {
    let [top, bottom] = coefficients.map(|of| of.iter().fold(0.0, |sum, coefficient| sum * x + coefficient));
    top / bottom
}

const CENTRE: [[f64; 8]; 2] = [
    [
        2.509_080_928_730_122_672_7e3,
        3.343_057_558_358_812_810_5e4,
        6.726_577_092_700_870_085_3e4,
        4.592_195_393_154_987_145_7e4,
        1.373_169_376_550_946_112_5e4,
        1.971_590_950_306_551_442_7e3,
        1.331_416_678_917_843_774_5e2,
        3.387_132_872_796_366_608,
    ],
    [
        5.226_495_278_852_854_561e3,
        2.872_908_573_572_194_267_4e4,
        3.930_789_580_009_271_061e4,
        2.121_379_430_158_659_586_7e4,
        5.394_196_021_424_751_107_7e3,
        6.871_870_074_920_579_083e2,
        4.231_333_070_160_091_125_2e1,
        1.0,
    ],
];

const MIDDLE: [[f64; 8]; 2] = [
    [
        7.745_450_142_783_414_076_4e-4,
        2.272_384_498_926_918_458_33e-2,
        2.417_807_251_774_506_117_7e-1,
        1.270_458_252_452_368_382_58,
        3.647_848_324_763_204_605_04,
        5.769_497_221_460_691_405_5,
        4.630_337_846_156_545_295_9,
        1.423_437_110_749_683_577_34,
    ],
    [
        1.050_750_071_644_416_843_24e-9,
        5.475_938_084_995_344_946e-4,
        1.519_866_656_361_645_719_66e-2,
        1.481_039_764_274_800_745_9e-1,
        6.897_673_349_851_000_045_5e-1,
        1.676_384_830_183_803_849_4,
        2.053_191_626_637_758_821_87,
        1.0,
    ],
];

const FAR: [[f64; 8]; 2] = [
    [
        2.010_334_399_292_288_132_65e-7,
        2.711_555_568_743_487_578_15e-5,
        1.242_660_947_388_078_438_6e-3,
        2.653_218_952_657_612_309_3e-2,
        2.965_605_718_285_048_912_3e-1,
        1.784_826_539_917_291_335_8,
        5.463_784_911_164_114_369_9,
        6.657_904_643_501_103_777_2,
    ],
    [
        2.044_263_103_389_939_785_64e-15,
        1.421_511_758_316_445_888_7e-7,
        1.846_318_317_510_054_681_8e-5,
        7.868_691_311_456_132_591e-4,
        1.487_536_129_085_061_485_25e-2,
        1.369_298_809_227_358_053_1e-1,
        5.998_322_065_558_879_376_9e-1,
        1.0,
    ],
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normal_quantiles_are_those_of_the_tables() {
        // Probabilities on all three branches, with values from tables and other implementations.
        let table = [
            (0.5, 0.0),
            (0.6, 0.253_347_103_135_799_8),
            (0.9, 1.281_551_565_544_600_5),
            (0.95, 1.644_853_626_951_472_2),
            (0.975, 1.959_963_984_540_054),
            (0.995, 2.575_829_303_548_900_4),
            (0.9995, 3.290_526_731_491_925_5),
            (1.0 - 1e-10, 6.361_340_889_697_422),
        ];
        for (probability, expected) in table {
            let found = normal_quantile(probability);
            // The last one is about 1 - 1e-10, which has 17 bits less than 1e-10.
            let tolerance = if expected > 6.0 { 1e-6 } else { 1e-12 };
            assert!((found - expected).abs() < tolerance, "{probability}: {found} is not {expected}");
            assert!((normal_quantile(1.0 - probability) + found).abs() < 1e-9, "{probability}");
        }
        // The far branch needs tails below exp(-25).
        assert!((normal_quantile(1e-20) + 9.262_340_089_798_408).abs() < 1e-11);
        assert!((normal_quantile(1e-300) + 37.047_096_404_594_2).abs() < 1e-6);
    }

    #[test]
    fn student_quantiles_are_those_of_the_tables() {
        let two_sided_95 = [
            (1, 12.706_204_736_432_1),
            (2, 4.302_652_729_911_28),
            (3, 3.182_446_305_283_71),
            (4, 2.776_445_105_197_79),
            (5, 2.570_581_835_636_2),
            (10, 2.228_138_851_964_94),
            (29, 2.045_229_642_132_7),
            (30, 2.042_272_456_301_24),
            (40, 2.021_075_390_306_27),
            (60, 2.000_297_821_058_26),
            (120, 1.979_930_405_052_78),
        ];
        for (degrees, expected) in two_sided_95 {
            let found = student_quantile(0.975, degrees);
            assert!((found - expected).abs() < 2e-8, "{degrees} degrees: {found} is not {expected}");
            assert!((student_quantile(0.025, degrees) + found).abs() < 1e-10);
        }
        for (degrees, expected) in [(1, 63.656_741), (2, 9.924_843), (9, 3.249_836), (30, 2.749_996)] {
            assert!((student_quantile(0.995, degrees) - expected).abs() < 1e-5, "{degrees} degrees at 99 %");
        }
    }

    #[test]
    fn the_expansion_meets_the_closed_form_where_it_takes_over() {
        for probability in [0.9, 0.975, 0.995, 0.9995, 1.0 - 1e-6] {
            let (closed, expanded) =
                (inverted(probability, 40), expanded(normal_quantile(probability), 40.0));
            let tolerance = if probability > 0.9999 { 1e-4 } else { 1e-6 };
            assert!((closed - expanded).abs() < tolerance, "{probability}: {closed} and {expanded}");
        }
    }

    #[test]
    fn what_cannot_be_known_is_infinite_or_no_number() {
        assert_eq!(normal_quantile(0.0), f64::NEG_INFINITY);
        assert_eq!(normal_quantile(1.0), f64::INFINITY);
        assert!(normal_quantile(-0.1).is_nan() && normal_quantile(f64::NAN).is_nan());
        assert_eq!(student_quantile(0.975, 0), f64::INFINITY);
        assert_eq!(student_quantile(0.5, 0), 0.0);
    }
}
