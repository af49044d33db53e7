//! Checks after everything has healed: every slot must serve, and every acknowledged write must be there.

use super::asker::{Answer, Asker, Request};
use super::book::{Book, CELLS};
use crate::cut::{CutError, keys_of_all_slots, slot_of};
use std::time::{Duration, Instant};

/// How many slots one node is asked about at once.
const SLOTS_PER_BATCH: usize = 256;
const PAUSE: Duration = Duration::from_millis(50);

/// Writes a key to every slot until each write was acknowledged; returns a description of what delayed the
/// last ones.
pub fn write_every_slot(asker: &mut Asker, nodes: usize, most: Duration) -> Result<String, CutError> {
    let keys = keys_of_all_slots().into_iter();
    let mut left: Vec<(usize, String)> = keys.map(|key| (slot_of(key.as_bytes()), key)).collect();
    let until = Instant::now() + most;
    let mut words = String::new();
    while !left.is_empty() {
        if Instant::now() > until {
            let what = format!("until every slot is written again: {} are not, {words}", left.len());
            return Err(CutError::TooLong { what, seconds: most.as_secs() });
        }
        let mut by_node: Vec<Vec<(usize, Request)>> = vec![Vec::new(); nodes];
        for (slot, key) in left.drain(..) {
            by_node[asker.node_of(slot)].push((slot, Request::Set(key.clone(), key)));
        }
        for (node, requests) in by_node.into_iter().enumerate() {
            let mut is_silent = false;
            for batch in requests.chunks(SLOTS_PER_BATCH) {
                // A node that does not answer delays its own slots, not those of others.
                let answers = match is_silent {
                    true => vec![Answer::NotSent; batch.len()],
                    false => asker.ask_node(node, batch),
                };
                is_silent |= answers.iter().any(|one| matches!(one, Answer::NotSent | Answer::Unknown(_)));
                for ((slot, request), answer) in batch.iter().zip(answers) {
                    if answer.is_served() {
                        continue;
                    }
                    // A node that only redirects delays no slot.
                    let is_sent_on = answer.is_sent_on();
                    if let Answer::Refused(said) | Answer::Unknown(said) = answer
                        && !is_sent_on
                    {
                        words = format!("node {node}: {said}");
                    }
                    let Request::Set(key, _) = request else { continue };
                    left.push((*slot, key.clone()));
                }
            }
        }
        if !left.is_empty() {
            std::thread::sleep(PAUSE);
        }
    }
    Ok(words)
}

/// Looks up every key that was ever written.
pub fn look_up(asker: &mut Asker, book: &Book, most: Duration) {
    let mut until = Instant::now() + most;
    for group in book.all() {
        let requests: Vec<Request> = (0..CELLS).map(|cell| Request::Get(group.key(cell))).collect();
        let answers = loop {
            let answers = asker.ask(group.slot, &requests);
            if answers.iter().all(Answer::is_served) || Instant::now() > until {
                break answers;
            }
            // After a redirection the route is known already.
            if !answers.iter().all(|answer| answer.is_served() || answer.is_sent_on()) {
                std::thread::sleep(PAUSE);
            }
        };
        // The deadline counts only the time without answers, however many keys there are.
        let now = Instant::now();
        if now < until {
            until = now + most;
        }
        for (cell, answer) in answers.iter().enumerate() {
            book.judge_last(&group, cell, answer.found());
        }
    }
}
