//! The nodes of a ring: which one leads which slot, connections to them, and calls that end in time.
//!
//! Invariant: a request that is sent again only reads, has a name under which it is done once, or has the
//! same effect however often it is done.

use crate::answer::{Refused, is_of_nobody, meaning};
use crate::connection::{Answered, Connection, NoAnswer, in_time, written};
use crate::durability::{QUESTION, Told, class_of, too_weak};
use crate::idle::Idle;
use crate::known_table::KnownTable;
use crate::lanes::{Lanes, SHARED_BYTES_MAX, Way};
use crate::options::RingOptions;
use crate::places::Places;
use crate::refreshing::Refreshing;
use crate::sending::{Sending, SentAt, Silence};
use crate::watch_connections::WatchConnections;
use atoll_keyspace::slot_of;
use atoll_resp::Value;
use atoll_store::{Durability, Source, StoreError};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const PAUSE_FIRST: Duration = Duration::from_millis(2);
const PAUSE_MAX: Duration = Duration::from_millis(200);

/// Redirections that a call follows before it pauses.
pub(crate) const HOPS_MAX: usize = 5;

/// How often a call tries again because the user of its connection was changed. Once is enough, unless other
/// calls give back connections from before the change meanwhile.
const RENEWALS_MAX: usize = 5;

pub(crate) type Address = Arc<str>;

/// The nodes of a ring.
pub(crate) struct Nodes {
    pub(crate) options: RingOptions,
    pub(crate) place: String,
    table: Mutex<KnownTable>,
    /// The nodes of the last table, and those named since, whether they answer or not.
    named: Mutex<BTreeSet<Address>>,
    /// What nodes keep that were asked.
    told: Told,
    idle: Idle,
    /// Lanes for requests of a latency class with time.
    lanes: Lanes,
    pub(crate) watch_connections: WatchConnections,
    refreshing: Refreshing,
    places: Places,
}

impl Nodes {
    pub(crate) fn new(options: RingOptions) -> Self {
        Self {
            place: options.place(),
            options,
            table: Mutex::new(KnownTable::unknown()),
            named: Mutex::default(),
            told: Told::default(),
            idle: Idle::default(),
            lanes: Lanes::default(),
            watch_connections: WatchConnections::default(),
            refreshing: Refreshing::default(),
            places: Places::default(),
        }
    }

    /// Reads at the node that leads the slot of a partition.
    pub(crate) async fn read(
        &self,
        what: &'static str,
        partition: &[u8],
        request: &[u8],
    ) -> Result<Value, StoreError> {
        self.read_slot(what, slot_of(partition), request).await
    }

    /// Reads at the node that leads a slot.
    pub(crate) async fn read_slot(
        &self,
        what: &'static str,
        slot: u16,
        request: &[u8],
    ) -> Result<Value, StoreError> {
        self.call(what, Some(slot), request, None).await.map(|(_, answered)| answered.value)
    }

    /// Writes at the node that leads the slot of a partition.
    pub(crate) async fn write(
        &self,
        partition: &[u8],
        request: &[u8],
        sending: &Sending,
    ) -> Result<Value, StoreError> {
        let asked = self.call("write", Some(slot_of(partition)), request, Some(sending));
        let (_, Answered { value, keeps }) = asked.await?;
        sending.acknowledged(keeps);
        Ok(value)
    }

    /// Reads at any node.
    pub(crate) async fn ask(&self, what: &'static str, words: &[&[u8]]) -> Result<Value, StoreError> {
        self.call(what, None, &written(words), None).await.map(|(_, answered)| answered.value)
    }

    /// Asks any node what writes survive that it acknowledges.
    pub(crate) async fn ask_durability(&self) -> Result<(), StoreError> {
        let (node, Answered { value, .. }) = self.call("open", None, &written(&QUESTION), None).await?;
        self.told.note(&self.named, &node, class_of(&value).ok_or_else(|| self.odd("open"))?);
        Ok(())
    }

    /// The weakest class of the nodes that lead slots, of those that were asked.
    pub(crate) fn durability(&self) -> Durability {
        self.told.weakest(&self.named)
    }

