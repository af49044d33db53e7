//! Random commands compared with a real Redis: the behaviour that clients rely on.
//!
//! Replay a failure with `ATOLL_SEED=N cargo test -p atoll-keyspace --test beside_redis`.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, clippy::print_stdout)]

mod common;

use atoll_resp::Value;
use common::random::Draw;
use common::redis::Redis;
use common::{Subject, told};
use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

fn clock_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// Commands that refuse a key which holds a hash, where Redis replaces the hash by a string.
const REPLACING: [&[u8]; 4] = [b"set", b"mset", b"setex", b"psetex"];

/// Whether a command would replace a hash by a string.
fn replaces_hash(subject: &mut Subject, words: &[Vec<u8>]) -> bool {
    let keys: Vec<&Vec<u8>> = match words[0].as_slice() {
        b"mset" => words[1..].iter().step_by(2).collect(),
        name if REPLACING.contains(&name) => vec![&words[1]],
        _ => return false,
    };
    keys.into_iter().any(|key| told(&subject.ask_words(&[b"type", key])) == "+hash")
}

/// An answer in a form that has to be equal on both sides.
fn comparable(words: &[Vec<u8>], answer: Value) -> Value {
    match (words[0].as_slice(), answer) {
        // Redis lists fields as they were added, or in no order.
        (b"hgetall", Value::Map(mut pairs)) => {
            pairs.sort_by_key(|(field, _)| told(field));
            Value::Map(pairs)
        }
        (b"hkeys" | b"hvals", Value::Array(mut values)) => {
            values.sort_by_key(told);
            Value::Array(values)
        }
        (_, answer) => answer,
    }
}

/// Whether answers differ only because the two sides looked at their clocks at slightly different times.
fn is_near(words: &[Vec<u8>], ours: &Value, theirs: &Value) -> bool {
    let tolerance = match words[0].as_slice() {
        b"ttl" | b"expiretime" => 5,
        b"pttl" | b"pexpiretime" => 5000,
        _ => return false,
    };
    match (ours, theirs) {
        (Value::Integer(ours), Value::Integer(theirs)) => {
            (ours - theirs).abs() <= tolerance && (*ours < 0) == (*theirs < 0)
        }
        _ => false,
    }
}

fn run(seed: u64, redis: &mut Redis, asked: &mut BTreeMap<Vec<u8>, u64>) {
    redis.ask(&["flushall"]);
    let mut subject = Subject::new();
    let lifetimes_ms = (100_000_000, 100_000_000);
    let random = fastrand::Rng::with_seed(seed);
    let mut draw = Draw { random, now_ms: 0, lifetimes_ms, is_wild: false };
    for step in 0..300 {
        subject.now_ms = clock_ms();
        draw.now_ms = subject.now_ms;
        let words = draw.command();
        let slices: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        if replaces_hash(&mut subject, &words) {
            let answer = told(&subject.ask_words(&slices));
            // Unless another condition does not hold, or the command is wrong in another way.
            assert!(answer.starts_with('-') || answer == "nil", "{words:?}: {answer}");
            continue;
        }
        let ours = comparable(&words, subject.ask_words(&slices));
        // For a key that does not exist, Redis does not look at the lifetime.
        if words[0] == b"getex" && told(&ours).starts_with("-ERR invalid expire") {
            continue;
        }
        let theirs = comparable(&words, redis.ask(&words));
        *asked.entry(words[0].clone()).or_default() += 1;
        let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
        let bytes: Vec<_> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
        assert!(
            ours == theirs || is_near(&bytes, &ours, &theirs),
            "step {step}: {words:?}\n  ours:   {ours:?}\n  theirs: {theirs:?}"
        );
    }
}

#[test]
fn answers_are_those_of_redis() {
    let Some(mut redis) = Redis::start() else { return };
    let seeds = match std::env::var("ATOLL_SEED") {
        Ok(seed) => vec![seed.parse().unwrap()],
        Err(_) => (0..60).collect(),
    };
    let mut asked = BTreeMap::new();
    for seed in seeds {
        println!("replay with ATOLL_SEED={seed} cargo test -p atoll-keyspace --test beside_redis");
        run(seed, &mut redis, &mut asked);
    }
    assert!(asked.len() > 40, "only these were asked: {asked:?}");
}
