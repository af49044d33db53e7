//! The cost of waking an idle processor: two threads send each other a byte over the loopback, on one
//! processor and on two.
//!
//! With two processors each message finds the other one idle. An idle processor of a virtual machine is
//! given back to the host, and getting it back takes longer than everything that a node does for a request.

use super::pinned::{on_one, own_seconds};
use super::{ScaleError, middle};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Rounds between two readings of the clock.
const IN_A_ROW: usize = 200;
/// How often the two arrangements take turns.
const TURNS: usize = 5;

/// The costs, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Waking {
    /// The delay until an idle processor runs the woken thread.
    pub wake_us: f64,
    /// Additional processor time of both sides.
    pub waking_us: f64,
}

/// The mean of a round trip.
#[derive(Clone, Copy)]
struct Round {
    us: f64,
    processor_us: f64,
}

/// Measures for the given time; zero if there is only one processor.
pub fn measure(processors: usize, time: Duration) -> Result<Waking, ScaleError> {
    if processors < 2 {
        return Ok(Waking::default());
    }
    let turn = time / (2 * TURNS as u32);
    let turns = || -> io::Result<Vec<[Round; 2]>> {
        (0..TURNS).map(|_| Ok([to_and_fro(0, turn)?, to_and_fro(1, turn)?])).collect()
    };
    let turns = turns().map_err(ScaleError::io("wake a processor"))?;
    // A round wakes both threads.
    let more = |of: fn(&Round) -> f64| {
        let median = |processor: usize| {
            let of_turn = |turn: &[Round; 2]| of(&turn[processor]);
            middle(&turns, of_turn).map_or(0.0, |turn| of_turn(&turn))
        };
        ((median(1) - median(0)) / 2.0).max(0.0)
    };
    Ok(Waking { wake_us: more(|round| round.us), waking_us: more(|round| round.processor_us) })
}

/// Round trips between processor 0 and this one.
fn to_and_fro(processor: usize, time: Duration) -> io::Result<Round> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut here = TcpStream::connect(listener.local_addr()?)?;
    let mut there = listener.accept()?.0;
    for line in [&here, &there] {
        line.set_nodelay(true)?;
    }
    std::thread::scope(|scope| {
        let other = scope.spawn(move || -> io::Result<f64> {
            on_one(processor)?;
            let before = own_seconds();
            let mut byte = [0];
            while there.read(&mut byte)? == 1 {
                there.write_all(&byte)?;
            }
            Ok(own_seconds() - before)
        });
        let one = scope.spawn(move || -> io::Result<(f64, f64, f64)> {
            on_one(0)?;
            let (start, before) = (Instant::now(), own_seconds());
            let mut rounds = 0;
            while start.elapsed() < time {
                for _ in 0..IN_A_ROW {
                    here.write_all(b"x")?;
                    here.read_exact(&mut [0])?;
                }
                rounds += IN_A_ROW;
            }
            let seconds = start.elapsed().as_secs_f64();
            Ok((rounds as f64, seconds, own_seconds() - before))
        });
        let ended = || io::Error::other("a thread ended by itself");
        let (rounds, seconds, here_seconds) = one.join().map_err(|_| ended())??;
        let there_seconds = other.join().map_err(|_| ended())??;
        let each_us = |seconds: f64| seconds * 1e6 / rounds;
        Ok(Round { us: each_us(seconds), processor_us: each_us(here_seconds + there_seconds) })
    })
}
