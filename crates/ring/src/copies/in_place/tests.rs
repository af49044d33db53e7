//! A long slot is empty until its last piece has arrived, whatever happens meanwhile, and complete from then
//! on.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::*;
use crate::copies::GatheringRoom;
use crate::copies::full::Full;
use crate::keyspaces::Keyspaces;
use crate::options::Persistence;
use crate::peer::{Peers, Piece, Spoken};
use atoll_disk::{Disk, FaultPlan, Relay, SimDisk};
use atoll_engine::Engine;
use atoll_keyspace::Keyspace;
use atoll_replica::{
    Configuration, Entry, Epoch, Incarnation, Member, Message, Moment, NodeId, Options, Sequence,
    SlotMessage, Table, Version,
};
use atoll_resp::{Command, Limits, Protocol, RequestParser, write_request};
use std::net::TcpListener;
use std::sync::Arc;

const ME: NodeId = NodeId(2);
const SLOT: Slot = Slot(5);
const NUMBER: u16 = 5;

/// The keyspace that the cells come from.
fn source(keys: u64) -> Keyspace {
    let engine = Engine::in_memory(atoll_engine::Options::default()).unwrap();
    let mut source = Keyspace::open(&engine, "source").unwrap();
    (1..=keys).for_each(|sequence| set(&mut source, sequence));
    source
}

fn request(sequence: u64) -> Vec<u8> {
    let (mut bytes, value) = (Vec::new(), "v".repeat(2_000));
    write_request(&mut bytes, &["set", &format!("k{sequence}"), &value]);
    bytes
}

fn set(keyspace: &mut Keyspace, sequence: u64) {
    let bytes = request(sequence);
    let mut parser = RequestParser::new(Limits::default());
    let request = parser.parse(&bytes).unwrap().unwrap();
    let command = Command::of(&request).unwrap();
    let applied = Applied { epoch: 1, sequence };
    keyspace.apply(NUMBER, applied, sequence, &command, Protocol::Resp2, &mut Vec::new()).unwrap();
}

/// All cells of a source, in several pieces.
fn pieces(source: &Keyspace) -> Vec<Piece> {
    let (mut exporter, mut pieces, mut is_last) = (source.exporter(NUMBER), Vec::new(), false);
    let Applied { epoch, sequence } = source.applied(NUMBER);
    while !is_last {
        let (cells, is_end) = exporter.next(10_000).unwrap();
        is_last = is_end;
        let position = Position { epoch: Epoch(epoch), sequence: Sequence(sequence) };
        let (number, time_ms) = (pieces.len() as u32, source.time_ms(NUMBER));
        pieces.push(Piece { slot: SLOT, branch: Version(0), position, time_ms, number, is_last, cells });
    }
    pieces
}

struct Node {
    engine: Engine,
    disk: SimDisk,
    copies: Copies,
    now: Now,
    tables: u64,
    branch: Version,
    _poll: mio::Poll,
}

impl Node {
    /// An empty node with a copy that catches up, in a ring in which the first node leads everything.
    fn begin() -> Self {
        let disk = SimDisk::seeded(1);
        Self::begin_on(Arc::new(disk.clone()), disk)
    }

    fn begin_on(whole: Arc<dyn Disk>, disk: SimDisk) -> Self {
        let engine = Engine::open(whole, atoll_engine::Options::default()).unwrap();
        let (poll, listener) = (mio::Poll::new().unwrap(), TcpListener::bind("127.0.0.1:0").unwrap());
        let peers = Peers::listen(ME, (None, None), listener, poll.registry()).unwrap();
        let keyspaces = Keyspaces::open(&engine, Persistence::Always).unwrap();
        let log = SlotLog::open(&engine, "log").unwrap();
        let gathering = GatheringRoom { slot_bytes_max: 30_000, bytes_max: 60_000 };
        let mut copies = Copies::new(ME, Options::default(), keyspaces, Some(log), peers, 1 << 20, gathering);
        let now = Now { moment: Moment(1), date_ms: 1 };
        copies.begin(now, (Incarnation(1), 0), poll.registry()).unwrap();
        let mut node = Self { engine, disk, copies, now, tables: 0, branch: Version(0), _poll: poll };
        node.go_by(1, &[1], &[2]);
        node
    }

