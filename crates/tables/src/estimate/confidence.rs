//! Confidence: how far a sum over a sample may be from what it estimates.
//!
//! Everything here is about one kind of number: the sum, over the units of the sample, of a residual whose
//! sum over *all* units is zero. For a mean the residual of a unit is its sum less its rows times the mean; a
//! share, a quantile, a count are the same with other values. docs/internals/tables-estimates.md derives both
//! bounds.
//!
//! Invariant: a sample that is everything has a bound of zero.

use super::EstimateError;
use super::distributions::student_quantile;
use super::ratio::Squares;
use serde::Serialize;

/// Units as large as the largest that are allowed for where somebody looks while the sample grows. Of a
/// lopsided column the first looks have met few of the large values, and their spread is too small; so many
/// bring the worst cell of the coverage test, lognormal values under an adversary, from 87 % to 96 %.
const UNMET_ANYTIME: f64 = 6.0;

/// The same where looks are few and planned.
const UNMET_NARROW: f64 = 2.0;

/// What stops the reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stopping {
    /// The sample's size was fixed before anything of it was seen: Student's t.
    #[default]
    Fixed,
    /// Reading goes on until the interval is narrow enough, with few looks that are planned: Student's t, of
    /// a variance that allows for large units that were not met. What a [`Reading`](super::Reading) makes of
    /// `Fixed`.
    Narrow,
    /// Somebody looks while it grows, and may stop whenever they like what they see: a confidence sequence,
    /// the normal mixture. About half as wide again, and narrowest for its scale near this many units.
    Anytime {
        /// Where it is narrowest.
        units: u64,
    },
}

impl Stopping {
    /// Anytime, narrowest near a thousand units.
    pub const ANYTIME: Self = Self::Anytime { units: 1000 };
}

/// How sure an interval shall be, and under which circumstances.
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
    /// Intervals that hold the truth with this probability, such as 0.95.
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

    /// The same, for a way of stopping.
    #[must_use]
    pub const fn stopping(self, stopping: Stopping) -> Self {
        Self { stopping, ..self }
    }

    /// The same, so that so many intervals hold all at once (Bonferroni: each may fail a part of the time).
    #[must_use]
    pub fn simultaneous(self, comparisons: usize) -> Self {
        Self { comparisons: u32::try_from(comparisons.max(1)).unwrap_or(u32::MAX), ..self }
    }

    /// How probable it is that the interval holds the truth; all of them if there are several.
    #[must_use]
    pub const fn level(&self) -> f64 {
        self.level
    }

    /// What stops the reading.
    #[must_use]
    pub const fn is_anytime(&self) -> bool {
        matches!(self.stopping, Stopping::Anytime { .. })
    }

    /// The same, for reading until the interval is narrow.
    pub(super) fn until_narrow(self) -> Self {
        if self.stopping == Stopping::Fixed { self.stopping(Stopping::Narrow) } else { self }
    }

    /// How often one of the intervals may fail.
    pub(super) fn risk(&self) -> f64 {
        (1.0 - self.level) / f64::from(self.comparisons)
    }

    /// How far sums over a sample of so many units, which are this share of all, may be from what they
    /// estimate.
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
            Stopping::Narrow => UNMET_NARROW,
            Stopping::Anytime { .. } => UNMET_ANYTIME,
        };
        Bound { left, spread: units as f64 / (units as f64 - 1.0), unmet, reach }
    }
}

/// How far the sum of the residuals of a sample may be from zero.
pub(super) struct Bound {
    /// The share of all units that is not in the sample.
    left: f64,
    /// Makes the sum of squares an unbiased one.
    spread: f64,
    /// How many units more, as large as the largest, are allowed for.
    unmet: f64,
    reach: Reach,
}

enum Reach {
    Nothing,
    Anything,
    /// So many standard errors.
    Student(f64),
    /// A sequence that is narrowest at so many times the units that are there.
    Mixture {
        planned: f64,
        risk: f64,
    },
}

impl Bound {
    /// Where the residuals have these squares.
    pub(super) fn of_residuals(&self, squares: &Squares) -> f64 {
        self.of(squares.sum + self.unmet * squares.largest)
    }

    /// Where the squares of the residuals have this sum.
    pub(super) fn of(&self, squares: f64) -> f64 {
        match self.reach {
            Reach::Nothing => 0.0,
            Reach::Anything => f64::INFINITY,
            Reach::Student(quantile) => quantile * (self.left * self.spread * squares).sqrt(),
            Reach::Mixture { planned, risk } => {
                // What is left to read sums up to minus what was read, so the sum divided by the share left
                // is a martingale, and its variance grows like this.
                let variance = self.spread * squares / self.left;
                self.left * mixture_boundary(variance, self.spread * squares * planned, risk)
            }
        }
    }
}

/// The two-sided boundary of the normal mixture: a Brownian motion leaves it, ever, with the probability
/// `risk`.
///
/// Source: Howard, Ramdas, McAuliffe, Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence
/// sequences", Annals of Statistics 49, 2021, equation 14; it is Robbins's. `variance` is the time, and
/// `narrowest` the time at which it is narrowest for its scale.
fn mixture_boundary(variance: f64, narrowest: f64, risk: f64) -> f64 {
    let chance = -2.0 * risk.ln();
    // The mixture's parameter that is best for that time, up to a few per cent.
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
        // At the planned time about 1.55 times Student's 1.96: the price of looking whenever one likes.
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