    /// Asks any node for a change that may be repeated.
    pub(crate) async fn change(
        &self,
        what: &'static str,
        words: &[&[u8]],
        sending: &Sending,
    ) -> Result<Value, StoreError> {
        self.call(what, None, &written(words), Some(sending)).await.map(|(_, answered)| answered.value)
    }

    /// Reads at one node, once; none if it does not answer.
    pub(crate) async fn ask_node(&self, address: &str, words: &[&[u8]]) -> Option<Value> {
        let (target, request) = (Address::from(address), written(words));
        let within = |_| self.options.request_time_out;
        let asked = self.once((&target, Way::Reads), &request, (within, || None), || ());
        let answered = tokio::time::timeout(self.options.connect_time_out, asked).await.ok()?.ok()?;
        let answer = answered.value;
        (!matches!(answer, Value::Error(_))).then_some(answer)
    }

    /// Also returns the node that answered.
    async fn call(
        &self,
        what: &'static str,
        slot: Option<u16>,
        request: &[u8],
        sending: Option<&Sending>,
    ) -> Result<(Address, Answered), StoreError> {
        let begin = || sending.into_iter().for_each(Sending::begin);
        let refused = || sending.into_iter().for_each(Sending::refused);
        let way = sending.map_or(Way::Reads, |sending| Way::Writes(sending.least));
        // A write may have waited already for earlier writes.
        let mut ends = sending.map_or_else(Instant::now, |sending| sending.began) + self.options.patience;
        let (mut pause, mut hops, mut sent_on, mut renewals) = (PAUSE_FIRST, 0, None, 0);
        let mut silence = Silence::of(&self.options);
        loop {
            let owner = || slot.and_then(|slot| self.owner(slot));
            let target = sent_on.take().or_else(owner).unwrap_or_else(|| self.anyone());
            let sent_at = SentAt::now();
            let within = |begins| silence.of_try(begins, ends);
            let until = || sending.and_then(|sending| sending.sent_until(self.options.doubt_max));
            let trouble = match self.once((&target, way), request, (within, until), begin).await {
                Ok(Answered { value: Value::Error(text), .. }) => {
                    refused();
                    if renewals < RENEWALS_MAX && self.is_of_former_user(&text) {
                        renewals += 1;
                        self.drop_connections(&target, sent_at.instant);
                        sent_on = Some(Address::clone(&target));
                        continue;
                    }
                    match meaning(&text, what, &self.place) {
                        // Sending it again finds out.
                        Refused::Unknown(reason) => {
                            sending.into_iter().for_each(|sending| sending.doubt(sent_at));
                            (reason, None)
                        }
                        Refused::Failed(error) => return Err(error),
                        Refused::Moved(address) => {
                            let address = Address::from(address);
                            self.set_owner(slot, &address);
                            sent_on = Some(address);
                            hops += 1;
                            if hops % HOPS_MAX != 0 {
                                continue;
                            }
                            ("the nodes redirect it to each other".to_owned(), None)
                        }
                        Refused::Later(reason) => (reason, None),
                    }
                }
                Ok(answered) => return Ok((target, answered)),
                Err(NoAnswer::Stranger(error) | NoAnswer::TooWeak(_, error)) => return Err(error),
                Err(NoAnswer::Elsewhere(why)) => (format!("{target} has no such keyspace yet: {why}"), None),
                Err(NoAnswer::Sent(error)) => {
                    silence.was_for_nothing(&error);
                    sending.into_iter().for_each(|sending| sending.doubt(sent_at));
                    self.no_answer(&target, sent_at, error)
                }
                Err(NoAnswer::Unsent(error)) => self.no_answer(&target, sent_at, error),
            };
            self.unlearn(slot, &target);
            let (now, until) = (Instant::now(), until());
            ends = until.map_or(ends, |until| ends.min(until));
            if until.is_some_and(|until| now >= until) || (now >= ends && !silence.owes_last()) {
                return Err(self.unanswered(trouble));
            }
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            pause = (pause * 2).min(PAUSE_MAX);
            self.refresh_within(ends.saturating_duration_since(now)).await;
        }
    }

