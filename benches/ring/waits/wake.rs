//! Latency of waits: one connection waits, another one writes; measures the time until the first has read
//! what it waited for.
//!
//! Gets on the writing connection are timed in the same slices, so that both meet the same state of the
//! machine. Each side is a thread of its own that blocks, and both read the same clock.
//!
//! Invariant: a write is sent only when the node is known to watch.

use super::{FIELD, WATCH_MS, WaitError, pushed, value};
use crate::client::{Incoming, Pieces, Speaker, unexpected};
use crate::phases::Scale;
use crate::servers::Server;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Slices of a round; every kind of operation has a turn in each.
const SLICES: usize = 10;
/// How many operations of each kind a slice has when the bench itself is tried.
const EACH_OF_A_TRIAL: usize = 10;
const EACH: usize = 200;
const READ: u32 = 0;
const WATCHED: u32 = 1;
/// How long the other side may take: longer than a connection may be silent.
const PATIENCE: Duration = Duration::from_secs(20);

/// Latencies of one kind of operation, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Times {
    /// The median.
    pub p50_us: f64,
    /// 99 of 100 were as fast.
    pub p99_us: f64,
}

/// The results of one round.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Round {
    /// How many operations of each kind.
    pub count: usize,
    /// From sending a get until its reply is read.
    pub get: Times,
    /// From sending a write until its own reply is read, while a client watches.
    pub write: Times,
    /// From sending the write until the push is read.
    pub push: Times,
    /// From the moment when the writer has read its reply; negative if the push came first.
    pub push_after_reply: Times,
    /// From sending the write until the answer of `AT.WAIT` is read.
    pub answer: Times,
    /// From the moment when the writer has read its reply.
    pub answer_after_reply: Times,
}

/// How a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitKind {
    Push,
    Answer,
}

/// A message of the waiting side.
enum WaiterMessage {
    /// Its command is sent; a watch is known to be active, a wait may still be on its way.
    Asked,
    /// What it received, and when.
    Told(Incoming, Instant),
}

/// All latencies of one way of waiting.
#[derive(Default)]
struct WakeTimes {
    write: Vec<f64>,
    wake: Vec<f64>,
    after_reply: Vec<f64>,
}

/// The writing side, and its channels to the other.
struct Writer {
    speaker: Speaker,
    tasks: Sender<(WaitKind, u32)>,
    said: Receiver<Result<WaiterMessage, WaitError>>,
    turn: u32,
}

/// One round.
pub fn round(server: &Server, number: usize, scale: Scale) -> Result<Round, WaitError> {
    let each = if scale.measured_ms < 1_000 { EACH_OF_A_TRIAL } else { EACH };
    let (tasks, of_tasks) = channel();
    let (says, said) = channel();
    let mut waiter = Speaker::connect(server.address)?;
    let hello: [&[u8]; 2] = [b"HELLO", b"3"];
    let heard = waiter.say(&hello)?;
    if !matches!(heard, Incoming::List(_)) {
        return Err(unexpected(&hello, &heard).into());
    }
    std::thread::spawn(move || wait_by_turns(&mut waiter, &of_tasks, &says));
    let turn = (number * 1_000_000) as u32;
    let mut writer = Writer { speaker: Speaker::connect(server.address)?, tasks, said, turn };
    let key = Pieces::key(READ);
    writer.done(&[b"SET", &key, &value(READ, 0)])?;
    let (mut gets, mut pushes, mut answers) = (Vec::new(), WakeTimes::default(), WakeTimes::default());
    for _ in 0..SLICES {
        for _ in 0..each {
            gets.push(writer.get()?);
        }
        for _ in 0..each {
            writer.wake(WaitKind::Push, &mut pushes)?;
        }
        for _ in 0..each {
            writer.wake(WaitKind::Answer, &mut answers)?;
        }
    }
    Ok(Round {
        count: gets.len(),
        get: times(gets),
        write: times(pushes.write),
        push: times(pushes.wake),
        push_after_reply: times(pushes.after_reply),
        answer: times(answers.wake),
        answer_after_reply: times(answers.after_reply),
    })
}

impl Writer {
    fn done(&mut self, words: &[&[u8]]) -> Result<(), WaitError> {
        match self.speaker.say(words)? {
            Incoming::Status(_) | Incoming::Number(0 | 1) => Ok(()),
            heard => Err(unexpected(words, &heard).into()),
        }
    }

    /// Times a get.
    fn get(&mut self) -> Result<f64, WaitError> {
        let key = Pieces::key(READ);
        let words: [&[u8]; 2] = [b"GET", &key];
        let sent_at = Instant::now();
        let heard = self.speaker.say(&words)?;
        let us = sent_at.elapsed().as_nanos() as f64 / 1000.0;
        match heard {
            Incoming::Value(text) if text == value(READ, 0) => Ok(us),
            heard => Err(WaitError::Wrong(format!("a get found {}", heard.told()))),
        }
    }

