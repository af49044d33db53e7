//! Schedules follow from their seeds, and the judge detects what is wrong with faulty nodes.

use super::asker::{Answer, Asker, Request, cluster_info};
use super::book::{Book, CELLS, Counts, Wrong};
use super::final_checks::{look_up, write_every_slot};
use super::lane::Lane;
use super::plan::{END_MS, Fault, Keeping, Kind, Plan, Share};
use super::report::{is_right, rows};
use super::service::{Scene, ServedCut, Service, periods};
use super::shared::Judged;
use super::{Findings, HOSTS, Outcome};
use crate::client::parse_command;
use std::collections::{BTreeSet, HashMap};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SEEDS: std::ops::Range<u64> = 0..3_000;
const PATIENCE: Duration = Duration::from_secs(5);

#[test]
fn a_schedule_follows_from_its_seed_and_everything_in_it_ends() {
    for plan in SEEDS.map(Plan::of) {
        assert_eq!(plan, Plan::of(plan.seed));
        assert!(plan.faults.len() >= 2, "{plan:?}");
        assert!(plan.active(END_MS).is_empty(), "{plan:?}");
        for fault in &plan.faults {
            assert!(fault.from_ms < fault.until_ms && fault.until_ms <= END_MS, "{plan:?}");
            assert!(fault.host < HOSTS && fault.other < HOSTS && fault.other != fault.host, "{plan:?}");
        }
    }
    assert_ne!(Plan::of(1).faults, Plan::of(2).faults);
}

#[test]
fn only_a_schedule_of_a_majority_has_more_than_one_host_in_trouble() {
    for plan in SEEDS.map(Plan::of) {
        let in_trouble = |at_ms| {
            let hosts: BTreeSet<usize> = plan.active(at_ms).iter().map(|fault| fault.host).collect();
            hosts.len()
        };
        let most = plan.moments().into_iter().map(in_trouble).max();
        assert_eq!(most > Some(1), plan.share == Share::Majority, "{plan:?}");
        assert_eq!(most > Some(1), plan.has_majority_gone(), "{plan:?}");
        assert!(plan.most_dead() <= most.unwrap_or(0), "{plan:?}");
        if plan.keeping == Keeping::Memory {
            assert!(plan.most_dead() <= 1, "{plan:?}");
        }
    }
}

#[test]
fn a_node_in_memory_is_killed_only_when_nothing_else_is_the_matter_and_all_copies_are_waited_for() {
    let in_memory = SEEDS.map(Plan::of).filter(|plan| plan.keeping == Keeping::Memory);
    let mut kills = 0;
    for plan in in_memory {
        for kill in plan.faults.iter().filter(|fault| fault.kind == Kind::Kill) {
            assert!(plan.needs_all_copies(kill.from_ms), "{plan:?}");
            assert!(plan.going_on(kill.from_ms).is_empty(), "copies could not be made meanwhile: {plan:?}");
            for moment in plan.moments().into_iter().filter(|at| (kill.from_ms..kill.until_ms).contains(at)) {
                assert_eq!(plan.active(moment), [*kill], "{plan:?}");
            }
            kills += 1;
        }
    }
    assert!(kills > 100, "{kills}");
}

#[test]
fn a_fault_blocks_what_its_name_says() {
    let blocked = |kind| {
        let fault = Fault { kind, host: 0, other: 1, from_ms: 0, until_ms: 1 };
        let pairs = (0..HOSTS).flat_map(|from| (0..HOSTS).map(move |to| (from, to)));
        pairs.filter(|(from, to)| from != to && fault.blocks(*from, *to)).collect::<Vec<_>>()
    };
    assert_eq!(blocked(Kind::Cut), [(0, 1), (0, 2), (1, 0), (2, 0)]);
    assert_eq!(blocked(Kind::Mute), [(0, 1), (0, 2)]);
    assert_eq!(blocked(Kind::Deaf), [(1, 0), (2, 0)]);
    assert_eq!(blocked(Kind::Split), [(0, 1), (1, 0)]);
    assert!(blocked(Kind::Kill).is_empty() && blocked(Kind::Pause).is_empty());
}

/// Begins and acknowledges a write of the first key.
fn acknowledged(book: &Book, group: &super::book::Group) -> u64 {
    let version = group.begin(0);
    book.acknowledge(group, 0, version);
    version
}

