//! What is asked when everything has healed: whether every slot serves, and whether every acknowledged write
//! is there.

use super::asker::{Answer, Asker, Request};
use super::book::{Book, CELLS};
use crate::cut::{CutError, keys_of_all_slots, slot_of};
use std::time::{Duration, Instant};

/// How many slots one node is asked about at once.
const BATCH: usize = 256;
const PAUSE: Duration = Duration::from_millis(50);

/// Writes a key of every slot, until each was acknowledged; in words, what held the last ones up.
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
            for batch in requests.chunks(BATCH) {
                // One that does not answer costs its own slots time, not those of others.
                let answers = match is_silent {
                    true => vec![Answer::NotSent; batch.len()],
                    false => asker.ask_node(node, batch),
                };
                is_silent |= answers.iter().any(|one| matches!(one, Answer::NotSent | Answer::Unknown(_)));
                for ((slot, request), answer) in batch.iter().zip(answers) {
                    if answer.is_served() {
                        continue;
                    }
                    // Who only sends on holds nobody up.
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

/// Looks every key up that was ever written.
pub fn look_up(asker: &mut Asker, book: &Book, most: Duration) {
    let mut until = Instant::now() + most;
    for group in book.all() {
        let requests: Vec<Request> = (0..CELLS).map(|cell| Request::Get(group.key(cell))).collect();
        let answers = loop {
            let answers = asker.ask(group.slot, &requests);
            if answers.iter().all(Answer::is_served) || Instant::now() > until {
                break answers;
            }
            // Who was sent on knows better already.
            if !answers.iter().all(|answer| answer.is_served() || answer.is_sent_on()) {
                std::thread::sleep(PAUSE);
            }
        };
        // However many keys there are: what runs out is the time in which nobody answers.
        let now = Instant::now();
        if now < until {
            until = now + most;
        }
        for (cell, answer) in answers.iter().enumerate() {
            book.judge_last(&group, cell, answer.found());
        }
    }
}