    /// Wakes the other side once.
    fn wake(&mut self, way: WaitKind, wakes: &mut WakeTimes) -> Result<(), WaitError> {
        self.turn += 1;
        self.tasks.send((way, self.turn)).map_err(|_| WaitError::Ended)?;
        match self.next()? {
            WaiterMessage::Asked => {}
            WaiterMessage::Told(heard, _) => {
                return Err(WaitError::Wrong(format!("told before the write: {}", heard.told())));
            }
        }
        self.until_it_is_watched()?;
        let (key, new) = (Pieces::key(WATCHED), value(WATCHED, self.turn));
        let sent_at = Instant::now();
        self.done(&[b"HSET", &key, FIELD, &new])?;
        let replied_at = Instant::now();
        let WaiterMessage::Told(heard, told_at) = self.next()? else { return Err(WaitError::Ended) };
        let is_right = match (way, &heard) {
            (WaitKind::Push, heard) => pushed(heard) == Some((self.turn, &new[..])),
            (WaitKind::Answer, Incoming::List(parts)) => {
                parts[..] == [Incoming::Number(1), Incoming::Value(new.to_vec())]
            }
            (WaitKind::Answer, _) => false,
        };
        if !is_right {
            return Err(WaitError::Wrong(format!("turn {} was told {}", self.turn, heard.told())));
        }
        wakes.write.push(signed_us(sent_at, replied_at));
        wakes.wake.push(signed_us(sent_at, told_at));
        wakes.after_reply.push(signed_us(replied_at, told_at));
        Ok(())
    }

    fn next(&self) -> Result<WaiterMessage, WaitError> {
        self.said.recv_timeout(PATIENCE).map_err(|_| WaitError::Ended)?
    }

    /// For both ways of waiting, so that the same happens before a write.
    fn until_it_is_watched(&mut self) -> Result<(), WaitError> {
        let start = Instant::now();
        while !self.speaker.text(&[b"INFO", b"clients"])?.contains("blocked_clients:1\r") {
            if start.elapsed() > PATIENCE {
                return Err(WaitError::Wrong("a watch was answered and is not there".to_owned()));
            }
        }
        Ok(())
    }
}

/// The waiting side, which runs until no more tasks come.
fn wait_by_turns(
    waiter: &mut Speaker,
    tasks: &Receiver<(WaitKind, u32)>,
    says: &Sender<Result<WaiterMessage, WaitError>>,
) {
    while let Ok((way, turn)) = tasks.recv() {
        let asked = ask(waiter, way, turn).map(|()| WaiterMessage::Asked);
        let is_asked = asked.is_ok();
        if says.send(asked).is_err() || !is_asked {
            return;
        }
        let told = waiter.hear().map(|heard| WaiterMessage::Told(heard, Instant::now()));
        if says.send(told.map_err(Into::into)).is_err() {
            return;
        }
    }
}

fn ask(waiter: &mut Speaker, way: WaitKind, turn: u32) -> Result<(), WaitError> {
    let (key, id, new) = (Pieces::key(WATCHED), turn.to_string(), value(WATCHED, turn));
    match way {
        WaitKind::Push => {
            let words: [&[u8]; 7] = [b"AT.WATCH", id.as_bytes(), WATCH_MS, &key, FIELD, b"EQ", &new];
            match waiter.say(&words)? {
                Incoming::Status(_) => Ok(()),
                heard => Err(unexpected(&words, &heard).into()),
            }
        }
        WaitKind::Answer => {
            waiter.add(&[b"AT.WAIT", WATCH_MS, &key, FIELD, b"EQ", &new]);
            Ok(waiter.send()?)
        }
    }
}

fn signed_us(from: Instant, to: Instant) -> f64 {
    let us = |duration: Duration| duration.as_nanos() as f64 / 1000.0;
    if to >= from { us(to - from) } else { -us(from - to) }
}

fn times(mut all: Vec<f64>) -> Times {
    all.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let place = (all.len() as f64 * share).ceil() as usize;
        all.get(place.max(1) - 1).copied().unwrap_or(f64::NAN)
    };
    Times { p50_us: at(0.5), p99_us: at(0.99) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_that_of_sorted_times_and_a_push_ahead_of_the_reply_is_below_zero() {
        let all = (1..=200).rev().map(f64::from).collect();
        assert_eq!(times(all), Times { p50_us: 100.0, p99_us: 198.0 });
        let (before, after) = (Instant::now(), Instant::now() + Duration::from_micros(3));
        assert!(signed_us(after, before) < -2.9 && signed_us(before, after) > 2.9);
    }
}