#[test]
fn a_read_may_find_what_was_written_while_it_was_under_way_and_nothing_less_than_what_was_known_before() {
    let book = Book::new(1);
    let group = book.open(0);
    let value = |version| group.value(0, version).into_bytes();
    assert_eq!(book.judge(&group, 0, group.least(0), None), Ok(()));
    let before = group.least(0);
    let first = acknowledged(&book, &group);
    assert_eq!(book.judge(&group, 0, before, None), Ok(()), "it began before the write ended");
    assert_eq!(book.judge(&group, 0, group.least(0), None), Err(Wrong::Stale));
    assert_eq!(book.judge(&group, 0, before, Some(&value(first))), Ok(()));
    let second = group.begin(0);
    assert_eq!(book.judge(&group, 0, group.least(0), Some(&value(first))), Ok(()), "not acknowledged yet");
    assert_eq!(book.judge(&group, 0, group.least(0), Some(&value(second))), Ok(()), "nor refused");
    assert_eq!(book.judge(&group, 0, group.least(0), Some(&value(first))), Err(Wrong::Stale), "read before");
    assert_eq!((book.counts().stale, book.told().len()), (2, 2));
}

#[test]
fn what_was_never_written_or_was_refused_is_found_out() {
    let book = Book::new(2);
    let (group, other) = (book.open(0), book.open(1));
    let first = acknowledged(&book, &group);
    let foreign = [
        group.value(0, first + 1),
        group.value(1, first),
        other.value(0, first),
        "nonsense".to_owned(),
        format!("{}:", group.key(0)),
    ];
    for value in foreign {
        assert_eq!(book.judge(&group, 0, 0, Some(value.as_bytes())), Err(Wrong::Foreign), "{value}");
    }
    let refused = group.begin(0);
    book.refuse(&group, 0, refused);
    let value = group.value(0, refused);
    assert_eq!(book.judge(&group, 0, 0, Some(value.as_bytes())), Err(Wrong::Foreign));
    // The value was read before the refusal came.
    let before = book.counts().foreign;
    let refused = group.begin(0);
    assert_eq!(book.judge(&group, 0, 0, Some(group.value(0, refused).as_bytes())), Ok(()));
    book.refuse(&group, 0, refused);
    assert_eq!(book.counts().foreign, before + 1);
}

#[test]
fn at_the_end_less_than_what_was_acknowledged_is_lost_and_no_answer_is_not() {
    let book = Book::new(1);
    let group = book.open(0);
    let first = acknowledged(&book, &group);
    let unknown = group.begin(0);
    let value = |version| group.value(0, version).into_bytes();
    let last = |found: Option<Option<&[u8]>>| {
        book.judge_last(&group, 0, found);
        let counts = book.counts();
        (counts.lost, counts.unanswered, counts.stale)
    };
    assert_eq!(last(Some(Some(&value(first)))), (0, 0, 0));
    assert_eq!(last(None), (0, 1, 0));
    assert_eq!(last(Some(None)), (1, 1, 0));
    assert_eq!(last(Some(Some(b"nonsense"))), (2, 1, 0));
    assert_eq!(last(Some(Some(&value(unknown)))), (2, 1, 0), "an unknown outcome may be done");
    assert_eq!(last(Some(Some(&value(first)))), (2, 1, 1), "but not undone");
}

/// The fault of a node.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flaw {
    None,
    /// It acknowledges writes that it has not done.
    Forgets,
    /// Reads return the previous value.
    IsLate,
    /// It refuses requests but performs them.
    DoesWhatItRefuses,
    /// It closes connections.
    HangsUp,
}

type Held = Arc<Mutex<HashMap<Vec<u8>, Vec<Vec<u8>>>>>;

/// A node that serves slots below a bound itself, redirects others to another node, and has its fault every
/// few commands.
fn node(fault: Flaw, below: usize, other: SocketAddr, held: &Held) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (held, commands) = (Arc::clone(held), Arc::new(AtomicUsize::new(0)));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (held, commands) = (Arc::clone(&held), Arc::clone(&commands));
            std::thread::spawn(move || serve(stream, fault, (below, other), &held, &commands));
        }
    });
    address
}