    fn go_by(&mut self, primary: u32, in_sync: &[u32], joining: &[u32]) {
        self.tables += 1;
        let nodes = |numbers: &[u32]| {
            atoll_replica::Copies::of(&numbers.iter().copied().map(NodeId).collect::<Vec<_>>())
        };
        let mut table = Table::empty(16_384);
        table.version = Version(self.tables);
        for node in 1..=3 {
            let (incarnation, is_up, is_leaving) = (Incarnation(1), true, false);
            let member = Member { incarnation, is_up, is_leaving, ..Member::new("".into()) };
            table.members.insert(NodeId(node), member);
        }
        let configuration = Configuration {
            epoch: Epoch(self.tables),
            since: table.version,
            primary: Some(NodeId(primary)),
            in_sync: nodes(in_sync),
            joining: nodes(joining),
            branch: self.branch,
            ..Configuration::default()
        };
        table.slots.change_each(|slot, one| {
            if slot == SLOT {
                *one = configuration;
            }
        });
        self.copies.step(self.now, Input::Table(Arc::new(table))).unwrap();
    }

    fn hear(&mut self, from: u32, pieces: &[Piece]) {
        self.hear_in(Incarnation(1), from, pieces);
    }

    fn hear_in(&mut self, incarnation: Incarnation, from: u32, pieces: &[Piece]) {
        for piece in pieces {
            let spoken = Spoken::Piece(piece.clone());
            self.copies.hear(self.now, NodeId(from), incarnation, spoken).unwrap();
        }
    }

    fn hear_entry(&mut self, from: u32, sequence: u64) {
        let position = |sequence| Position { epoch: Epoch(1), sequence: Sequence(sequence) };
        let previous = if sequence == 1 { Position::default() } else { position(sequence - 1) };
        let body = [&[0][..], &request(sequence)].concat().into();
        let entries = vec![Entry { position: position(sequence), time_ms: sequence, body }];
        let about = SlotMessage::Append { previous, entries, committed: Sequence(sequence) };
        let message = Message::Slot { slot: SLOT, epoch: Epoch(self.tables), about };
        self.copies.hear(self.now, NodeId(from), Incarnation(1), Spoken::Message(message)).unwrap();
        self.copies.write_log().unwrap();
    }

    /// Leaves this much on the disk beside what is kept free.
    fn leave(&self, bytes: u64) {
        let leave = |space_left| {
            self.disk.set_plan(FaultPlan { space_left: Some(space_left), ..FaultPlan::default() });
        };
        leave(0);
        let room = self.engine.disk_room().unwrap();
        leave(room::RESERVE_BYTES + room.needed_bytes + bytes - room.left_bytes);
    }

    fn keyspace(&self) -> &Keyspace {
        self.copies.keyspaces.of(SLOT).0
    }

    /// How many keys there are, and the last entry, by the cells and by the protocol.
    fn has(&self) -> (u64, u64, u64) {
        let keyspace = self.keyspace();
        (
            keyspace.keys_in(NUMBER),
            keyspace.applied(NUMBER).sequence,
            self.copies.replica.last(SLOT).sequence.0,
        )
    }

    fn assert_is(&self, source: &Keyspace) {
        self.keyspace().verify(NUMBER).unwrap();
        assert_eq!(self.keyspace().digest(NUMBER).unwrap(), source.digest(NUMBER).unwrap());
        let last = source.applied(NUMBER).sequence;
        assert_eq!(self.has(), (source.keys_in(NUMBER), last, last));
    }

    /// What is found when the store is opened again: keys, cells of any kind, and log entries.
    fn found_again(&self) -> (u64, u64, usize) {
        let keyspaces = Keyspaces::open(&self.engine, Persistence::Always).unwrap();
        let mut log = SlotLog::open(&self.engine, "log").unwrap();
        let found = log.found(crate::copies::applied(&keyspaces)).unwrap();
        let entries = found.iter().map(|found| found.entries.len()).sum();
        let (cells, _) = keyspaces.of(SLOT).0.exporter(NUMBER).next(1 << 30).unwrap();
        (keyspaces.of(SLOT).0.keys_in(NUMBER), cells.len() as u64, entries)
    }
}

