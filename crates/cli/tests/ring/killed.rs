//! A ring of three processes, of which one or all are killed: acknowledged writes survive, and the test
//! reports how long it takes until writes succeed again.

use crate::support::{Workspace, free_port};
use crate::three::Ring;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;

/// Number of kills. To measure the times, raise it: ATOLL_RING_ROUNDS=25.
fn rounds() -> usize {
    std::env::var("ATOLL_RING_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(1)
}

/// Prints the longest and the median of some times.
fn tell(what: &str, mut seconds: Vec<f64>) {
    seconds.sort_by(f64::total_cmp);
    let (middle, longest) = (seconds[seconds.len() / 2], seconds[seconds.len() - 1]);
    println!("{what}, {} rounds: {middle:.2} s, at most {longest:.2} s", seconds.len());
    assert!(longest < 30.0, "{what} took {longest} s");
}

#[test]
fn a_ring_of_three_processes_loses_nothing_when_one_is_killed() {
    let mut seconds = Vec::new();
    for round in 0..rounds() {
        let place = Workspace::new();
        let mut ring = Ring::start(&place, free_port(), "flushed");
        for key in 0..60 {
            assert_eq!(ring.ask(&format!("SET k{key} {key}")), "+OK\r\n");
        }
        let slots = ring.ask("CLUSTER NODES");
        assert!(slots.len() < 1_000, "clients are told of a few ranges: {slots}");
        // The node that leads this key; in one round out of three it leads the configuration group as well.
        let key = format!("SET k{round} {round}");
        ring.ask(&key);
        let killed = usize::from(ring.asked);
        ring.kill(killed);
        let started = std::time::Instant::now();
        assert_eq!(ring.ask(&key), "+OK\r\n");
        seconds.push(started.elapsed().as_secs_f64());
        for key in 0..60 {
            assert_eq!(ring.ask(&format!("SET again{key} {key}")), "+OK\r\n");
            let kept = format!("${}\r\n{key}\r\n", key.to_string().len());
            assert_eq!(ring.ask(&format!("GET k{key}")), kept, "round {round}");
        }
        bring_back(&place, &mut ring, killed);
        ring.end();
    }
    tell("from a kill to the next write", seconds);
}

/// Runs the command line that is said to restart a killed node, and checks that it does.
fn bring_back(place: &Workspace, ring: &mut Ring, killed: usize) {
    let told = ring.hear(&format!("node {} was ended by signal 9", killed + 1));
    let (_, typed) = told.split_once("another terminal: atoll ").unwrap();
    let words: Vec<&str> = typed.split(' ').chain(["--json"]).collect();
    let mut back = place.spawn(&words);
    let started = crate::support::started(&mut back);
    let port = usize::from(ring.port) + killed;
    assert_eq!(started["listening"], format!("127.0.0.1:{port}"), "{told}");
    kill_process(Pid::from_child(&back), Signal::TERM).unwrap();
    assert_eq!(back.wait().unwrap().code(), Some(0));
}

/// Counts up in a key of its own until no node answers, and signals the first acknowledgement. Returns the
/// last acknowledged count, and the last one that may have been written.
fn count_up(port: u16, token: &str, name: &str, from: u64, answered: &mpsc::Sender<()>) -> (u64, u64) {
    let mut sockets: Vec<Option<TcpStream>> = (0..3).map(|_| None).collect();
    let (mut at, mut acknowledged, mut failures) = (0, from, 0);
    loop {
        let asked = (|| {
            let socket = match &mut sockets[at] {
                Some(socket) => socket,
                none => {
                    let mut socket = TcpStream::connect(("127.0.0.1", port + u16::try_from(at).unwrap()))?;
                    socket.set_read_timeout(Some(std::time::Duration::from_secs(5)))?;
                    socket.write_all(format!("AUTH {token}\r\n").as_bytes())?;
                    socket.read_exact(&mut [0; 5])?;
                    none.insert(socket)
                }
            };
            socket.write_all(format!("SET {name} {}\r\n", acknowledged + 1).as_bytes())?;
            let mut reply = String::new();
            BufReader::new(socket).read_line(&mut reply)?;
            std::io::Result::Ok(reply)
        })();
        match asked.as_deref() {
            Ok("+OK\r\n") => {
                (acknowledged, failures) = (acknowledged + 1, 0);
                if acknowledged == from + 1 {
                    answered.send(()).unwrap();
                }
            }
            Ok(reply) if reply.starts_with("-MOVED ") => {
                let to: u16 = reply.trim().rsplit_once(':').unwrap().1.parse().unwrap();
                at = usize::from(to - port);
            }
            // A refused request may succeed a little later.
            Ok(reply) if reply.starts_with('-') => std::thread::yield_now(),
            _ => {
                sockets[at] = None;
                at = (at + 1) % 3;
                failures += 1;
            }
        }
        // No node is left.
        if failures == 6 {
            return (acknowledged, acknowledged + 1);
        }
    }
}

/// Kills all processes again and again while two clients write.
fn kill_all_under_load(durability: &str) {
    let (place, port) = (Workspace::new(), free_port());
    let mut random = fastrand::Rng::with_seed(7);
    let mut counted = [(0, 0); 2];
    let mut seconds = Vec::new();
    for round in 0..=rounds() {
        let started = std::time::Instant::now();
        let mut ring = Ring::start(&place, port, durability);
        for (client, (acknowledged, perhaps)) in counted.into_iter().enumerate() {
            let kept = ring.ask(&format!("GET counter-{client}"));
            let kept: u64 = kept.lines().nth(1).map_or(0, |line| line.parse().unwrap());
            assert!(
                (acknowledged..=perhaps).contains(&kept),
                "{kept}: {acknowledged} to {perhaps}, round {round}"
            );
            counted[client].0 = kept;
        }
        assert_eq!(ring.ask("SET after 1"), "+OK\r\n");
        if round > 0 {
            seconds.push(started.elapsed().as_secs_f64());
        }
        let before = counted;
        let token = ring.token.clone();
        let (answered, first_answers) = mpsc::channel();
        let clients: Vec<_> = (0..2)
            .map(|client| {
                let (token, from, answered) = (token.clone(), before[client].0, answered.clone());
                std::thread::spawn(move || {
                    count_up(port, &token, &format!("counter-{client}"), from, &answered)
                })
            })
            .collect();
        drop(answered);
        // After that, any moment is as good as another.
        let _both = first_answers.iter().take(2).count();
        std::thread::sleep(std::time::Duration::from_millis(random.u64(200..600)));
        ring.kill_all();
        for (client, counting) in clients.into_iter().enumerate() {
            counted[client] = counting.join().unwrap();
            assert!(counted[client].0 > before[client].0, "a client was answered, round {round}");
        }
    }
    tell(&format!("all killed, {durability}: from the start to a write"), seconds);
}

#[test]
fn a_ring_whose_processes_are_all_killed_serves_again_with_all_that_it_acknowledged() {
    kill_all_under_load("flushed");
}

#[test]
fn a_ring_that_syncs_and_whose_processes_are_all_killed_loses_nothing_either() {
    kill_all_under_load("synced");
}
