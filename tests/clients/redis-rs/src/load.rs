//! Writers, each with a connection and keys of its own, whose versions only rise, until standard input ends.

use crate::again::Repeated;
use crate::{Broken, Ring, tell};
use redis::cluster::{ClusterClient, ClusterConnection};
use redis::{Commands, RedisResult};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

const WRITERS: usize = 4;
const KEYS: usize = 64;
const UNDER_WAY: usize = 50;
const RETRY: Duration = Duration::from_millis(20);
const RETRY_MAX: Duration = Duration::from_secs(30);

struct Writer<'a> {
    number: usize,
    client: &'a ClusterClient,
    connection: ClusterConnection,
    acknowledged: [usize; KEYS],
    writes: usize,
    stale: usize,
    gap: Duration,
    met: BTreeMap<String, usize>,
}

impl<'a> Writer<'a> {
    fn new(number: usize, client: &'a ClusterClient) -> RedisResult<Self> {
        let connection = client.get_connection()?;
        let (gap, met) = (Duration::ZERO, BTreeMap::new());
        Ok(Self { number, client, connection, acknowledged: [0; KEYS], writes: 0, stale: 0, gap, met })
    }

    fn again<T>(&mut self, call: impl Fn(&mut ClusterConnection) -> RedisResult<T>) -> RedisResult<T> {
        let until = Instant::now() + RETRY_MAX;
        loop {
            match call(&mut self.connection) {
                Ok(answer) => return Ok(answer),
                Err(error) => {
                    *self.met.entry(error.to_string().chars().take(80).collect()).or_default() += 1;
                    if Instant::now() > until {
                        return Err(error);
                    }
                    thread::sleep(RETRY);
                    // A connection of this client keeps trying the node that is gone; connection pools also
                    // make a new connection in this case.
                    if error.is_io_error()
                        && let Ok(fresh) = self.client.get_connection()
                    {
                        self.connection = fresh;
                    }
                }
            }
        }
    }

    /// The version at a key; 0 if there is none.
    fn value(&mut self, at: usize) -> RedisResult<usize> {
        let key = self.key(at);
        let found: Option<usize> = self.again(|connection| connection.get(&key))?;
        Ok(found.unwrap_or(0))
    }

    fn key(&self, at: usize) -> String {
        format!("load-{}-{at}", self.number)
    }

    fn write(&mut self, is_over: &AtomicBool, began: &Sender<()>) -> Result<(), Broken> {
        let mut last = Instant::now();
        while !is_over.load(Ordering::Relaxed) {
            let number = self.writes + 1;
            let (at, key) = (number % KEYS, self.key(number % KEYS));
            if self.value(at)? != self.acknowledged[at] {
                self.stale += 1;
            }
            self.again(|connection| connection.set::<_, _, ()>(&key, number))?;
            self.acknowledged[at] = number;
            self.writes = number;
            self.gap = self.gap.max(last.elapsed());
            last = Instant::now();
            if number == UNDER_WAY {
                began.send(())?;
            }
        }
        Ok(())
    }

    fn lost(&mut self) -> Result<usize, Broken> {
        let mut count = 0;
        for at in 0..KEYS {
            let version = self.acknowledged[at];
            if version != 0 && self.value(at)? != version {
                count += 1;
            }
        }
        Ok(count)
    }
}

pub fn run(ring: &Ring, client: &ClusterClient) -> Result<Value, Broken> {
    let is_over = AtomicBool::new(false);
    let (began, begins) = channel();
    let writers = (0..WRITERS).map(|number| Writer::new(number, client));
    let mut writers = writers.collect::<RedisResult<Vec<_>>>()?;
    let mut again = Repeated::new(ring, client)?;
    thread::scope(|scope| {
        let running: Vec<_> = writers
            .iter_mut()
            .map(|writer| {
                let (began, is_over) = (began.clone(), &is_over);
                scope.spawn(move || writer.write(is_over, &began))
            })
            .collect();
        // If a writer fails at once, the channel closes and the load is not reported as under way.
        drop(began);
        let mut checking = None;
        if begins.iter().take(WRITERS).count() == WRITERS {
            tell(&json!({ "under_way": true }));
            checking = Some(scope.spawn(|| again.run(&is_over)));
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink())?;
        }
        is_over.store(true, Ordering::Relaxed);
        running.into_iter().try_for_each(|writer| writer.join().map_err(|_| "a writer panicked")?)?;
        checking.into_iter().try_for_each(|checks| checks.join().map_err(|_| "a check panicked")?)
    })?;
    let mut lost = 0;
    let mut met = again.met;
    for writer in &mut writers {
        lost += writer.lost()?;
        for (error, count) in &writer.met {
            *met.entry(error.clone()).or_insert(0) += count;
        }
    }
    let gap = writers.iter().map(|writer| writer.gap).max().unwrap_or_default();
    Ok(json!({
        "acknowledged": writers.iter().map(|writer| writer.writes).sum::<usize>(),
        "lost": lost,
        "stale": writers.iter().map(|writer| writer.stale).sum::<usize>(),
        "longest_gap_ms": u64::try_from(gap.as_millis())?,
        "met": met,
        "checks_under_way": again.rounds,
        "checks_at_end": again.at_end,
        "sent_twice": again.sent_twice,
    }))
}