#[test]
fn a_long_slot_is_empty_until_its_last_piece_is_there_and_then_whole() {
    let (mut node, source) = (Node::begin(), source(60));
    (1..=3).for_each(|sequence| node.hear_entry(1, sequence));
    assert_eq!(node.has(), (3, 3, 3));
    let pieces = pieces(&source);
    let (last, first) = pieces.split_last().unwrap();
    node.hear(1, &first[..2]);
    assert_eq!(node.has(), (3, 3, 3), "what is gathered changes nothing");
    node.hear(1, &first[2..]);
    assert_eq!(node.has(), (0, 0, 0));
    assert!(node.copies.lacks_cells(SLOT) && !node.copies.may_read(SLOT, node.now));
    node.hear(1, std::slice::from_ref(last));
    node.assert_is(&source);
    assert!(!node.copies.lacks_cells(SLOT));
    let position = last.position;
    let handed = node.copies.take_handed();
    assert_eq!(handed.last().map(|(slot, position, _)| (*slot, *position)), Some((SLOT, position)));
    // None of it is taken a second time.
    node.hear(1, &pieces);
    node.assert_is(&source);
    assert_eq!((node.copies.long_arrivals(), node.copies.given_up()), (1, 0));
}

#[test]
fn what_came_before_a_node_ends_is_gone_when_it_begins_again_and_so_is_the_log_of_before() {
    let (mut node, source) = (Node::begin(), source(60));
    node.hear_entry(1, 1);
    let pieces = pieces(&source);
    node.hear(1, &pieces[..pieces.len() - 1]);
    assert_eq!(node.found_again(), (0, 0, 0));
}

#[test]
fn whoever_leads_next_begins_anew_and_what_came_before_is_gone() {
    let (mut node, source, longer) = (Node::begin(), source(60), source(80));
    let (of_first, of_third) = (pieces(&source), pieces(&longer));
    node.hear(1, &of_first[..of_first.len() - 1]);
    node.go_by(3, &[3], &[2]);
    assert_eq!((node.has(), node.found_again()), ((0, 0, 0), (0, 0, 0)));
    node.hear(1, &of_first[of_first.len() - 1..]);
    assert_eq!(node.has(), (0, 0, 0), "who does not lead any more sends nothing");
    node.hear(3, &of_third);
    node.assert_is(&longer);
}

#[test]
fn cells_are_written_together_as_long_as_they_are_not_many_bytes_nor_many() {
    let cells = |count, bytes| vec![(vec![1; 10], vec![2; bytes]); count];
    assert_eq!(count_together(&cells(5_000, 10)), BATCH_CELLS_MAX);
    assert_eq!(count_together(&cells(100, 100_000)), 10);
    assert_eq!([1, 3].map(|count| count_together(&cells(count, 4 << 20))), [1, 1]);
    assert_eq!(count_together(&cells(3, 10)), 3);
}

#[test]
fn a_copy_keeps_what_it_has_where_cells_come_of_a_node_that_leads_no_more() {
    let (mut node, source) = (Node::begin(), source(60));
    (1..=3).for_each(|sequence| node.hear_entry(1, sequence));
    let pieces = pieces(&source);
    node.hear(1, &pieces[..2]);
    node.go_by(3, &[3], &[2]);
    node.hear(1, &pieces[2..]);
    assert_eq!((node.has(), node.copies.long_arrivals()), ((3, 3, 3), 0));
}

#[test]
fn a_sender_that_begins_anew_is_not_mixed_with_what_it_sent_before() {
    let (mut node, source, longer) = (Node::begin(), source(60), source(80));
    let (before, after) = (pieces(&source), pieces(&longer));
    node.hear(1, &before[..before.len() - 1]);
    node.hear(1, &after[..1]);
    assert_eq!(node.found_again(), (0, 0, 0), "the first piece waits in memory");
    node.hear(1, &after[1..]);
    node.assert_is(&longer);
    // The slot has become short meanwhile.
    let (mut node, short) = (Node::begin(), self::source(3));
    node.hear(1, &before[..before.len() - 1]);
    node.hear(1, &pieces(&short));
    node.assert_is(&short);
    // A missing piece ends it as well.
    let (mut node, again) = (Node::begin(), pieces(&longer));
    node.hear(1, &again[..again.len() - 3]);
    node.hear(1, &again[again.len() - 2..]);
    assert_eq!((node.has(), node.found_again()), ((0, 0, 0), (0, 0, 0)));
}

#[test]
fn an_entry_that_comes_late_goes_behind_nothing_and_not_behind_cells_of_a_later_moment() {
    let (mut node, long) = (Node::begin(), source(60));
    let pieces = pieces(&long);
    node.hear(1, &pieces[..pieces.len() - 1]);
    node.hear_entry(1, 1);
    node.assert_is(&source(1));
    node.hear(1, &pieces[pieces.len() - 1..]);
    node.assert_is(&source(1));
}

