//! The outside programs that a room's tests need: the room `cassandra` has one real node while it is visited.
//!
//! Invariant: on a machine without Java or Maven the tests are reported as skipped, which CI does not excuse;
//! a node that does not start although both are present is a failure.

use super::programs::Program;
use crate::cassandra::{FILE_OF_TESTS, Lent, ROOM};
use crate::failure::Failure;
use crate::rooms::Room;
use crate::skip::Skip;
use crate::tests_output::Tally;

/// A node lent to a room, or nothing.
pub struct Guest(Option<Lent>);

impl Guest {
    /// The environment that the tests get.
    pub fn environment(&self) -> Result<Vec<(&'static str, String)>, Failure> {
        self.0.as_ref().map_or_else(|| Ok(Vec::new()), Lent::environment)
    }
}

/// The guest that the room of this name needs; records in `tally` what is not available.
pub fn of(room: &str, tally: &mut Tally) -> Result<Guest, Failure> {
    if room != ROOM {
        return Ok(Guest(None));
    }
    if let Some(reason) = Lent::hindrance() {
        let skip = Skip { what: "tests on a real Cassandra".to_owned(), need: ROOM.to_owned(), reason };
        println!("  {skip}");
        tally.skipped.push(skip);
        return Ok(Guest(None));
    }
    match Lent::start() {
        Ok(lent) => Ok(Guest(Some(lent))),
        Err(failure) => {
            let hint = failure.hint().map_or(String::new(), |hint| format!("; {hint}"));
            println!("  FAIL a real Cassandra: {failure}{hint}");
            tally.failed.push("a real Cassandra starts".to_owned());
            Ok(Guest(None))
        }
    }
}

/// Whether a test program runs in a room: tests that want a guest run in the guest's room, whatever their
/// crate.
pub fn is_in_room(program: &Program, room: &Room) -> bool {
    if wants_cassandra(&program.name) {
        return room.name == ROOM;
    }
    room.has(&program.package, program.name.split_once('/').map(|(_, file)| file))
}

/// Decides by the name of the test program: `package/file`.
fn wants_cassandra(program: &str) -> bool {
    program.split_once('/').is_some_and(|(_, file)| file.starts_with(FILE_OF_TESTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_that_want_the_guest_are_told_by_their_file() {
        assert!(wants_cassandra("atoll-open/cassandra"));
        assert!(wants_cassandra("atoll-cassandra/cassandra_suite"));
        assert!(!wants_cassandra("atoll-cassandra/layout"), "it runs with its crate");
        assert!(!wants_cassandra("atoll-cassandra"));
    }
}