fn serve(
    mut stream: TcpStream,
    fault: Flaw,
    (below, other): (usize, SocketAddr),
    held: &Held,
    commands: &AtomicUsize,
) {
    let (mut heard, mut scratch) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut scratch) {
        heard.extend_from_slice(&scratch[..count]);
        if heard.starts_with(b"AUTH") {
            let line = heard.iter().position(|byte| *byte == b'\n').unwrap();
            heard.drain(..=line);
            stream.write_all(b"+OK\r\n").unwrap();
        }
        while let Some((words, taken)) = parse_command(&heard) {
            heard.drain(..taken);
            // A key that is forgotten occasionally is usually written again; one that always is stays
            // forgotten.
            let is_faulty = match fault {
                Flaw::Forgets => words[1].ends_with(b"3"),
                _ => commands.fetch_add(1, SeqCst) % 23 == 22,
            };
            let fault = if is_faulty { fault } else { Flaw::None };
            let tag: Vec<u8> = words[1].iter().copied().skip(1).take_while(|byte| *byte != b'}').collect();
            let slot = crate::cut::slot_of(if words[1].starts_with(b"{") { &tag } else { &words[1] });
            let mut held = held.lock().unwrap();
            let reply = match (fault, words[0].as_slice()) {
                _ if words[0] == b"CLUSTER" => b"$2\r\nhi\r\n".to_vec(),
                _ if slot >= below => format!("-MOVED {slot} {other}\r\n").into_bytes(),
                (Flaw::HangsUp, _) => return,
                (Flaw::Forgets, b"SET") => b"+OK\r\n".to_vec(),
                (_, b"SET") => {
                    held.entry(words[1].clone()).or_default().push(words[2].clone());
                    let is_refused = fault == Flaw::DoesWhatItRefuses;
                    if is_refused { b"-CLUSTERDOWN no\r\n".to_vec() } else { b"+OK\r\n".to_vec() }
                }
                _ => {
                    let values = held.get(&words[1]).map(Vec::as_slice).unwrap_or_default();
                    let back = if fault == Flaw::IsLate { 2 } else { 1 };
                    match values.len().checked_sub(back) {
                        Some(at) => {
                            [format!("${}\r\n", values[at].len()).as_bytes(), &values[at], b"\r\n"].concat()
                        }
                        None => b"$-1\r\n".to_vec(),
                    }
                }
            };
            drop(held);
            stream.write_all(&reply).unwrap();
        }
    }
}

/// The findings of four clients and of the final lookup at two nodes, the first of which is faulty.
fn found(fault: Flaw) -> Counts {
    let held = Held::default();
    let nowhere = (Ipv4Addr::LOCALHOST, 1).into();
    let second = node(Flaw::None, usize::MAX, nowhere, &held);
    let first = node(fault, 12_000, second, &held);
    let (book, stop) = (Arc::new(Book::new(4)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for number in 0..4 {
            let asker = Asker::new(&[first, second], "t", PATIENCE, number as u64);
            let lane = Lane::new(number, asker, Arc::clone(&book), number as u64);
            let stop = &stop;
            scope.spawn(move || lane.run(stop));
        }
        while book.counts().acknowledged < 800 || book.counts().reads < 800 {
            std::thread::sleep(Duration::from_millis(5));
        }
        stop.store(true, SeqCst);
    });
    look_up(&mut Asker::new(&[first], "t", PATIENCE, 9), &book, Duration::from_millis(100));
    let mut counts = book.counts();
    assert_eq!(counts.looked_up, (book.all().len() * CELLS) as u64);
    // That client knows no second node, so the values are looked up again by one that does.
    assert!(counts.unanswered > 0);
    look_up(&mut Asker::new(&[first, second], "t", PATIENCE, 9), &book, PATIENCE);
    counts.unanswered = book.counts().unanswered - counts.unanswered;
    let Counts { lost, stale, foreign, .. } = book.counts();
    Counts { lost, stale, foreign, ..counts }
}

#[test]
fn nothing_is_wrong_with_nodes_that_are_right_even_if_they_hang_up() {
    for fault in [Flaw::None, Flaw::HangsUp] {
        let counts = found(fault);
        assert_eq!(
            (counts.lost, counts.stale, counts.foreign, counts.unanswered),
            (0, 0, 0, 0),
            "{counts:?}"
        );
        assert_eq!(counts.unknown > 0, fault == Flaw::HangsUp, "{counts:?}");
    }
}