#[test]
fn a_copy_that_somebody_counts_on_is_never_emptied() {
    for (primary, in_sync) in [(1, [1, 2]), (2, [2, 1])] {
        let (mut node, long) = (Node::begin(), source(60));
        node.hear_entry(1, 1);
        let pieces = pieces(&long);
        node.hear(1, &pieces[..2]);
        node.go_by(primary, &in_sync, &[]);
        node.hear(1, &pieces[2..]);
        assert_eq!(node.has(), (1, 1, 1), "{primary}");
    }
    // A node that is to lead the rest of a slot begins empty, and not with some of the cells.
    let (mut node, long) = (Node::begin(), source(60));
    let pieces = pieces(&long);
    node.hear(1, &pieces[..pieces.len() - 1]);
    node.go_by(2, &[2], &[]);
    assert_eq!((node.has(), node.found_again()), ((0, 0, 0), (0, 0, 0)));
    node.hear(1, &pieces[pieces.len() - 1..]);
    assert_eq!(node.has(), (0, 0, 0));
}

#[test]
fn a_slot_that_does_not_fit_is_given_up_before_the_disk_is_full_and_rests_for_a_while() {
    let (mut node, long) = (Node::begin(), source(60));
    (1..=3).for_each(|sequence| node.hear_entry(1, sequence));
    let pieces = pieces(&long);
    // There is room for the first piece, but not for everything gathered.
    node.leave(50_000);
    node.hear(1, &pieces);
    assert_eq!((node.has(), node.copies.given_up(), node.copies.is_full()), ((3, 3, 3), 1, false));
    node.hear_entry(1, 4);
    assert_eq!(node.has(), (4, 4, 4), "other things are taken");
    node.disk.set_plan(FaultPlan::default());
    node.now.moment = node.now.moment.after(59_000_000);
    node.hear(1, &pieces);
    assert_eq!((node.has(), node.copies.given_up()), ((4, 4, 4), 1));
    node.now.moment = node.now.moment.after(1_000_000);
    // With nothing left beside what is kept free it is not begun.
    node.leave(0);
    node.hear(1, &pieces);
    assert_eq!((node.has(), node.copies.given_up(), node.copies.long_arrivals()), ((4, 4, 4), 2, 0));
    // A slot that is partly in place ends as well.
    node.disk.set_plan(FaultPlan::default());
    node.now.moment = node.now.moment.after(60_000_000);
    node.hear(1, &pieces[..pieces.len() - 1]);
    node.leave(0);
    node.hear(1, &pieces[pieces.len() - 1..]);
    assert_eq!((node.has(), node.copies.given_up(), node.copies.is_full()), ((0, 0, 0), 3, false));
    assert!(!node.copies.lacks_cells(SLOT) && node.disk.counters().out_of_space == 0);
    node.disk.set_plan(FaultPlan::default());
    node.now.moment = node.now.moment.after(60_000_000);
    node.hear(1, &pieces);
    node.assert_is(&long);
}

/// A disk that does not report how much room it has.
struct Silent(SimDisk);

impl Relay for Silent {
    fn inner(&self) -> &dyn Disk {
        &self.0
    }

    fn room_bytes(&self) -> Option<u64> {
        None
    }
}

#[test]
fn a_full_disk_ends_it_and_the_slot_is_empty_and_comes_again_when_there_is_room() {
    let (disk, long) = (SimDisk::seeded(1), source(60));
    let mut node = Node::begin_on(Arc::new(Silent(disk.clone())), disk);
    let pieces = pieces(&long);
    node.hear(1, &pieces[..pieces.len() - 2]);
    node.disk.set_plan(FaultPlan { space_left: Some(0), ..FaultPlan::default() });
    // The log has some room in reserve, which repeated transfers use up.
    for _ in 0..100_000 {
        if node.copies.is_full() {
            break;
        }
        node.hear(1, &pieces[..pieces.len() - 2]);
    }
    assert!(node.copies.is_full() && node.copies.given_up() > 0);
    node.hear(1, &pieces);
    assert_eq!((node.has(), node.copies.may_read(SLOT, node.now)), ((0, 0, 0), false));
    node.disk.set_plan(FaultPlan::default());
    for _ in 0..3 {
        node.now.moment = node.now.moment.after(1_000_000);
        node.copies.try_again(node.now).unwrap();
    }
    assert!(!node.copies.is_full() && !node.copies.lacks_cells(SLOT));
    assert_eq!((node.has(), node.found_again()), ((0, 0, 0), (0, 0, 0)));
    node.now.moment = node.now.moment.after(60_000_000);
    node.hear(1, &pieces);
    node.assert_is(&long);
}

