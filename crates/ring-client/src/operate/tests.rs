//! Reading the status of a ring.

use super::*;
use crate::stub::{Answer, Stub};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A keyspace's part of a status.
fn scratch_fields() -> Vec<(Value, Value)> {
    let name = |text: &str| Value::String(text.into());
    vec![
        (name("keyspace"), Value::Integer(1)),
        (name("name"), name("scratch")),
        (name("copies"), Value::Integer(2)),
        (name("in_sync_min"), Value::Null),
        (name("latency_ms"), Value::Integer(500)),
        (name("served"), Value::Integer(16384)),
        (name("copies_in_sync_min"), Value::Integer(1)),
        (name("durability"), name("synced")),
    ]
}

#[test]
fn a_status_is_read_in_both_versions_of_the_protocol() {
    let name = |text: &str| Value::String(text.into());
    let node = vec![
        (name("node"), Value::Integer(2)),
        (name("address"), name("10.0.0.1:7379")),
        (name("up"), Value::Integer(1)),
        (name("leaving"), Value::Integer(0)),
        (name("leads"), Value::Integer(5461)),
        (name("in_sync"), Value::Integer(16384)),
        (name("catching_up"), Value::Integer(3)),
        (name("zone"), name("rack-2")),
        (name("weight"), Value::Integer(4)),
    ];
    let lists = |lists: &[&[i64]]| {
        let list = |list: &&[i64]| Value::Array(list.iter().copied().map(Value::Integer).collect());
        Value::Array(lists.iter().map(list).collect())
    };
    let scratch = scratch_fields();
    let ring = |nodes, keyspace| {
        vec![
            (name("node"), Value::Integer(1)),
            (name("version"), Value::Integer(9)),
            (name("group_silent_ms"), Value::Integer(80)),
            (name("group_leader"), Value::Integer(2)),
            (name("slots"), Value::Integer(16384)),
            (name("served"), Value::Integer(16384)),
            (name("copies_in_sync_min"), Value::Integer(3)),
            (name("nodes"), Value::Array(vec![nodes])),
            (name("behind"), lists(&[&[2, 7], &[3, 0]])),
            (name("unreached"), Value::Array(vec![Value::Integer(4)])),
            (name("down"), lists(&[&[5, 9, 1, 3], &[12, 12], &[14, 14]])),
            (name("down_left"), lists(&[&[1, 4, 2], &[1], &[0]])),
            (name("keyspaces"), Value::Array(vec![keyspace])),
        ]
    };
    let answered = Value::Map(ring(Value::Map(node.clone()), Value::Map(scratch.clone())));
    assert_eq!(read_behind(&answered), Some(vec![(2, 7), (3, 0)]));
    assert_eq!(read_unreached(&answered), Some(vec![4]));
    let flat = |pairs: Vec<(Value, Value)>| {
        Value::Array(pairs.into_iter().flat_map(|(name, value)| [name, value]).collect())
    };
    let third = read(&answered).unwrap();
    let slots = |first, last| DownSlots { first, last, ..DownSlots::default() };
    let down = [
        DownSlots { had_by: vec![1, 3], catching_up: vec![4, 2], ..slots(5, 9) },
        slots(12, 12),
        DownSlots { is_new: true, ..slots(14, 14) },
    ];
    assert_eq!(third.down, down);
    assert_eq!(read(&flat(ring(flat(node), flat(scratch)))), Some(third.clone()));
    assert_eq!((third.nodes[0].leads, third.nodes[0].is_up, third.version), (5461, true, 9));
    assert_eq!((third.nodes[0].zone.as_deref(), third.nodes[0].weight), (Some("rack-2"), 4));
    let scratch = KeyspaceStatus {
        keyspace: 1,
        name: "scratch".to_owned(),
        copies: Some(2),
        in_sync_min: None,
        latency: LatencyClass::FiveHundred,
        durability: Some(Durability::Synced),
        served: 16384,
        copies_in_sync_min: 1,
    };
    assert_eq!(third.keyspaces, [scratch]);
    assert_eq!((third.group_silent_ms, third.group_leader), (80, 2));
    assert_eq!(read(&Value::Map(Vec::new())), None);
}

