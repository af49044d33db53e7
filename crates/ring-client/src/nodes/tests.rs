//! How nodes are asked for the table of slots.

use super::*;
use crate::places::REQUESTS_MAX;
use crate::stub::{Answer, Stub, known_table, table, usual};
use atoll_resp::{LatencyClass, Limits, RequestParser};
use futures::future::join_all;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A node that claims every slot, or hangs up, and counts how often it was asked.
struct Node {
    address: String,
    asked: Arc<AtomicUsize>,
}

impl Node {
    async fn start(answers: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, port, answers, Arc::clone(&count)));
            }
        });
        Self { address: format!("127.0.0.1:{port}"), asked }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: TcpStream, port: u16, answers: bool, asked: Arc<AtomicUsize>) {
    let (mut parser, mut arrived) = (RequestParser::new(Limits::default()), Vec::new());
    while stream.read_buf(&mut arrived).await.is_ok_and(|count| count > 0) {
        let mut taken = 0;
        while let Some(request) = parser.parse(&arrived[taken..]).unwrap() {
            taken += request.bytes();
            asked.fetch_add(1, Ordering::SeqCst);
            if !answers {
                return;
            }
            stream.write_all(table(port, None).as_bytes()).await.unwrap();
        }
        arrived.drain(..taken);
    }
}

fn nodes_of(seeds: &[&Node]) -> Nodes {
    Nodes::new(RingOptions::of(seeds.iter().map(|node| node.address.clone()).collect()))
}

#[tokio::test]
async fn calls_that_fail_at_the_same_time_ask_once_who_has_what() {
    let node = Node::start(true).await;
    let nodes = nodes_of(&[&node]);
    let told = join_all((0..50).map(|_| nodes.refresh())).await;
    assert!(told.iter().all(Result::is_ok));
    assert_eq!(node.asked(), 1);
    assert_eq!(nodes.owner(7).as_deref(), Some(&*node.address));
    nodes.refresh().await.unwrap();
    assert_eq!(node.asked(), 2, "what was answered before somebody asks is no answer");
}