/// The same cells as sent by a node that follows another branch.
fn of_branch(pieces: &[Piece], branch: Version) -> Vec<Piece> {
    pieces.iter().map(|piece| Piece { branch, ..piece.clone() }).collect()
}

#[test]
fn cells_of_a_branch_that_was_given_up_are_not_put_in_place_however_late_they_come() {
    // A short slot, and one that is too long to be gathered.
    for keys in [5, 60] {
        let (mut node, source) = (Node::begin(), source(keys));
        let pieces = pieces(&source);
        // Some came before the loss was accepted; the former primary leads again, in another branch.
        node.hear(1, &pieces[..pieces.len() / 2]);
        node.branch = Version(2);
        node.go_by(1, &[1], &[2]);
        node.hear(1, &pieces[pieces.len() / 2..]);
        node.hear(1, &pieces);
        assert_eq!(node.has(), (0, 0, 0));
        node.hear(1, &of_branch(&pieces, Version(2)));
        node.assert_is(&source);
    }
}

#[test]
fn cells_that_were_sent_in_another_life_are_not_taken() {
    for keys in [5, 60] {
        let (mut node, source) = (Node::begin(), source(keys));
        let pieces = pieces(&source);
        [0, 2].into_iter().for_each(|life| node.hear_in(Incarnation(life), 1, &pieces));
        assert_eq!(node.has(), (0, 0, 0));
        node.hear(1, &pieces);
        node.assert_is(&source);
    }
}

#[test]
fn a_copy_that_could_not_be_emptied_says_nothing_until_it_is() {
    let mut node = Node::begin();
    node.hear_entry(1, 1);
    // A loss is accepted while the disk is full.
    node.copies.full = Some(Full::default());
    node.branch = Version(2);
    node.go_by(1, &[1], &[2]);
    assert!(node.copies.lacks_cells(SLOT));
    // Nobody is connected: whatever is sent is dropped, and counted.
    let sends = |node: &mut Node, about| {
        let before = node.copies.peers.dropped;
        let message = Message::Slot { slot: SLOT, epoch: Epoch(2), about };
        node.copies.perform(node.now, Effect::Send { to: NodeId(1), message }).unwrap();
        node.copies.peers.dropped - before
    };
    let (has_nothing, follows) =
        (SlotMessage::Rejected { hint: Sequence(0) }, SlotMessage::Appended { matched: Sequence(0) });
    let said = [&has_nothing, &follows];
    assert_eq!(said.map(|about| sends(&mut node, about.clone())), [0, 0]);
    for _ in 0..3 {
        node.now.moment = node.now.moment.after(1_000_000);
        node.copies.try_again(node.now).unwrap();
    }
    assert_eq!((node.has(), node.found_again()), ((0, 0, 0), (0, 0, 0)));
    assert_eq!(said.map(|about| sends(&mut node, about.clone())), [1, 1]);
}

#[test]
fn a_branch_is_recorded_once_nothing_of_the_former_one_is_left() {
    let mut node = Node::begin();
    let records = |node: &Node| node.engine.tree("log-branches").unwrap().len().unwrap();
    node.hear_entry(1, 1);
    // A loss is accepted while the disk has no room to empty the cells.
    node.copies.full = Some(Full::default());
    node.branch = Version(2);
    node.go_by(1, &[1], &[2]);
    node.copies.log.as_mut().unwrap().write().unwrap();
    assert_eq!((node.keyspace().keys_in(NUMBER), records(&node)), (1, 0));
    for _ in 0..3 {
        node.now.moment = node.now.moment.after(1_000_000);
        node.copies.try_again(node.now).unwrap();
    }
    node.copies.step(node.now, Input::Tick).unwrap();
    node.copies.write_log().unwrap();
    assert_eq!((node.has(), records(&node)), ((0, 0, 0), 1));
    // It is found with what came since.
    node.hear_entry(1, 1);
    let keyspaces = Keyspaces::open(&node.engine, Persistence::Always).unwrap();
    let mut log = SlotLog::open(&node.engine, "log").unwrap();
    let found = log.found(crate::copies::applied(&keyspaces)).unwrap();
    assert_eq!(found.iter().map(|found| found.branch).collect::<Vec<_>>(), [Version(2)]);
}
