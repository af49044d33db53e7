//! Queries while others write: an answer must be true of one version that was current at some moment between
//! question and answer.

use crate::asked::{Asked, PrintOnFailure, Wish};
use crate::conditions::Condition;
use crate::world::{World, some_rows};
use atoll_tables::protocol::Version;
use atoll_tables::{Query, Refined, Table, TableError};
use fastrand::Rng;

/// Asks one question, in one of the possible ways, and judges the answer.
pub async fn ask(world: &World, table: &Table, random: &mut Rng) {
    let as_of = match random.u8(..8) {
        2 => Some(Version(random.u64(..=world.head().0))),
        3 => random.choice(world.kept()).map(|(_, version)| version),
        _ => None,
    };
    // A column that exists exists in every later version.
    let schema = world.schema_at(as_of.unwrap_or_else(|| world.head()));
    let mut wish = Wish::any(random, schema, &some_rows(world));
    if schema == &world.widened && random.u8(..3) == 0 {
        wish = wish.also(schema, Condition::of_charge(random));
    }
    wish.query.with_arriving = as_of.is_none() && random.u8(..4) == 0;
    wish.query.as_of = as_of;
    let moment = Moment { world, before: world.head() };
    match random.u8(..8) {
        0 => count(moment, table, wish).await,
        1 | 2 => refine(moment, table, wish, random).await,
        3 => batches(moment, table, wish).await,
        _ => query(moment, table, wish).await,
    }
    world.count_query();
}

/// The time since a question was asked.
struct Moment<'w> {
    world: &'w World,
    before: Version,
}

impl Moment<'_> {
    /// The truth of the version that answered; the version itself is judged too.
    fn truth(&self, wish: Wish, version: Version) -> Asked {
        match wish.query.as_of {
            Some(asked) => assert_eq!(version, asked, "another version than the one asked for"),
            None => {
                let now = self.world.head();
                assert!(
                    (self.before..=now).contains(&version),
                    "{version:?} answered, and {:?} to {now:?} were current",
                    self.before
                );
            }
        }
        let with_arriving = wish.query.with_arriving;
        wish.of(self.world.truth(version).rows(with_arriving))
    }
}

/// The answer; `None` if a vacuum removed the version that was asked for.
fn answered<T>(moment: &Moment<'_>, version: Option<Version>, answer: Result<T, TableError>) -> Option<T> {
    match answer {
        Ok(answer) => Some(answer),
        Err(TableError::VersionGone { .. }) => {
            let version = version.expect("a version that nobody asked for is gone");
            assert!(moment.world.is_gone(version), "{version:?} is said to be gone");
            None
        }
        Err(error) => panic!("{error} ({error:?})"),
    }
}

async fn query(moment: Moment<'_>, table: &Table, wish: Wish) {
    let tell = PrintOnFailure::of(&wish.query);
    let answer = table.query(&wish.query).await;
    if let Some(answer) = answered(&moment, wish.query.as_of, answer) {
        let schema = moment.world.schema_at(answer.version);
        moment.truth(wish, answer.version).judge(schema, &answer);
    }
    drop(tell);
}

async fn count(moment: Moment<'_>, table: &Table, wish: Wish) {
    let tell = PrintOnFailure::of(&wish.query);
    let counted = table.count(&wish.query).await;
    if let Some(counted) = answered(&moment, wish.query.as_of, counted) {
        assert_eq!(counted.rows, moment.truth(wish, counted.version).count() as u64);
    }
    drop(tell);
}

async fn refine(moment: Moment<'_>, table: &Table, wish: Wish, random: &mut Rng) {
    let tell = PrintOnFailure::of(&wish.query);
    let mut refinement = table.refine(&wish.query);
    let mut batches: Vec<Refined> = Vec::new();
    loop {
        if random.bool() {
            // Few more often than many: a batch then ends amid much that is known.
            let most = 1 << random.u32(..9);
            refinement.want(random.usize(..=most));
        }
        let refined = refinement.next().await;
        let version = refinement.version().or(wish.query.as_of);
        let Some(refined) = answered(&moment, version, refined) else { return };
        let Some(refined) = refined else { break };
        batches.push(refined);
    }
    let version = batches[0].version;
    let asked = moment.truth(wish, version);
    asked.judge_refinement(moment.world.schema_at(version), &batches);
    drop(tell);
}

/// Batches do not report their version, so they are asked of a given one.
async fn batches(moment: Moment<'_>, table: &Table, wish: Wish) {
    let version = wish.query.as_of.unwrap_or(moment.before);
    let columns = Some(vec!["step".to_owned(), "pid".to_owned()]);
    let query = Query { columns, as_of: Some(version), with_arriving: false, ..wish.query.clone() };
    let tell = PrintOnFailure::of(&query);
    let wish = Wish { query: query.clone(), ..wish };
    let mut reading = table.batches(&query);
    let mut batches = Vec::new();
    loop {
        let Some(batch) = answered(&moment, Some(version), reading.next().await) else { return };
        let Some(batch) = batch else { break };
        batches.push(batch);
    }
    moment.truth(wish, version).judge_batches(&batches);
    drop(tell);
}