#[tokio::test]
async fn whoever_waits_for_a_question_that_fails_is_told_so() {
    let node = Node::start(false).await;
    let nodes = nodes_of(&[&node]);
    let told = join_all((0..50).map(|_| nodes.refresh())).await;
    assert!(told.iter().all(|told| matches!(told, Err(StoreError::Unavailable { .. }))), "{told:?}");
    assert_eq!(node.asked(), 1);
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_asked_last_and_of_the_others_each_is_asked() {
    fastrand::seed(7);
    let (dead, one, other) = (Node::start(false).await, Node::start(true).await, Node::start(true).await);
    let nodes = nodes_of(&[&dead, &one, &other]);
    nodes.forget(&Address::from(dead.address.as_str()), Instant::now());
    for _ in 0..40 {
        nodes.refresh().await.unwrap();
    }
    assert_eq!((dead.asked(), one.asked() + other.asked()), (0, 40));
    assert!(one.asked() > 5 && other.asked() > 5, "{} {}", one.asked(), other.asked());
}

/// This many nodes that say nothing.
async fn hanging(count: usize) -> Vec<String> {
    let nodes = (0..count).map(|_| Stub::start(|_, _, _| Answer::Hangs));
    join_all(nodes).await.into_iter().map(|node| node.address).collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_that_hang_keep_whoever_asks_who_has_what_for_a_moment_each_and_once() {
    let node = Stub::start(|port, _, words| usual(port, words).unwrap()).await;
    let mut seeds = hanging(9).await;
    seeds.push(node.address.clone());
    let nodes = Nodes::new(RingOptions::of(seeds));
    // It is asked last.
    nodes.forget(&Address::from(node.address.as_str()), Instant::now());
    for most in [Duration::from_secs(2), Duration::ZERO] {
        let began = Instant::now();
        nodes.refresh().await.unwrap();
        assert!(began.elapsed() <= most, "{:?}", began.elapsed());
    }
    assert_eq!(node.came("AT.TABLE").len(), 2);
}

/// A node that leads all slots in the table of the version that `version` names at that time.
async fn with_versions(version: impl Fn() -> &'static str + Send + Sync + 'static) -> Stub {
    Stub::start(move |port, _, words| {
        let version = version();
        Answer::Says(match words.strip_prefix("AT.TABLE ") {
            Some(known) if known == version => known_table(version),
            _ => table(port, Some(version)),
        })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_table_is_sent_once_for_each_version_and_whoever_was_given_up_leads_again_what_it_led() {
    let asked = AtomicUsize::new(0);
    let versions = ["ring.0.7", "ring.0.7", "ring.0.7", "ring.0.9", "ring.0.9"];
    let node = with_versions(move || versions[asked.fetch_add(1, Ordering::SeqCst)]).await;
    let nodes = Nodes::new(RingOptions::of(vec![node.address.clone()]));
    let address = Address::from(node.address.as_str());
    for _ in versions {
        nodes.refresh().await.unwrap();
        assert_eq!(nodes.owner(7).as_ref(), Some(&address));
        nodes.forget(&address, Instant::now());
        assert_eq!(nodes.owner(7), None);
    }
    let known = ["", " ring.0.7", " ring.0.7", " ring.0.7", " ring.0.9"];
    assert_eq!(node.came("AT.TABLE"), known.map(|known| format!("AT.TABLE{known}")));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_behind_takes_nobody_back_and_one_of_another_ring_is_believed() {
    let (ahead, behind) = (with_versions(|| "ring.0.9").await, with_versions(|| "ring.0.8").await);
    let nodes = Nodes::new(RingOptions::of(vec![ahead.address.clone()]));
    nodes.refresh().await.unwrap();
    // From now on both are asked, in turn at random.
    nodes.named.lock().insert(Address::from(behind.address.as_str()));
    while behind.came("AT.TABLE").len() < 3 {
        nodes.refresh().await.unwrap();
        assert_eq!(nodes.owner(7).as_deref(), Some(&*ahead.address));
    }
    assert!(behind.came("AT.TABLE").iter().all(|words| words == "AT.TABLE ring.0.9"));
    let other = with_versions(|| "other.0.1").await;
    *nodes.named.lock() = [Address::from(other.address.as_str())].into();
    while other.came("AT.TABLE").is_empty() {
        nodes.refresh().await.unwrap();
    }
    assert_eq!(nodes.owner(7).as_deref(), Some(&*other.address));
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_makes_no_sense_is_an_error_and_the_next_question_is_for_all() {
    let node = Stub::start(|port, _, words| match words {
        "AT.TABLE" => Answer::Says(table(port, Some("ring.0.7"))),
        _ => Answer::Says(known_table("other.0.7")),
    })
    .await;
    let nodes = Nodes::new(RingOptions::of(vec![node.address.clone()]));
    nodes.refresh().await.unwrap();
    let odd = nodes.refresh().await;
    assert!(matches!(odd, Err(StoreError::Failed { what: "AT.TABLE", .. })), "{odd:?}");
    nodes.refresh().await.unwrap();
    assert_eq!(node.came("AT.TABLE"), ["AT.TABLE", "AT.TABLE ring.0.7", "AT.TABLE"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_ends_in_time_however_many_nodes_say_nothing() {
    let [short, second] = [200, 1_000].map(Duration::from_millis);
    let options = RingOptions {
        silence_first: short,
        patience: second,
        request_time_out: second,
        ..RingOptions::of(hanging(60).await)
    };
    let began = Instant::now();
    let error = Nodes::new(options).read_slot("get", 7, &written(&["GET", "k"])).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_call_goes_on_for_its_time_where_nobody_listens() {
    // So long that doubling it a few times would overflow.
    let [connect_time_out, silence_first] = [Duration::from_secs(1 << 57); 2];
    let patience = Duration::from_millis(1_500);
    let options = RingOptions {
        connect_time_out,
        silence_first,
        patience,
        ..RingOptions::of(vec!["127.0.0.1:1".to_owned()])
    };
    let began = Instant::now();
    let error = Nodes::new(options).read_slot("get", 7, &written(&["GET", "k"])).await.unwrap_err();
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
    assert!(began.elapsed() >= patience);
}

#[tokio::test]
async fn a_write_in_doubt_that_waited_for_its_place_for_too_long_is_not_sent() {
    let node = Node::start(true).await;
    let doubt_max = Duration::from_millis(50);
    let nodes = Nodes::new(RingOptions { doubt_max, ..RingOptions::of(vec![node.address.clone()]) });
    let sending = Sending::default();
    sending.doubt(SentAt::now());
    let places = nodes.places.all.acquire_many(REQUESTS_MAX as u32).await.unwrap();
    let request = written(&["AT.ID", "1", "1", "0", "SET", "k", "v"]);
    let write = nodes.write(b"k", &request, &sending);
    let later = async {
        tokio::time::sleep(2 * doubt_max).await;
        drop(places);
    };
    let (written, ()) = tokio::join!(write, later);
    assert!(matches!(written, Err(StoreError::Unavailable { .. })), "{written:?}");
    assert_eq!(node.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn writes_to_a_node_that_says_nothing_hold_up_no_read_at_another_one() {
    let silent = Stub::start(|_, _, _| Answer::Hangs).await;
    let node = Stub::start(|_, _, _| Answer::Says("$1\r\nv\r\n".to_owned())).await;
    let nodes = Nodes::new(RingOptions::of(vec![node.address.clone()]));
    let (written_to, read) = (slot_of(b"k"), 1 + slot_of(b"k") % 7);
    assert_ne!(written_to, read);
    nodes.set_owner(Some(written_to), &Address::from(silent.address.as_str()));
    nodes.set_owner(Some(read), &Address::from(node.address.as_str()));
    let [set, get] = [written(&["AT.ID", "1", "1", "0", "SET", "k", "v"]), written(&["AT.GET", "p", "s"])];
    let write = || async {
        let sending = Sending::default();
        nodes.write(b"k", &set, &sending).await
    };
    let writes = join_all((0..REQUESTS_MAX + 50).map(|_| write()));
    let reading = async {
        tokio::time::sleep(Duration::from_millis(1)).await;
        for _ in 0..3 {
            let read = nodes.read_slot("get", read, &get);
            let read = tokio::time::timeout(Duration::from_secs(1), read).await;
            assert!(matches!(read, Ok(Ok(Value::String(_)))), "{read:?}");
        }
        assert_eq!(silent.open(), REQUESTS_MAX, "no more connections than it may accept");
    };
    tokio::select! {
        _ = writes => panic!("nothing answers them"),
        () = reading => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_in_doubt_is_not_sent_by_a_machine_that_slept_until_nodes_may_have_forgotten_it() {
    let node = Stub::start(|port, _, words| {
        usual(port, words).unwrap_or_else(|| Answer::Says("*2\r\n:0\r\n+OK\r\n".to_owned()))
    })
    .await;
    let nodes = Nodes::new(RingOptions::of(vec![node.address.clone()]));
    let request = written(&["AT.ID", "1", "1", "0", "SET", "k", "v"]);
    for (slept_s, is_sent) in [(20 * 60, false), (60, true)] {
        let sending = Sending::default();
        sending.doubt(SentAt::before_sleep(Duration::from_secs(slept_s)));
        let done = nodes.write(b"k", &request, &sending).await;
        assert_eq!(done.is_ok(), is_sent, "{done:?}");
        assert_eq!(node.came("AT.ID").len(), usize::from(is_sent));
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_its_caller_repeats_is_not_sent_by_a_machine_that_slept_since_the_call_began() {
    let node = Stub::start(|port, _, words| {
        usual(port, words).unwrap_or_else(|| Answer::Says("*2\r\n:1\r\n+OK\r\n".to_owned()))
    })
    .await;
    let nodes = Nodes::new(RingOptions::of(vec![node.address.clone()]));
    let request = written(&["AT.ID", "1", "1", "1", "SET", "k", "v"]);
    for (slept_s, is_sent) in [(20 * 60, false), (60, true)] {
        let sending = Sending::default().named(SentAt::before_sleep(Duration::from_secs(slept_s)));
        let done = nodes.write(b"k", &request, &sending).await;
        assert_eq!(done.is_ok(), is_sent, "{done:?}");
        assert_eq!(node.came("AT.ID").len(), usize::from(is_sent));
        assert!(is_sent || matches!(done, Err(StoreError::Unavailable { .. })), "{done:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waited_for_its_place_has_as_long_an_answer_as_one_that_begins_then() {
    let node = Stub::start(|port, _, words| {
        let late = || Answer::Late(Duration::from_millis(600), "+v\r\n".to_owned());
        usual(port, words).unwrap_or_else(late)
    })
    .await;
    let options = RingOptions {
        silence_first: Duration::from_millis(300),
        patience: Duration::from_millis(800),
        ..RingOptions::of(vec![node.address.clone()])
    };
    let nodes = Nodes::new(options);
    let places = nodes.places.all.acquire_many(REQUESTS_MAX as u32).await.unwrap();
    let request = written(&["GET", "k"]);
    let later = async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        drop(places);
    };
    // The last try for which there is time.
    let (read, ()) = tokio::join!(nodes.read_slot("get", 7, &request), later);
    assert!(matches!(read, Ok(Value::Simple(_))), "{read:?}");
}

#[tokio::test(start_paused = true)]
async fn of_the_connections_of_a_burst_few_are_left_soon_behind_it_though_nobody_calls() {
    let node = Stub::start(|port, _, words| {
        let late = || Answer::Late(Duration::from_millis(10), "+v\r\n".to_owned());
        usual(port, words).unwrap_or_else(late)
    })
    .await;
    let nodes = Nodes::new(RingOptions::of(vec![node.address.clone()]));
    let request = written(&["GET", "k"]);
    for _ in 0..2 {
        let read = join_all((0..64).map(|_| nodes.read_slot("get", 7, &request))).await;
        assert!(read.iter().all(Result::is_ok));
        assert_eq!(node.open(), 64);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(node.open(), 64, "there may be another burst");
        tokio::time::sleep(Duration::from_secs(41)).await;
        assert_eq!(node.open(), 2);
    }
}

fn port_of(node: &Stub) -> u16 {
    node.address.rsplit(':').next().unwrap().parse().unwrap()
}

/// A node that leads all slots until `is_gone`, and one that leads them from then on. The second one is the
/// seed. Both answer reads with a value, and report that the time of each watch is over.
async fn succeeded(is_gone: &Arc<AtomicBool>) -> [Stub; 2] {
    let ports = [Arc::new(OnceLock::<u16>::new()), Arc::new(OnceLock::new())];
    let start = || {
        let (is_gone, [first, second]) = (Arc::clone(is_gone), ports.clone());
        Stub::start(move |_, _, words| {
            let (leads, version) = match is_gone.load(Ordering::SeqCst) {
                false => (&first, "ring.0.7"),
                true => (&second, "ring.0.8"),
            };
            let mut parts = words.split(' ');
            Answer::Says(match (parts.next().unwrap_or_default(), parts.next()) {
                ("AT.TABLE", Some(known)) if known == version => known_table(version),
                ("AT.TABLE", _) => table(*leads.get().unwrap(), Some(version)),
                ("AT.WATCH", Some(id)) => format!("+OK\r\n>4\r\n$8\r\nat.watch\r\n:{id}\r\n:0\r\n$-1\r\n"),
                ("AT.GET", _) => "$1\r\nv\r\n".to_owned(),
                _ => "+OK\r\n".to_owned(),
            })
        })
    };
    let nodes = [start().await, start().await];
    for (node, port) in nodes.iter().zip(&ports) {
        port.set(port_of(node)).unwrap();
    }
    nodes
}

#[tokio::test(start_paused = true)]
async fn connections_to_a_node_that_left_are_ended() {
    for latency in [LatencyClass::None, LatencyClass::FiveHundred] {
        let is_gone = Arc::default();
        let [first, second] = succeeded(&is_gone).await;
        let nodes = Nodes::new(RingOptions { latency, ..RingOptions::of(vec![second.address.clone()]) });
        let request = written(&["AT.GET", "p", "s"]);
        nodes.refresh().await.unwrap();
        nodes.read_slot("get", 7, &request).await.unwrap();
        let leader = nodes.owner(7).unwrap();
        assert_eq!(*leader, *first.address);
        nodes.watch_connections.wait(&nodes.options, &leader, 10, &[b"p", b"s", b"PRESENT"]).await;
        assert!(first.open() >= 2, "{}", first.open());
        is_gone.store(true, Ordering::SeqCst);
        nodes.refresh().await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(first.open(), 0, "{latency:?}");
        nodes.read_slot("get", 7, &request).await.unwrap();
        assert!(second.open() > 0, "the others are kept");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_goes_on_behind_the_close_leaves_no_connections() {
    for latency in [LatencyClass::None, LatencyClass::FiveHundred] {
        let is_first = AtomicBool::new(true);
        let node = Stub::start(move |port, _, words| match words.split(' ').next().unwrap() {
            // So it asks again, by connections that it makes after the close.
            "AT.GET" if is_first.swap(false, Ordering::SeqCst) => {
                let refusal = "-CLUSTERDOWN Hash slot not served\r\n".to_owned();
                Answer::Late(Duration::from_millis(100), refusal)
            }
            "AT.GET" => Answer::Says("$1\r\nv\r\n".to_owned()),
            _ => usual(port, words).unwrap_or_else(|| Answer::Says("+OK\r\n".to_owned())),
        })
        .await;
        let nodes = Nodes::new(RingOptions { latency, ..RingOptions::of(vec![node.address.clone()]) });
        nodes.refresh().await.unwrap();
        let request = written(&["AT.GET", "p", "s"]);
        let closing = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            nodes.close();
        };
        let (read, ()) = tokio::join!(nodes.read_slot("get", 7, &request), closing);
        read.unwrap();
        assert_eq!(node.came("AT.GET").len(), 2);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(node.open(), 0, "{latency:?}");
    }
}

/// A node that leads all slots and says nothing more, and another one that leads them from this time on.
async fn taken_over(from: Duration) -> [Stub; 2] {
    let began = Instant::now();
    let hangs = Stub::start(move |port, _, words| match began.elapsed() < from {
        true => usual(port, words).unwrap_or(Answer::Hangs),
        false => Answer::Hangs,
    })
    .await;
    let first: u16 = hangs.address.rsplit(':').next().unwrap().parse().unwrap();
    let serves = Stub::start(move |port, _, words| {
        let owner = if began.elapsed() < from { first } else { port };
        usual(owner, words).unwrap_or_else(|| Answer::Says("+v\r\n".to_owned()))
    })
    .await;
    [hangs, serves]
}

#[tokio::test(start_paused = true)]
async fn a_call_with_less_time_than_a_node_may_hang_goes_to_whoever_took_over_as_well() {
    let request = written(&["GET", "k"]);
    for patience in [Duration::from_secs(4), Duration::from_secs(10)] {
        for is_write in [false, true] {
            let nodes_there = taken_over(Duration::from_millis(1_500)).await;
            let seeds = nodes_there.iter().map(|node| node.address.clone()).collect();
            let nodes = Nodes::new(RingOptions { patience, ..RingOptions::of(seeds) });
            nodes.refresh().await.unwrap();
            let began = Instant::now();
            let answer = match is_write {
                false => nodes.read_slot("get", 7, &request).await,
                true => nodes.write(b"k", &request, &Sending::default()).await,
            };
            assert!(matches!(answer, Ok(Value::Simple(_))), "{patience:?}: {answer:?}");
            assert!(began.elapsed() < Duration::from_secs(6), "{patience:?}: {:?}", began.elapsed());
        }
    }
}
