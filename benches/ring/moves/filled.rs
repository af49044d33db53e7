//! Contents of slots before any slot moves: a key in each, and in the probed ones enough data that copying
//! takes time.
//!
//! Invariant: these keys are never written again, so after all moves each holds its original value. Only
//! here would a loss be detected in a slot that is copied by its cells and not by its log.

use super::writer::Tally;
use crate::cut::{SLOTS, keys_of_all_slots};
use crate::local::LocalError;
use crate::schedules::{Answer, Asker, Request, write_every_slot};
use std::time::{Duration, Instant};

/// Slots that are probed, at even distances. At their pace that is 3,200 requests a second, plus a thousand
/// of the writers: if the bench used all processors, it would measure waits for a processor.
const PROBED: usize = 16;
/// Additional values in a probed slot, and the length of each: the data that has to be copied.
const VALUES: usize = 64;
const VALUE_BYTES: usize = 1_024;
/// How many keys are requested from one node at once.
const KEYS_PER_BATCH: usize = 256;
const WRITE_TIME_MAX: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(50);

/// A written key.
#[derive(Clone)]
struct Cell {
    slot: usize,
    key: String,
    /// The length of its value, which is the key repeated, the last time perhaps truncated.
    bytes: usize,
}

impl Cell {
    fn value(&self) -> String {
        self.key.chars().cycle().take(self.bytes).collect()
    }
}

/// All written keys.
pub struct Filled {
    tags: Vec<String>,
    cells: Vec<Cell>,
}

impl Filled {
    /// Writes a key to each slot, and more to those that are probed.
    pub fn write(asker: &mut Asker, nodes: usize) -> Result<Self, LocalError> {
        write_every_slot(asker, nodes, WRITE_TIME_MAX)?;
        let tags = keys_of_all_slots();
        // Each key is its own value.
        let own = |(slot, key): (usize, &String)| Cell { slot, key: key.clone(), bytes: key.len() };
        let mut cells: Vec<Cell> = tags.iter().enumerate().map(own).collect();
        let until = Instant::now() + WRITE_TIME_MAX;
        for slot in probed_slots() {
            let cell = |number| Cell { slot, key: format!("{{{}}}{number}", tags[slot]), bytes: VALUE_BYTES };
            let values: Vec<Cell> = (0..VALUES).map(cell).collect();
            let requests: Vec<Request> =
                values.iter().map(|cell| Request::Set(cell.key.clone(), cell.value())).collect();
            while !asker.ask(slot, &requests).iter().all(Answer::is_served) {
                if Instant::now() > until {
                    let what = "until slots have values".to_owned();
                    return Err(LocalError::TooLong { what, seconds: WRITE_TIME_MAX.as_secs() });
                }
            }
            cells.extend(values);
        }
        Ok(Self { tags, cells })
    }

    /// The probed slots, each with an unwritten key of it.
    pub fn probes(&self) -> Vec<(usize, String)> {
        probed_slots().map(|slot| (slot, format!("{{{}}}probe", self.tags[slot]))).collect()
    }