#[test]
fn a_node_that_forgets_is_late_or_does_what_it_refuses_is_found_out() {
    let counts = found(Flaw::Forgets);
    assert!(counts.lost > 0, "{counts:?}");
    let counts = found(Flaw::IsLate);
    assert!(counts.stale > 0 && counts.foreign == 0, "{counts:?}");
    let counts = found(Flaw::DoesWhatItRefuses);
    assert!(counts.foreign > 0 && counts.lost == 0, "{counts:?}");
}

#[test]
fn every_slot_is_written_wherever_it_is_served_and_one_that_nobody_serves_is_told() {
    let held = Held::default();
    let nowhere = (Ipv4Addr::LOCALHOST, 1).into();
    let second = node(Flaw::None, usize::MAX, nowhere, &held);
    let first = node(Flaw::None, 8_000, second, &held);
    let mut asker = Asker::new(&[first, second], "t", PATIENCE, 1);
    write_every_slot(&mut asker, 2, PATIENCE * 4).unwrap();
    assert_eq!(held.lock().unwrap().len(), crate::cut::SLOTS);
    let mut alone = Asker::new(&[node(Flaw::None, 16_000, nowhere, &held)], "t", PATIENCE, 1);
    let error = write_every_slot(&mut alone, 1, Duration::from_millis(300)).unwrap_err().to_string();
    assert!(error.contains("384 are not"), "{error}");
    assert_eq!(cluster_info(first, "t", PATIENCE).unwrap(), "hi");
}

#[test]
fn who_does_not_answer_is_told_from_who_was_never_asked() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let silent = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let streams: Vec<TcpStream> = listener.incoming().map_while(Result::ok).map(greet).collect();
        drop(streams);
    });
    // Enough time for the greeting on a busy machine; the answer never comes.
    let mut asker = Asker::new(&[silent], "t", Duration::from_secs(1), 1);
    let request = [Request::Get("a".to_owned())];
    assert!(matches!(asker.ask(0, &request)[..], [Answer::Unknown(_)]));
    // Nothing listens at port 1; a port that was released may be in use again.
    let nowhere = (Ipv4Addr::LOCALHOST, 1).into();
    let mut asker = Asker::new(&[nowhere], "t", Duration::from_millis(100), 1);
    assert_eq!(asker.ask(0, &request), [Answer::NotSent]);
}

fn greet(mut stream: TcpStream) -> TcpStream {
    stream.write_all(b"+OK\r\n").unwrap();
    stream
}

/// What the majority got after one cut.
fn service(requests: u64, succeeded: u64) -> Service {
    let cut = ServedCut { host: 1, milliseconds: 2_000, requests, succeeded };
    Service { cuts: vec![cut], ..Service::default() }
}

pub(super) fn outcome(seed: u64) -> Outcome {
    Outcome {
        plan: Plan::of(seed),
        counts: Counts { acknowledged: 100, reads: 100, unknown: 3, ..Counts::default() },
        shared: Judged { done: 400, linearizable: 6, ..Judged::default() },
        service: service(400, 396),
        calm_seconds: Some(0.5),
        served_seconds: Some((seed % 270) as f64 / 10.0),
        held_up_by: String::new(),
        whole_seconds: Some(3.0),
        told: Vec::new(),
        problem: None,
        crashes: Vec::new(),
        states: Vec::new(),
        kept: None,
    }
}

fn findings(seeds: impl IntoIterator<Item = u64>) -> Findings {
    Findings { outcomes: seeds.into_iter().map(outcome).collect(), ..Findings::default() }
}

#[test]
fn twenty_schedules_contain_every_fault_and_hold_when_nothing_is_wrong() {
    let found = findings((0..super::COUNT).map(|number| super::SEED + number));
    assert!(is_right(&found));
    let rows = rows(&found);
    assert!(rows.iter().all(|row| row.holds()), "{rows:?}");
    assert_eq!(
        rows.iter().map(|row| row.figure).collect::<Vec<_>>(),
        [Some(0.0), Some(0.0), Some(0.0), Some(99.0), Some(2.0), Some(1.05)]
    );
}