#[test]
fn what_nodes_are_started_with_alike_is_read_if_it_is_told() {
    let name = |text: &str| Value::String(text.into());
    let setup = vec![
        (name("processes"), Value::Array(vec![name("10.0.0.1:7379"), name("10.0.0.2:7379")])),
        (name("loops"), Value::Integer(4)),
        (name("keepers"), Value::Integer(2)),
        (name("copies"), Value::Integer(3)),
        (name("in_sync_min"), Value::Integer(2)),
        (name("rate_error_ppm"), Value::Integer(10_000)),
        (name("clockless"), Value::Integer(0)),
    ];
    let read = RingSetup {
        processes: vec!["10.0.0.1:7379".to_owned(), "10.0.0.2:7379".to_owned()],
        loops: 4,
        keepers: 2,
        copies: 3,
        in_sync_min: 2,
        rate_error_ppm: 10_000,
        is_clockless: false,
    };
    let flat = setup.iter().flat_map(|(name, value)| [name.clone(), value.clone()]).collect();
    assert_eq!(read_setup(&Value::Array(flat)).as_ref(), Some(&read));
    assert_eq!(read_setup(&Value::Map(setup[1..].to_vec())), None);
    assert_eq!(read_setup(&Value::Map(setup)), Some(read));
    assert_eq!(read_setup(&Value::Null), None);
}

/// An address at which nothing listens.
const NOBODY: &str = "127.0.0.1:1";

/// The status from a node with this number and this version of the table, which has these nodes.
fn status_of(node: u32, version: u64, nodes: &[u32]) -> String {
    let nodes: Vec<_> = nodes.iter().map(|node| (*node, NOBODY)).collect();
    status_at_nodes(node, (version, 0), &nodes)
}

/// The same from a node that has heard nothing for this many milliseconds, with nodes at these addresses.
fn status_at_nodes(node: u32, (version, silent_ms): (u64, u64), nodes: &[(u32, &str)]) -> String {
    let name = |name: &str| format!("${}\r\n{name}\r\n", name.len());
    let pair = |of: &str, value: String| name(of) + &value;
    let number = |of: &str, number: u64| pair(of, format!(":{number}\r\n"));
    let of_node = |(node, address): &(u32, &str)| {
        let is_up = number("up", u64::from(*address != NOBODY));
        let rest = ["leaving", "leads", "in_sync", "catching_up"].map(|of| number(of, 0)).concat();
        "*14\r\n".to_owned()
            + &number("node", (*node).into())
            + &pair("address", name(address))
            + &is_up
            + &rest
    };
    let nodes = format!("*{}\r\n", nodes.len()) + &nodes.iter().map(of_node).collect::<String>();
    let counts = ["group_leader", "slots", "served", "copies_in_sync_min"].map(|of| number(of, 0));
    "*20\r\n".to_owned()
        + &number("node", node.into())
        + &number("version", version)
        + &number("group_silent_ms", silent_ms)
        + &counts.concat()
        + &pair("nodes", nodes)
        + &["down", "keyspaces"].map(|of| pair(of, "*0\r\n".to_owned())).concat()
}

