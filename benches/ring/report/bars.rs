//! The bars: the target that must hold, the goal, and the measured figure.
//!
//! Invariant: a figure that was not measured is null, and its bar does not hold.
//! Invariant: a figure that was measured while other processes kept the machine busy is not judged: its bar
//! neither holds nor fails.

use crate::machine::CALM_SHARE_MAX;
use std::collections::BTreeMap;

/// One line of the table, as other programs read it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Row {
    /// What is measured.
    pub bar: String,
    /// Atoll's figure; `None` if it was not measured.
    pub figure: Option<f64>,
    /// The unit of figure, target and goal.
    pub unit: &'static str,
    /// The value that must hold.
    pub target: f64,
    /// The value that Atoll aims at.
    pub goal: Option<f64>,
    /// Whether the target holds; `None` if the machine was too busy to tell.
    pub holds: Option<bool>,
    /// The values of all systems, in the unit behind the figure.
    pub peers: BTreeMap<String, f64>,
    /// Whether more is better.
    #[serde(skip)]
    pub more_is_better: bool,
    /// Why there is no figure, or what spoils it.
    #[serde(skip)]
    pub note: Option<String>,
}

impl Row {
    /// A bar where more is better, not measured yet.
    pub fn at_least(bar: impl Into<String>, unit: &'static str, target: f64, goal: Option<f64>) -> Self {
        Self {
            bar: bar.into(),
            figure: None,
            unit,
            target,
            goal,
            holds: Some(false),
            peers: BTreeMap::new(),
            more_is_better: true,
            note: None,
        }
    }

    /// A bar where less is better, not measured yet.
    pub fn at_most(bar: impl Into<String>, unit: &'static str, target: f64, goal: Option<f64>) -> Self {
        Self { more_is_better: false, ..Self::at_least(bar, unit, target, goal) }
    }

    /// The bar with its figure; a `spoiled` bar does not hold, whatever the figure is.
    pub fn judged(mut self, figure: Option<f64>, spoiled: Option<String>) -> Self {
        self.figure = figure.filter(|figure| figure.is_finite());
        let is_met = self.figure.is_some_and(|figure| self.meets(self.target, figure));
        self.holds = Some(spoiled.is_none() && is_met);
        self.note = spoiled;
        self
    }

    /// The judged bar, given the largest share of the machine that other processes used during a load behind
    /// its figure. If that is too much, the bar is not judged: noise works both ways, so neither a good nor a
    /// bad figure means anything then. It excuses nothing that spoils the bar.
    pub fn beside(mut self, others: f64) -> Self {
        if others > CALM_SHARE_MAX && self.figure.is_some() && self.note.is_none() {
            self.holds = None;
            let percent = others * 100.0;
            self.note = Some(format!("not judged: others used {percent:.0} % of the machine beside it"));
        }
        self
    }

    /// Whether the bar was judged and its target holds.
    pub fn holds(&self) -> bool {
        self.holds == Some(true)
    }

    /// Whether the goal is reached.
    pub fn reaches_goal(&self) -> bool {
        self.holds() && self.goal.zip(self.figure).is_some_and(|(goal, figure)| self.meets(goal, figure))
    }

    fn meets(&self, bound: f64, figure: f64) -> bool {
        if self.more_is_better { figure >= bound } else { figure <= bound }
    }
}

/// The median of some figures; `None` if there are none.
pub fn median(figures: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut sorted: Vec<f64> = figures.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = sorted[(sorted.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_holds_only_with_a_figure_that_meets_it_and_nothing_that_spoils_it() {
        let row = || Row::at_least("a", "x", 1.0, Some(1.2));
        assert!(row().judged(Some(1.0), None).holds());
        assert!(!row().judged(Some(0.99), None).holds());
        assert!(!row().judged(None, None).holds());
        assert!(!row().judged(Some(f64::NAN), None).holds());
        assert!(!row().judged(Some(2.0), Some("a wrong value".to_owned())).holds());
        assert!(row().judged(Some(1.2), None).reaches_goal());
        assert!(!row().judged(Some(1.1), None).reaches_goal());
        let lost = || Row::at_most("b", "writes", 0.0, None);
        assert!(lost().judged(Some(0.0), None).holds() && !lost().judged(Some(1.0), None).holds());
    }

    #[test]
    fn a_bar_is_not_judged_beside_others_and_they_excuse_nothing_that_spoils_it() {
        let row = |figure, spoiled: Option<&str>, others| {
            Row::at_least("a", "x", 1.0, None).judged(figure, spoiled.map(str::to_owned)).beside(others)
        };
        for figure in [Some(2.0), Some(0.5)] {
            let busy = row(figure, None, 0.547);
            assert_eq!((busy.holds, busy.figure, busy.reaches_goal()), (None, figure, false));
            assert_eq!(busy.note.as_deref(), Some("not judged: others used 55 % of the machine beside it"));
            assert_eq!(serde_json::to_value(busy).unwrap()["holds"], serde_json::Value::Null);
            assert_eq!(row(figure, None, 0.2).holds, Some(figure == Some(2.0)));
        }
        assert_eq!(row(Some(2.0), Some("a wrong value"), 0.547).holds, Some(false));
        assert_eq!(row(None, None, 0.547).holds, Some(false));
    }

    #[test]
    fn rows_are_read_by_their_agreed_names() {
        let text = serde_json::to_value(Row::at_least("a", "x", 1.0, None)).unwrap();
        let mut names: Vec<_> = text.as_object().unwrap().keys().cloned().collect();
        names.sort();
        assert_eq!(names, ["bar", "figure", "goal", "holds", "peers", "target", "unit"]);
        assert_eq!(text["figure"], serde_json::Value::Null);
        assert_eq!(text["holds"], false);
    }

    #[test]
    fn the_median_is_the_middle_or_between_two() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
        assert_eq!(median([]), None);
    }
}
