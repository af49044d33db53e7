//! A client on a host: in turn it writes keys of its own and reads those of anybody.

use super::asker::{Answer, Asker, Request};
use super::book::{Book, CELLS, Group};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// Between two batches.
const PAUSE: Duration = Duration::from_millis(8);
/// After one that was not served: clients that ask on at once would only take the processors from the nodes.
const PAUSE_REFUSED: Duration = Duration::from_millis(25);
/// So often a group is written before the next one, in another slot.
const TURNS_MAX: u32 = 12;

/// The client.
pub struct Lane {
    number: usize,
    asker: Asker,
    book: Arc<Book>,
    random: fastrand::Rng,
    own: Arc<Group>,
    /// Keys whose last write has a known outcome.
    is_open: [bool; CELLS],
    turns: u32,
}

impl Lane {
    /// That of this number in the book.
    pub fn new(number: usize, asker: Asker, book: Arc<Book>, seed: u64) -> Self {
        let own = book.open(number);
        let random = fastrand::Rng::with_seed(seed);
        Self { number, asker, book, random, own, is_open: [true; CELLS], turns: 0 }
    }

    /// Asks until it is told to stop.
    pub fn run(mut self, stop: &AtomicBool) {
        while !stop.load(SeqCst) {
            let is_served = if self.random.bool() { self.write() } else { self.read() };
            std::thread::sleep(if is_served { PAUSE } else { PAUSE_REFUSED });
        }
    }

    fn write(&mut self) -> bool {
        if self.turns >= TURNS_MAX || !self.is_open.contains(&true) {
            self.own = self.book.open(self.number);
            (self.is_open, self.turns) = ([true; CELLS], 0);
        }
        self.turns += 1;
        let cells: Vec<usize> = (0..CELLS).filter(|cell| self.is_open[*cell]).collect();
        let group = Arc::clone(&self.own);
        let begun: Vec<u64> = cells.iter().map(|&cell| group.begin(cell)).collect();
        let set =
            |(&cell, &version): (&usize, &u64)| Request::Set(group.key(cell), group.value(cell, version));
        let requests: Vec<Request> = cells.iter().zip(&begun).map(set).collect();
        let answers = self.asker.ask(group.slot, &requests);
        for ((&cell, &version), answer) in cells.iter().zip(&begun).zip(&answers) {
            match answer {
                Answer::Done => self.book.acknowledge(&group, cell, version),
                Answer::Refused(_) => self.book.refuse(&group, cell, version),
                // Never on its way: nothing to find, and nothing of the ring's to count.
                Answer::NotSent => {}
                _ => {
                    self.is_open[cell] = false;
                    self.book.count(|counts| counts.unknown += 1);
                }
            }
        }
        answers.iter().all(Answer::is_served)
    }

    fn read(&mut self) -> bool {
        let Some(group) = self.book.any(&mut self.random) else { return true };
        let least: [u64; CELLS] = std::array::from_fn(|cell| group.least(cell));
        let requests: Vec<Request> = (0..CELLS).map(|cell| Request::Get(group.key(cell))).collect();
        let answers = self.asker.ask(group.slot, &requests);
        for (cell, answer) in answers.iter().enumerate() {
            match answer.found() {
                // Counted and told by the book.
                Some(found) => {
                    let _ = self.book.judge(&group, cell, least[cell], found);
                }
                None => self.book.count(|counts| counts.unread += 1),
            }
        }
        answers.iter().all(Answer::is_served)
    }
}