/// The status of a ring whose node gives the first answer `times` times, and then another one.
async fn status_at(first: String, times: usize, then: String) -> (Result<RingStatus, StoreError>, usize) {
    let asked = AtomicUsize::new(0);
    let node = Stub::start(move |_, _, _| {
        Answer::Says(if asked.fetch_add(1, Ordering::SeqCst) < times { first.clone() } else { then.clone() })
    })
    .await;
    let patience = Duration::from_secs(2);
    let options = RingOptions { patience, ..RingOptions::of(vec![node.address.clone()]) };
    let status = RingOperator::new(options).status().await;
    (status, node.came("AT.RING STATUS").len())
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_no_table_yet_tells_nothing_of_its_ring() {
    let (status, asked) = status_at(status_of(0, 0, &[]), 3, status_of(1, 9, &[1, 4])).await;
    assert_eq!(status.unwrap().nodes.iter().map(|node| node.node).collect::<Vec<_>>(), [1, 4]);
    assert_eq!(asked, 4);
    let (status, _) = status_at(status_of(0, 0, &[]), usize::MAX, String::new()).await;
    let error = status.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("has not yet learned the state of its ring"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_the_whole_ring_tells_of_it_and_so_does_one_that_has_left() {
    for (node, version) in [(1, 0), (0, 9)] {
        let (status, asked) = status_at(status_of(node, version, &[1]), usize::MAX, String::new()).await;
        assert_eq!((status.unwrap().nodes.len(), asked), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn of_two_nodes_the_one_that_knows_more_is_believed_whichever_is_asked() {
    for (knows, knew) in [((9, 0), (3, 0)), ((9, 0), (9, 60_000))] {
        let newer = Stub::start(move |_, _, _| {
            Answer::Says(status_at_nodes(1, knows, &[(1, NOBODY), (2, NOBODY), (4, NOBODY)]))
        })
        .await;
        let address = newer.address.clone();
        let older =
            Stub::start(move |_, _, _| Answer::Says(status_at_nodes(2, knew, &[(1, &address), (2, NOBODY)])))
                .await;
        for seed in [&newer, &older] {
            let operator = RingOperator::new(RingOptions::of(vec![seed.address.clone()]));
            let newest = operator.newest_status().await.unwrap();
            assert_eq!((newest.node, newest.version, newest.nodes.len()), (1, 9, 3));
        }
        let asked = RingOperator::new(RingOptions::of(vec![older.address.clone()])).status().await.unwrap();
        let told = if knew.1 == 0 { (2, 2) } else { (1, 3) };
        assert_eq!(
            (asked.node, asked.nodes.len()),
            told,
            "who is asked how the ring is tells what it knows, unless it is cut off"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_left_is_not_believed_while_others_know_more() {
    let member = Stub::start(|_, _, _| Answer::Says(status_of(1, 12, &[1, 2, 3]))).await;
    let address = member.address.clone();
    let left =
        Stub::start(move |_, _, _| Answer::Says(status_at_nodes(0, (9, 0), &[(1, &address), (2, NOBODY)])))
            .await;
    let told = RingOperator::new(RingOptions::of(vec![left.address.clone()])).status().await.unwrap();
    assert_eq!((told.node, told.version, told.nodes.len()), (1, 12, 3));
}

/// A status that also says how the ring is set up.
fn with_setup(status: &str) -> String {
    let numbers = [("loops", 1), ("keepers", 3), ("copies", 3), ("in_sync_min", 2)];
    let numbers = numbers.into_iter().chain([("rate_error_ppm", 10_000), ("clockless", 0)]);
    let numbers = numbers.map(|(name, number)| format!("${}\r\n{name}\r\n:{number}\r\n", name.len()));
    let setup = "*14\r\n$9\r\nprocesses\r\n*1\r\n$3\r\na:1\r\n".to_owned() + &numbers.collect::<String>();
    status.replacen("*20", "*22", 1) + "$5\r\nsetup\r\n" + &setup
}

#[tokio::test(start_paused = true)]
async fn how_a_ring_is_set_up_is_learned_from_any_node_that_tells() {
    for (asked, other) in [(9, 3), (3, 9)] {
        // Only the node that is behind tells.
        let status = |version: u64, nodes: &[(u32, &str)]| {
            let status = status_at_nodes(1, (version, 0), nodes);
            if version == 9 { status } else { with_setup(&status) }
        };
        let text = status(other, &[(1, NOBODY), (2, NOBODY)]);
        let other = Stub::start(move |_, _, _| Answer::Says(text.clone())).await;
        let text = status(asked, &[(1, other.address.as_str()), (2, NOBODY)]);
        let asked = Stub::start(move |_, _, _| Answer::Says(text.clone())).await;
        let operator = RingOperator::new(RingOptions::of(vec![asked.address.clone()]));
        let newest = operator.newest_status().await.unwrap();
        assert_eq!((newest.version, newest.setup.map(|setup| setup.keepers)), (9, Some(3)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_whose_answer_is_lost_is_unknown_and_one_that_no_node_heard_of_is_refused() {
    let patience = Duration::from_secs(2);
    let at = |address: &str| {
        RingOperator::new(RingOptions { patience, ..RingOptions::of(vec![address.to_owned()]) })
    };
    let dies = Stub::start(|_, _, _| Answer::Ends(String::new())).await;
    let new = NewKeyspace { name: "scratch".to_owned(), ..NewKeyspace::default() };
    let heard = at(&dies.address);
    let silent = at(NOBODY);
    for (operator, outcome) in [(&heard, Outcome::Unknown), (&silent, Outcome::Refused)] {
        for error in [
            operator.leave(4).await.unwrap_err(),
            operator.stay(4).await.unwrap_err(),
            operator.recover(1, &[7]).await.unwrap_err(),
            operator.create_keyspace(&new).await.unwrap_err(),
        ] {
            assert_eq!(error.outcome(), outcome, "{error}");
        }
    }
    let asked = heard.status().await.unwrap_err();
    assert_eq!(asked.outcome(), Outcome::Refused, "a question changes nothing: {asked}");
    let refuses = Stub::start(|_, _, _| Answer::Says("-ERR there is no node 4\r\n".to_owned())).await;
    assert_eq!(at(&refuses.address).leave(4).await.unwrap_err().kind(), ErrorKind::InvalidInput);
}
