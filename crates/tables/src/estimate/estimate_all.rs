//! Several questions at once: those that share a sample, or a reading, are answered from rows that are read
//! once.
//!
//! Invariant: all answers are of one version and one sample; an answer without a tolerance equals the one
//! that its question gets alone.

use super::everything::{Folding, is_everything};
use super::narrowing::Narrowing;
use super::planning::{Plan, units_of};
use super::{EstimateRequest, Estimated};
use crate::table::restart_if_gone;
use crate::{Query, Readable, Table, TableError, Weight};
use arrow_array::RecordBatch;

/// Questions that need the same rows.
struct Group<'r> {
    /// The query to read, with the columns of all questions.
    query: Query,
    /// For each question its place, the request, and its plan.
    members: Vec<(usize, &'r EstimateRequest, Plan)>,
}

impl Table {
    /// Estimates several numbers of the rows of a query, as [`Readable::estimate_all`].
    ///
    /// # Errors
    /// As [`Readable::estimate_all`].
    pub async fn estimate_all(
        &self,
        query: &Query,
        requests: &[EstimateRequest],
    ) -> Result<Vec<Estimated>, TableError> {
        Readable::One(self.clone()).estimate_all(query, requests).await
    }
}

impl Readable {
    /// Estimates several numbers of the rows of a query, each as [`Readable::estimate`] does, in the order of
    /// the requests. Requests without a tolerance share one sample, which is read once; those with a
    /// tolerance share one reading.
    ///
    /// Each interval holds by itself; use [`Confidence::simultaneous`](super::Confidence::simultaneous) for
    /// all at once. The work reported with an answer is that of all answers of its group.
    ///
    /// # Errors
    /// As [`Readable::estimate`], of the first request that has one.
    pub async fn estimate_all(
        &self,
        query: &Query,
        requests: &[EstimateRequest],
    ) -> Result<Vec<Estimated>, TableError> {
        restart_if_gone(query, || async {
            // The groups query this version one after the other, however long one of them takes.
            let (as_of, _held) = match query.as_of {
                Some(version) => (version, None),
                None => self.hold().await?,
            };
            self.estimate_all_of(&query.clone().as_of(as_of), requests).await
        })
        .await
    }

    async fn estimate_all_of(
        &self,
        query: &Query,
        requests: &[EstimateRequest],
    ) -> Result<Vec<Estimated>, TableError> {
        let (mut answers, mut groups) = (Vec::new(), Vec::new());
        for (place, request) in requests.iter().enumerate() {
            let plan = self.plan(query, request).await?;
            match plan.known(request) {
                Some(known) => answers.push((place, known)),
                None => join(&mut groups, place, request, plan),
            }
        }
        for group in groups {
            answers.extend(self.answer_group(group).await?);
        }
        answers.sort_unstable_by_key(|(place, _)| *place);
        Ok(answers.into_iter().map(|(_, answer)| answer).collect())
    }

    async fn answer_group(&self, group: Group<'_>) -> Result<Vec<(usize, Estimated)>, TableError> {
        let Group { query, members } = group;
        if is_everything(&query) && members.iter().all(|(_, request, _)| is_plain(request)) {
            let foldings = members.into_iter().map(|(place, _, plan)| (place, Folding::new(plan)));
            let mut foldings: Vec<_> = foldings.collect();
            let take = |rows: &RecordBatch, weights: Option<&[Weight]>| {
                foldings.iter_mut().try_for_each(|(_, one)| one.take(rows, weights))
            };
            let read = self.fold(&query, take).await?;
            return foldings.into_iter().map(|(place, one)| Ok((place, one.estimated(&read)?))).collect();
        }
        if members.iter().all(|(_, request, _)| request.within.is_none()) {
            let is_open_total = members.iter().any(|(_, _, plan)| plan.is_open_total);
            let sample = self.sample(&query, is_open_total).await?;
            let units = units_of(&query, &sample.answer.weights)?;
            let mut answers = Vec::with_capacity(members.len());
            for (place, request, plan) in members {
                answers.push((place, self.estimated_of(&plan, request, &sample, &units).await?));
            }
            return Ok(answers);
        }
        let (mut places, mut narrowings) = (Vec::new(), Vec::new());
        for (place, request, plan) in members {
            if let Some(within) = request.within {
                places.push(place);
                narrowings.push(Narrowing::new(plan, request, within)?);
            }
        }
        self.narrow(&query, &mut narrowings).await?;
        let mut answers = Vec::with_capacity(places.len());
        for (place, narrowing) in places.into_iter().zip(narrowings) {
            answers.push((place, narrowing.estimated(self).await?));
        }
        Ok(answers)
    }
}

/// Whether a request has neither a tolerance nor bounds of values.
fn is_plain(request: &EstimateRequest) -> bool {
    request.within.is_none() && request.bounds.is_none()
}

/// Adds a question to the group that reads the same rows.
fn join<'r>(groups: &mut Vec<Group<'r>>, place: usize, request: &'r EstimateRequest, plan: Plan) {
    let own = match request.within {
        Some(within) => plan.query_within(within),
        None => plan.query.clone(),
    };
    let is_same = |group: &&mut Group<'_>| {
        let is_within = |request: &EstimateRequest| request.within.is_some();
        let other = Query { columns: own.columns.clone(), ..group.query.clone() };
        other == own && group.members.iter().all(|(_, other, _)| is_within(other) == is_within(request))
    };
    match groups.iter_mut().find(is_same) {
        Some(group) => {
            let columns = group.query.columns.get_or_insert_default();
            for column in own.columns.into_iter().flatten() {
                if !columns.contains(&column) {
                    columns.push(column);
                }
            }
            group.members.push((place, request, plan));
        }
        None => groups.push(Group { query: own, members: vec![(place, request, plan)] }),
    }
}