    /// Reads everything back; keys without an answer within this time have failed.
    pub fn look_up(&self, asker: &mut Asker, nodes: usize, most: Duration) -> Tally {
        let mut tally = Tally::default();
        let mut left: Vec<Cell> = self.cells.clone();
        let until = Instant::now() + most;
        loop {
            left = look_up_once(asker, nodes, left, &mut tally);
            if left.is_empty() || Instant::now() > until {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        for cell in left {
            tally.fail(&format!("UNANSWERED at the end: {} of slot {}", cell.key, cell.slot));
        }
        tally
    }
}

fn probed_slots() -> impl Iterator<Item = usize> {
    (0..PROBED).map(|number| number * SLOTS / PROBED + SLOTS / PROBED / 2)
}

/// Asks for each key once, in batches; returns those without an answer.
fn look_up_once(asker: &mut Asker, nodes: usize, cells: Vec<Cell>, tally: &mut Tally) -> Vec<Cell> {
    let mut by_node: Vec<Vec<Cell>> = vec![Vec::new(); nodes];
    for cell in cells {
        by_node[asker.node_of(cell.slot)].push(cell);
    }
    let mut left = Vec::new();
    for (node, cells) in by_node.iter().enumerate() {
        for batch in cells.chunks(KEYS_PER_BATCH) {
            let requests: Vec<(usize, Request)> =
                batch.iter().map(|cell| (cell.slot, Request::Get(cell.key.clone()))).collect();
            for (cell, answer) in batch.iter().zip(asker.ask_node(node, &requests)) {
                match answer.found() {
                    Some(found) => judge(cell, found, tally),
                    None => left.push(cell.clone()),
                }
            }
        }
    }
    left
}

fn judge(cell: &Cell, found: Option<&[u8]>, tally: &mut Tally) {
    tally.done += 1;
    tally.looked_up += 1;
    if found == Some(cell.value().as_bytes()) {
        return;
    }
    tally.lost += 1;
    let is = found.map_or("not there".to_owned(), |found| format!("{} bytes of something else", found.len()));
    tally.tell(format!("{} of slot {} was there before all moves and is {is}", cell.key, cell.slot));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::stub;
    use std::collections::HashMap;
    use std::net::SocketAddr;
    use std::sync::{Arc, Mutex};

    type Cells = Arc<Mutex<HashMap<Vec<u8>, Vec<u8>>>>;

    /// A node that serves every slot from these cells.
    fn node(cells: &Cells) -> SocketAddr {
        let cells = Arc::clone(cells);
        stub::serve(move |words| match words[0].as_slice() {
            b"GET" => match cells.lock().unwrap().get(&words[1]) {
                Some(value) => {
                    [format!("${}\r\n", value.len()).as_bytes(), &value[..], &b"\r\n"[..]].concat()
                }
                None => b"$-1\r\n".to_vec(),
            },
            b"SET" => {
                cells.lock().unwrap().insert(words[1].clone(), words[2].clone());
                b"+OK\r\n".to_vec()
            }
            _ => b"+OK\r\n".to_vec(),
        })
    }

    #[test]
    fn what_was_there_to_be_copied_is_read_back_and_what_is_gone_or_another_value_is_lost() {
        let cells = Cells::default();
        let patience = Duration::from_secs(10);
        let mut asker = Asker::new(&[node(&cells)], "token", patience, 1);
        let filled = Filled::write(&mut asker, 1).unwrap();
        assert_eq!(cells.lock().unwrap().len(), SLOTS + PROBED * VALUES);
        let probes = filled.probes();
        assert!(
            probes.len() == PROBED
                && probes.iter().all(|(slot, key)| {
                    key.starts_with(&format!("{{{}}}", filled.tags[*slot]))
                        && !cells.lock().unwrap().contains_key(key.as_bytes())
                })
        );
        let mut look_up = || filled.look_up(&mut asker, 1, patience);
        let whole = look_up();
        assert_eq!((whole.looked_up, whole.lost, whole.failures()), ((SLOTS + PROBED * VALUES) as u64, 0, 0));
        // A value of a probed slot is missing, and a key of another slot has its neighbour's value.
        let value = format!("{}5", probes[0].1.strip_suffix("probe").unwrap());
        assert!(cells.lock().unwrap().remove(value.as_bytes()).is_some());
        let neighbour = filled.tags[1].clone().into_bytes();
        cells.lock().unwrap().insert(filled.tags[0].clone().into_bytes(), neighbour);
        let lossy = look_up();
        assert_eq!(
            (lossy.looked_up, lossy.lost, lossy.failures()),
            (whole.looked_up, 2, 0),
            "{:?}",
            lossy.told
        );
    }

    #[test]
    fn a_key_that_nobody_answers_for_is_a_failure() {
        let refuses = stub::serve(|words| match words[0].as_slice() {
            b"AUTH" => b"+OK\r\n".to_vec(),
            _ => b"-CLUSTERDOWN nobody serves it\r\n".to_vec(),
        });
        let mut asker = Asker::new(&[refuses], "token", Duration::from_secs(10), 1);
        let cell = Cell { slot: 3, key: "a".to_owned(), bytes: 1 };
        let tally = Filled { tags: Vec::new(), cells: vec![cell] }.look_up(&mut asker, 1, Duration::ZERO);
        assert_eq!((tally.looked_up, tally.failures()), (0, 1));
    }
}
