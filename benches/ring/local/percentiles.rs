//! Percentiles of a few figures.

/// The smallest figure that at least this share of all does not exceed; `None` without figures.
pub fn percentile(figures: &[f64], share: f64) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.max(1) - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_figures_is_not_above_its_percentile() {
        let figures: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&figures, 0.5), Some(50.0));
        assert_eq!(percentile(&figures, 0.99), Some(99.0));
        assert_eq!(percentile(&figures, 1.0), Some(100.0));
        // Of few figures it is the largest: never better than what was observed.
        assert_eq!(percentile(&[3.0, 1.0], 0.99), Some(3.0));
        assert_eq!(percentile(&[], 0.99), None);
    }
}
