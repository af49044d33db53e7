//! Confidence: how far a sum over a sample may be from what it estimates.
//!
//! Everything here is about one kind of number: the sum, over the units of the sample, of a residual whose
//! sum over *all* units is zero. For a mean, the residual of a unit is the sum of its values minus its number
//! of rows times the mean. Shares, quantiles and counts have the same form with other values.
//! docs/internals/tables-estimates.md derives both bounds.
//!
//! Invariant: the bound of a sample that is everything is zero.

use super::EstimateError;
use super::distributions::student_quantile;
use super::ratio::Squares;
use serde::Serialize;

/// How many unmet units, as large as the largest one met, the bound allows for when the caller may look at
/// any time. In a lopsided column the first looks have met few of the large values, so the estimated spread
/// is too small. This number raises the worst cell of the coverage test, lognormal values under an adversary,
/// from 87 % to 96 %.
const UNMET_UNITS_ANYTIME: f64 = 6.0;

/// The same allowance where looks are few and planned.
const UNMET_UNITS_NARROW: f64 = 2.0;

/// The rule by which reading stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stopping {
    /// The size of the sample was fixed before anything of it was seen: Student's t.
    #[default]
    Fixed,
    /// Reading goes on until the interval is narrow enough, with a few planned looks: Student's t, with a
    /// variance that allows for large units that were not met. A [`Reading`](super::Reading) uses this in
    /// place of `Fixed`.
    Narrow,
    /// The caller looks while the sample grows, and may stop at any moment, for any reason: a confidence
    /// sequence, the normal mixture. Its intervals are about half as wide again, and narrowest for their
    /// scale near this many units.
    Anytime {
        /// The number of units at which the interval is narrowest.
        units: u64,
    },
}

impl Stopping {
    /// [`Stopping::Anytime`], narrowest near a thousand units.
    pub const ANYTIME: Self = Self::Anytime { units: 1000 };
}

/// How sure an interval is to be, and under which rule of stopping.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Confidence {
    level: f64,
    comparisons: u32,
    stopping: Stopping,
}

impl Default for Confidence {
    fn default() -> Self {
        Self { level: 0.95, comparisons: 1, stopping: Stopping::Fixed }
    }
}

impl Confidence {
    /// A confidence with which intervals contain the truth with probability `level`, such as 0.95.
    ///
    /// # Errors
    /// [`EstimateError::Confidence`] unless it lies between 0 and 1, without the ends.
    pub fn new(level: f64) -> Result<Self, EstimateError> {
        if level > 0.0 && level < 1.0 {
            Ok(Self { level, ..Self::default() })
        } else {
            Err(EstimateError::Confidence { level })
        }
    }

    /// The same confidence under another rule of stopping.
    #[must_use]
    pub const fn stopping(self, stopping: Stopping) -> Self {
        Self { stopping, ..self }
    }

    /// The same confidence for `comparisons` intervals at once (Bonferroni: each may fail an equal part of
    /// the time).
    #[must_use]
    pub fn simultaneous(self, comparisons: usize) -> Self {
        Self { comparisons: u32::try_from(comparisons.max(1)).unwrap_or(u32::MAX), ..self }
    }

    /// The probability that the interval contains the truth; for several intervals, that all of them do.
    #[must_use]
    pub const fn level(&self) -> f64 {
        self.level
    }

    /// Whether the intervals hold at any time.
    #[must_use]
    pub const fn is_anytime(&self) -> bool {
        matches!(self.stopping, Stopping::Anytime { .. })
    }

    /// The same confidence, for reading until the interval is narrow.
    pub(super) fn until_narrow(self) -> Self {
        if self.stopping == Stopping::Fixed { self.stopping(Stopping::Narrow) } else { self }
    }

    /// The probability with which one of the intervals may fail.
    pub(super) fn risk(&self) -> f64 {
        (1.0 - self.level) / f64::from(self.comparisons)
    }

    /// The bound for sums over a sample of `units` units that are the share `share` of all.
    pub(super) fn bound(&self, units: u64, share: f64) -> Bound {
        let left = 1.0 - share;
        let reach = if left <= 0.0 {
            Reach::Nothing
        } else if units < 2 {
            Reach::Anything
        } else {
            match self.stopping {
                Stopping::Fixed | Stopping::Narrow => {
                    Reach::Student(student_quantile(1.0 - 0.5 * self.risk(), units - 1))
                }
                Stopping::Anytime { units: planned } => {
                    Reach::Mixture { planned: planned.max(1) as f64 / units as f64, risk: self.risk() }
                }
            }
        };
        let unmet = match self.stopping {
            Stopping::Fixed => 0.0,
            Stopping::Narrow => UNMET_UNITS_NARROW,
            Stopping::Anytime { .. } => UNMET_UNITS_ANYTIME,
        };
        Bound { left, spread: units as f64 / (units as f64 - 1.0), unmet, reach }
    }
}

/// How far the sum of the residuals of a sample may be from zero.
pub(super) struct Bound {
    /// The share of all units that is not in the sample.
    left: f64,
    /// The factor that makes the sum of squares unbiased.
    spread: f64,
    /// The number of unmet units, as large as the largest one met, that the bound allows for.
    unmet: f64,
    reach: Reach,
}

enum Reach {
    Nothing,
    Anything,
    /// A multiple of the standard error.
    Student(f64),
    /// A sequence that is narrowest at this multiple of the present number of units.
    Mixture {
        planned: f64,
        risk: f64,
    },
}

