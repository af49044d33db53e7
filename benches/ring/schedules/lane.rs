//! A client on a host: it alternates between writing its own keys and reading those of any client.

use super::asker::{Answer, Asker, Request};
use super::book::{Book, CELLS, Group};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The pause between two batches.
const PAUSE: Duration = Duration::from_millis(8);
/// The pause after a batch that was not served: without it clients would only take processor time from the
/// nodes.
const PAUSE_REFUSED: Duration = Duration::from_millis(25);
/// How often a group is written before the next one, in another slot.
const TURNS_MAX: u32 = 12;

/// The client.
pub struct Lane {
    number: usize,
    asker: Asker,
    book: Arc<Book>,
    random: fastrand::Rng,
    own: Arc<Group>,
    /// The keys whose last write has a known outcome.
    is_open: [bool; CELLS],
    turns: u32,
}

impl Lane {
    /// The client that has this number in the book.
    pub fn new(number: usize, asker: Asker, book: Arc<Book>, seed: u64) -> Self {
        let own = book.open(number);
        let random = fastrand::Rng::with_seed(seed);
        Self { number, asker, book, random, own, is_open: [true; CELLS], turns: 0 }
    }

    /// Runs until it is told to stop.
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
                // It was never sent, so there is nothing to find, and it does not count for the ring.
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
                // The book has counted and described it.
                Some(found) => {
                    let _ = self.book.judge(&group, cell, least[cell], found);
                }
                None => self.book.count(|counts| counts.unread += 1),
            }
        }
        answers.iter().all(Answer::is_served)
    }
}