    /// The trouble that a node gave no answer.
    fn no_answer(&self, target: &Address, sent_at: SentAt, error: io::Error) -> (String, Option<io::Error>) {
        // Connections to a node that only accepts no client at present are still of use.
        if error.kind() != io::ErrorKind::ResourceBusy {
            self.forget(target, sent_at.instant);
        }
        (format!("no answer from {target}: {error}"), Some(error))
    }

    /// The error of a call that was in trouble until its time was over.
    fn unanswered(&self, (reason, error): (String, Option<io::Error>)) -> StoreError {
        let source = error.map(|error| Arc::new(error) as Source);
        StoreError::Unavailable { place: self.place.clone(), reason, source }
    }

    /// Sends a request to a node. Dropping this future drops the connection as well, unless others share it.
    /// `sending` is called before the request may arrive, or before it is known whether it may have. `within`
    /// gives the time in which the answer of a short request must begin, for a try that begins at its
    /// argument. Nothing is sent after the moment that `until` returns at that time.
    async fn once(
        &self,
        (target, way): (&Address, Way),
        request: &[u8],
        (within, until): (impl FnOnce(Instant) -> Duration, impl Fn() -> Option<Instant>),
        sending: impl Fn(),
    ) -> Result<Answered, NoAnswer> {
        // The wait for it is not the node's fault.
        let place = self.places.take(target).await;
        let within = within(Instant::now());
        if until().is_some_and(|until| Instant::now() >= until) {
            let late = "its time ran out before there was room for it";
            return Err(NoAnswer::Unsent(io::Error::new(io::ErrorKind::ResourceBusy, late)));
        }
        let answered = place.run(self.ask_at((target, way), request, within, sending)).await;
        let (Ok(Answered { keeps: Some(keeps), .. }) | Err(NoAnswer::TooWeak(keeps, _))) = &answered else {
            return answered;
        };
        self.told.note(&self.named, target, *keeps);
        answered
    }

    /// The same, without taking a place.
    async fn ask_at(
        &self,
        (target, way): (&Address, Way),
        request: &[u8],
        within: Duration,
        sending: impl Fn(),
    ) -> Result<Answered, NoAnswer> {
        let is_short = request.len() <= SHARED_BYTES_MAX;
        if self.options.latency.slack_us().is_some() && is_short {
            let both = (&self.options, self.place.as_str());
            return self.lanes.ask(both, (target, way), request, within, sending).await;
        }
        let mut connection = self.connection(target).await?;
        if let Some(least) = way.least() {
            let told = connection.keeps(self.options.connect_time_out).await.map_err(NoAnswer::Unsent)?;
            match told {
                Ok(keeps) if keeps < least => {
                    self.idle.keep(target, connection);
                    return Err(too_weak(keeps, least));
                }
                Ok(_) => {}
                // As if it refused the write.
                Err(text) => return Ok(Answered { value: Value::Error(text), keeps: None }),
            }
        }
        sending();
        // A long request or answer may take long, so a node counts as hung only if nothing of it moves.
        let silence_max = self.options.request_time_out;
        let asked = async {
            match is_short {
                true => in_time(within, connection.begin(request)).await?,
                false => connection.begin_long(request, silence_max).await?,
            }
            connection.answer(silence_max).await
        };
        let value = asked.await.map_err(NoAnswer::Sent)?;
        let keeps = way.least().and(connection.known_to_keep());
        if !matches!(&value, Value::Error(text) if is_of_nobody(text)) {
            self.idle.keep(target, connection);
        }
        Ok(Answered { value, keeps })
    }

    /// Whether a node refused a request because the user of the connection was changed after it had
    /// authenticated. Another connection shows the password anew, and finds out whether it still is the right
    /// one.
    fn is_of_former_user(&self, text: &[u8]) -> bool {
        self.options.token.is_some() && is_of_nobody(text)
    }

    /// Uses no connection to a node any more that was there when a request was sent at `sent_at`: all of them
    /// are of the same user.
    fn drop_connections(&self, address: &Address, sent_at: Instant) {
        self.idle.forget(address, Instant::now());
        self.lanes.forget(address, sent_at);
    }