impl Bound {
    /// The bound for residuals with these squares.
    pub(super) fn of_residuals(&self, squares: &Squares) -> f64 {
        self.of(squares.sum + self.unmet * squares.largest)
    }

    /// The bound for residuals whose squares have this sum.
    pub(super) fn of(&self, squares: f64) -> f64 {
        match self.reach {
            Reach::Nothing => 0.0,
            Reach::Anything => f64::INFINITY,
            Reach::Student(quantile) => quantile * (self.left * self.spread * squares).sqrt(),
            Reach::Mixture { planned, risk } => {
                // What is left to read sums up to minus what was read. The sum divided by the share left is
                // therefore a martingale, with this variance.
                let variance = self.spread * squares / self.left;
                self.left * mixture_boundary(variance, self.spread * squares * planned, risk)
            }
        }
    }
}

/// The two-sided boundary of the normal mixture: a Brownian motion ever leaves it with the probability
/// `risk`.
///
/// Source: Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence
/// sequences", Annals of Statistics 49, 2021, equation 14; the mixture is Robbins's. `variance` is the time,
/// and `narrowest` the time at which the boundary is narrowest for its scale.
fn mixture_boundary(variance: f64, narrowest: f64, risk: f64) -> f64 {
    let chance = -2.0 * risk.ln();
    // The parameter of the mixture that is best for that time, up to a few per cent.
    let parameter = narrowest / (chance + chance.ln_1p());
    if parameter <= 0.0 {
        return 0.0;
    }
    let sum = variance + parameter;
    (sum * ((sum / parameter).ln() + chance)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_a_probability() {
        for wrong in [0.0, 1.0, -0.5, 95.0, f64::NAN] {
            assert!(matches!(Confidence::new(wrong), Err(EstimateError::Confidence { .. })), "{wrong}");
        }
        assert!(Confidence::new(0.95).is_ok());
    }

    #[test]
    fn the_bound_of_a_fixed_sample_is_student_s() {
        // 30 units with residuals of square 1, of a tenth of all: 2.0452 * sqrt(0.9 * 30 / 29 * 30).
        let bound = Confidence::default().bound(30, 0.1).of(30.0);
        assert!((bound - 2.045_229_6 * (0.9f64 * 30.0 / 29.0 * 30.0).sqrt()).abs() < 1e-6);
    }

    #[test]
    fn everything_read_leaves_no_doubt_and_a_single_unit_all_of_it() {
        for stopping in [Stopping::Fixed, Stopping::ANYTIME] {
            let confidence = Confidence::default().stopping(stopping);
            assert_eq!(confidence.bound(100, 1.0).of(5.0), 0.0);
            assert_eq!(confidence.bound(1, 0.5).of(5.0), f64::INFINITY);
        }
    }

    #[test]
    fn whoever_may_stop_at_any_time_has_the_wider_bound_of_the_mixture() {
        let (units, squares) = (1000, 999.0);
        let bound = |stopping| Confidence::default().stopping(stopping).bound(units, 0.5).of(squares);
        // Half is left, so the variance of the martingale is 1000 over one half.
        let expected = 0.5 * mixture_boundary(2000.0, 1000.0, 0.05);
        assert!((bound(Stopping::ANYTIME) - expected).abs() < 1e-9);
        assert!(bound(Stopping::ANYTIME) > 1.4 * bound(Stopping::Fixed));
        assert_eq!(bound(Stopping::Narrow), bound(Stopping::Fixed));
    }

    #[test]
    fn several_intervals_at_once_are_wider() {
        let one = Confidence::default();
        let (alone, together) =
            (one.bound(100, 0.0).of(100.0), one.simultaneous(10).bound(100, 0.0).of(100.0));
        // Ten at once: the quantile of 99.5 % where one has 95 %.
        assert!(
            (together / alone - student_quantile(0.9975, 99) / student_quantile(0.975, 99)).abs() < 1e-12
        );
        assert_eq!(one.simultaneous(0).bound(100, 0.0).of(100.0), alone);
    }

    #[test]
    fn the_mixture_is_narrowest_near_its_plan() {
        let for_its_scale =
            |variance: f64, plan: f64| mixture_boundary(variance, plan, 0.05) / variance.sqrt();
        let best = for_its_scale(1000.0, 1000.0);
        for other in [10.0, 100.0, 500.0, 2000.0, 10_000.0, 100_000.0] {
            assert!(for_its_scale(1000.0, other) > best * 0.999, "planned for {other}");
        }
        // At the planned time about 1.55 times Student's 1.96: the price of looking at any time.
        assert!((2.9..3.2).contains(&best), "{best}");
    }

    #[test]
    fn a_random_walk_rarely_leaves_the_mixture_ever() {
        let mut random = fastrand::Rng::with_seed(7);
        let walks = 2000;
        let leaves = (0..walks).filter(|_| {
            let mut place: f64 = 0.0;
            (1..=4000).any(|step| {
                place += if random.bool() { 1.0 } else { -1.0 };
                place.abs() > mixture_boundary(f64::from(step), 100.0, 0.05)
            })
        });
        let share = leaves.count() as f64 / f64::from(walks);
        // 5 % for walks without end; three standard errors are 1.5 %.
        assert!((0.02..0.065).contains(&share), "{share} left, seed 7");
    }
}