#[test]
fn in_the_first_three_schedules_the_majority_is_judged_after_a_cut() {
    // As it is if nothing takes any time, and all copies are there whenever nothing is the matter.
    let scenes = |plan: &Plan| -> Vec<Scene> {
        let scene = |at_ms: u64| {
            let (faults, was_whole) = (plan.active(at_ms), plan.going_on(at_ms).is_empty());
            Scene { from_ms: at_ms, made_ms: at_ms, faults, was_whole }
        };
        plan.moments().into_iter().map(scene).collect()
    };
    let is_judged = |seed: u64| {
        let periods = periods(&scenes(&Plan::of(seed)));
        periods.iter().any(|period| period.until_ms - period.from_ms >= 1_000)
    };
    let first = (super::SEED..).take(super::COUNT_QUICK as usize);
    assert!(first.clone().any(is_judged), "none of {first:?}");
    let share = SEEDS.filter(|seed| is_judged(*seed)).count();
    assert!(share > 300, "{share} of {} schedules", SEEDS.end);
}

#[test]
fn a_majority_that_is_not_served_after_a_cut_or_never_judged_is_a_failure() {
    let with = |service: &[Service]| {
        let mut found = findings(1..=service.len() as u64);
        for (outcome, service) in found.outcomes.iter_mut().zip(service) {
            outcome.service = service.clone();
        }
        found
    };
    let (well, short) = (service(1_000, 950), service(99, 0));
    let found = with(&[well.clone(), short.clone(), Service::default()]);
    assert!(is_right(&found) && rows(&found).iter().all(|row| row.holds()), "{:?}", rows(&found));
    assert_eq!(rows(&found)[3].figure, Some(95.0));
    for wrong in [service(1_000, 949), Service { wrong_reads: 1, ..well.clone() }] {
        let found = with(&[well.clone(), wrong, short.clone()]);
        assert!(!is_right(&found) && rows(&found).iter().all(|row| !row.holds()));
    }
    let none = with(&[short.clone(), Service::default()]);
    assert!(!is_right(&none), "no cut of the run could be judged");
    assert!(rows(&none).iter().all(|row| row.note.as_ref().is_some_and(|why| why.contains("judged"))));
    let one = with(&[short]);
    assert!(is_right(&one), "a schedule that is repeated need not have one");
    assert!(!rows(&one)[3].holds(), "but the bar has no figure then");
}

#[test]
fn a_fault_that_never_occurred_a_lost_write_or_a_crash_is_a_failure() {
    let without_kills =
        SEEDS.filter(|seed| Plan::of(*seed).faults.iter().all(|fault| fault.kind != Kind::Kill));
    let found = findings(without_kills.take(20));
    assert!(!is_right(&found) && rows(&found).iter().all(|row| !row.holds()));
    assert!(rows(&found)[0].note.as_ref().is_some_and(|note| note.contains("kill")), "{:?}", rows(&found)[0]);
    let spoils: [fn(&mut Outcome); 10] = [
        |one| one.shared.broken = 1,
        |one| one.shared.undecided = 1,
        |one| one.shared.strange = 1,
        |one| one.shared.done = 299,
        |one| one.counts.lost = 1,
        |one| one.counts.stale = 1,
        |one| one.counts.foreign = 1,
        |one| one.counts.unanswered = 1,
        |one| one.problem = Some("it does not come back".to_owned()),
        |one| one.crashes = vec!["it ended".to_owned()],
    ];
    for spoil in spoils {
        let mut found = findings(1..=3);
        assert!(is_right(&found) && rows(&found).iter().all(|row| row.holds()));
        spoil(&mut found.outcomes[1]);
        assert!(!is_right(&found) && rows(&found).iter().all(|row| !row.holds()));
    }
    let none = |why: Option<&str>| Findings { missing: why.map(str::to_owned), ..Findings::default() };
    assert!(!is_right(&none(Some("all schedules failed: exit status: 101"))), "in the very first");
    assert!(!is_right(&none(None)) && is_right(&none(Some("not offered yet: no program"))));
    let mut found = findings(1..=3);
    found.missing = Some("all schedules failed: exit status: 101".to_owned());
    assert!(!is_right(&found));
    let mut found = findings(1..=3);
    found.outcomes[0].counts.acknowledged = 0;
    assert!(rows(&found).iter().all(|row| !row.holds()));
}