    async fn connection(&self, target: &Address) -> Result<Connection, NoAnswer> {
        while let Some(mut connection) = self.idle.take(target) {
            if connection.is_alive() {
                return Ok(connection);
            }
        }
        Connection::enter(target, &self.options, &self.place).await
    }

    /// Asks for the table of slots, together with all other callers that want it.
    pub(crate) async fn refresh(&self) -> Result<(), StoreError> {
        self.refreshing.once(self.ask_all()).await
    }

    /// The same, for at most `time` or the time that a connection may take, whichever is longer: a call ends
    /// in its own time however many nodes there are to ask. If none of them answers, the next round asks the
    /// known nodes.
    pub(crate) async fn refresh_within(&self, time: Duration) {
        let _ = tokio::time::timeout(time.max(self.options.connect_time_out), self.refresh()).await;
    }

    /// Asks for the table of slots for the first time. A full node may soon have a place, and a node that has
    /// just started soon knows the table, so they are asked again for as long as a call goes on.
    pub(crate) async fn begin(&self) -> Result<(), StoreError> {
        let ends = Instant::now() + self.options.patience;
        let mut pause = PAUSE_FIRST;
        loop {
            match self.refresh().await {
                Err(error) if is_of_busy_nodes(&error) && Instant::now() < ends => {}
                told => return told,
            }
            tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64())).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    pub(crate) fn owner(&self, slot: u16) -> Option<Address> {
        self.table.lock().owners.get(slot.into()).map(Address::from)
    }

    /// The node to ask about a slot.
    pub(crate) fn owner_or_anyone(&self, slot: u16) -> Address {
        self.owner(slot).unwrap_or_else(|| self.anyone())
    }

    pub(crate) fn set_owner(&self, slot: Option<u16>, address: &Address) {
        if let Some(slot) = slot {
            self.table.lock().owners.set(slot.into(), address);
            self.named.lock().insert(Address::clone(address));
        }
    }

    /// Stops believing a `MOVED` that named a node which cannot serve the slot now. It may have come from a
    /// node that is behind, and have named a former leader: no answer about the table takes that back while
    /// the table is the latest one. If the `MOVED` was right, the node in the table redirects there again.
    pub(crate) fn unlearn(&self, slot: Option<u16>, address: &Address) {
        if let Some(slot) = slot {
            self.table.lock().owners.unlearn(slot.into(), address);
        }
    }

    /// Forgets that a node without an answer to a request sent at `sent_at` leads any slot, until it is named
    /// again, and asks it last for the table. An answer of it since then shows that it is there, and
    /// connections made since then belong to other calls that tried again.
    pub(crate) fn forget(&self, address: &Address, sent_at: Instant) {
        self.idle.forget(address, sent_at);
        self.lanes.forget(address, sent_at);
        self.table.lock().owners.forget(address);
        self.refreshing.note(address, false);
    }

    /// Ends connections that are not in use, and the others as soon as they are not.
    pub(crate) fn close(&self) {
        self.watch_connections.close();
        self.idle.close();
        self.lanes.close();
    }

    /// Ends connections that are not in use to nodes that nothing is asked of any more, as they lead no slot,
    /// and forgets their places.
    fn end_connections_to_others(&self) {
        let known = self.known();
        self.idle.retain(&known);
        self.lanes.retain(&known);
        self.watch_connections.retain(&known);
        self.places.retain(&known);
    }

    /// The error of an answer that no node gives.
    pub(crate) fn odd(&self, what: &'static str) -> StoreError {
        let source: Source = Arc::new(io::Error::from(io::ErrorKind::InvalidData));
        StoreError::Failed { what, place: self.place.clone(), source }
    }
}

/// Whether nodes did not answer because they accept no client at present.
fn is_of_busy_nodes(error: &StoreError) -> bool {
    let StoreError::Unavailable { source: Some(source), .. } = error else { return false };
    source.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
}

mod finding;
#[cfg(test)]
mod tests;
