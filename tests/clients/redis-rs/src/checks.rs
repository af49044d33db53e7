//! The checks: what a client can rely on, whether nodes stay the same or not.

use crate::again::{Turn, is_later, leaders};
use crate::{Broken, Ring};
use redis::cluster::{ClusterConnection, cluster_pipe};
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{
    Commands, ErrorKind, ExistenceCheck, FromRedisValue, ProtocolVersion, RedisResult, ServerErrorKind, SetExpiry,
    SetOptions, cmd,
};
use std::collections::HashMap;
use std::fmt::Debug;
use std::time::{Duration, Instant};

pub type Held = Result<(), Broken>;
pub type Check = fn(&mut ClusterConnection, &Ring, Turn) -> Held;

pub const CHECKS: &[(&str, Check)] = &[
    ("set-and-get", set_and_get),
    ("set-options", set_options),
    ("exists-and-del", exists_and_del),
    ("numbers", numbers),
    ("expiry", expiry),
    ("hashes", hashes),
    ("several-keys", several_keys),
    ("scan", scan),
    ("pipelines", pipelines),
    ("moved", moved),
    ("wrong-type", wrong_type),
    ("syntax-errors", syntax_errors),
    ("large-values", large_values),
    ("empty-and-binary", empty_and_binary),
    ("wrong-token", wrong_token),
    ("both-protocols", both_protocols),
];

/// Checks that the answer, read as the expected type, is the expected one.
fn same<T: PartialEq + Debug>(actual: RedisResult<T>, expected: T) -> Held {
    let actual = actual?;
    if actual == expected {
        return Ok(());
    }
    let short = |value: &T| format!("{value:?}").chars().take(200).collect::<String>();
    Err(format!("{} instead of {}", short(&actual), short(&expected)).into())
}

fn holds(what: bool, otherwise: &str) -> Held {
    if what { Ok(()) } else { Err(otherwise.into()) }
}

fn ok() -> String {
    "OK".to_owned()
}

fn text(value: &str) -> Option<String> {
    Some(value.to_owned())
}

/// Checks that a node refuses it, with the client's kind of error for answers of nodes.
fn refused<T: Debug>(answer: RedisResult<T>, code: &str, says: &str) -> Held {
    let error = answer.err().ok_or("no error")?;
    let is_it = error.code() == Some(code) && error.to_string().contains(says);
    if !is_it && is_later(&error) {
        return Err(error.into());
    }
    holds(is_it, &format!("{error} instead of {code} {says}"))
}

fn set_and_get(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let (key, absent) = (turn.key("a"), turn.key("absent"));
    same(client.get(&absent), None::<String>)?;
    same(client.set(&key, "1"), ok())?;
    same(client.set(&key, "2"), ok())?;
    same(client.get(&key), text("2"))
}

fn set_options(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let only = |check| SetOptions::default().conditional_set(check);
    let (key, absent) = (turn.key("o"), turn.key("o-absent"));
    turn.once(client.set_options(&key, "1", only(ExistenceCheck::NX)), Some(ok()), None)?;
    same(client.set_options(&key, "2", only(ExistenceCheck::NX)), None::<String>)?;
    same(client.set_options(&absent, "2", only(ExistenceCheck::XX)), None::<String>)?;
    same(client.set_options(&key, "3", only(ExistenceCheck::XX)), Some(ok()))?;
    turn.once(client.get_del(&key), text("3"), None)?;
    same(client.get(&key), None::<String>)
}

fn exists_and_del(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let key = turn.key("e");
    same(client.set(&key, "1"), ok())?;
    same(client.exists(&key), true)?;
    turn.once(client.del(&key), 1, 0)?;
    same(client.exists(&key), false)?;
    same(client.del(&key), 0)
}

fn numbers(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let key = turn.key("n");
    turn.once(client.incr(&key, 1), 1, 2)?;
    turn.once(client.incr(&key, 5), 6, 11)?;
    turn.once(client.decr(&key, 2), 4, 2)?;
    turn.once(client.append(&key, "2"), 2, 3)?;
    same(client.strlen(&key), 2)?;
    same(client.get(&key), text("42"))
}

fn expiry(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let key = turn.key("x");
    let began = Instant::now();
    same(client.set_options(&key, "1", SetOptions::default().with_expiration(SetExpiry::EX(100))), ok())?;
    lives(client.ttl(&key)?, 100, began)?;
    turn.once(client.persist(&key), true, false)?;
    same(client.ttl(&key), -1)?;
    let began = Instant::now();
    same(client.expire(&key, 200), true)?;
    lives(client.ttl(&key)?, 200, began)?;
    turn.once(client.pexpire(&key, 50), true, false)?;
    let until = Instant::now() + Duration::from_secs(10);
    while client.get::<_, Option<String>>(&key)?.is_some() {
        holds(Instant::now() < until, "it does not expire")?;
    }
    same(client.ttl(&key), -2)
}

/// Checks the time that is left; a command may have waited for another node.
fn lives(left: i64, seconds: i64, began: Instant) -> Held {
    let waited = i64::try_from(began.elapsed().as_secs())?;
    holds((seconds - 9 - waited..=seconds).contains(&left), "it lives for another time")
}

fn hashes(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let both = |x: &str| HashMap::from([("x".to_owned(), x.to_owned()), ("y".to_owned(), "2".to_owned())]);
    let key = turn.key("h");
    turn.once(cmd("HSET").arg(&key).arg(&["x", "1", "y", "2"]).query(client), 2, 0)?;
    same(client.hset(&key, "x", "3"), 0)?;
    same(client.hget(&key, "x"), text("3"))?;
    same(client.hget(&key, "z"), None::<String>)?;
    same(client.hgetall(&key), both("3"))?;
    same(client.hmget(&key, &["y", "z"]), vec![text("2"), None])?;
    same(client.hexists(&key, "y"), true)?;
    same(client.hlen(&key), 2)?;
    turn.once(client.hincr(&key, "x", 4), 7, 11)?;
    turn.once(client.hdel(&key, "x"), 1, 0)?;
    same(client.hkeys(&key), vec!["y".to_owned()])?;
    same(cmd("TYPE").arg(&key).query(client), "hash".to_owned())
}

fn several_keys(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let keys = [1, 2, 3].map(|number| turn.tagged("t", number));
    let [one, two, absent] = keys.each_ref().map(String::as_str);
    same(client.mset(&[(one, "1"), (two, "2")]), ok())?;
    same(client.mget(&[one, two, absent]), vec![text("1"), text("2"), None])?;
    same(client.exists(&[one, two, absent]), 2)?;
    turn.once(client.del(&[one, two]), 2, 0)
}

/// Each node scans only its own keys.
fn scan(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let mut expected: Vec<String> = (0..200).map(|number| turn.key(&format!("scan-{number}"))).collect();
    for key in &expected {
        same(client.set(key, "1"), ok())?;
    }
    let pattern = turn.key("scan-*");
    let mut found: Vec<String> = Vec::new();
    for node in &nodes_of(client)? {
        let mut cursor = 0u64;
        loop {
            let mut page = cmd("SCAN");
            page.arg(cursor).arg("MATCH").arg(&pattern);
            let keys: Vec<String>;
            (cursor, keys) = read(client.route_command(&page, by_address(node)?))?;
            found.extend(keys);
            if cursor == 0 {
                break;
            }
        }
    }
    expected.sort();
    found.sort();
    same(Ok(found), expected)
}

/// The nodes that lead slots.
fn nodes_of(client: &mut ClusterConnection) -> Result<Vec<String>, Broken> {
    let mut nodes: Vec<String> = leaders(client)?.into_iter().map(|(_, address)| address).collect();
    nodes.sort();
    nodes.dedup();
    Ok(nodes)
}

fn by_address(node: &str) -> Result<RoutingInfo, Broken> {
    let (host, port) = node.split_once(':').ok_or("a node without a port")?;
    let node = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse()? };
    Ok(RoutingInfo::SingleNode(node))
}

fn read<T: FromRedisValue>(answer: RedisResult<redis::Value>) -> Result<T, Broken> {
    Ok(redis::from_redis_value(answer?)?)
}

fn pipelines(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let (mut write, mut read) = (cluster_pipe(), cluster_pipe());
    for number in 0..200 {
        let key = turn.key(&format!("pipe-{number}"));
        write.cmd("SET").arg(&key).arg(number);
        read.cmd("GET").arg(&key);
    }
    same(write.query(client), vec![ok(); 200])?;
    same(read.query(client), (0..200).collect::<Vec<i64>>())
}

/// A command is sent to the node of another slot; the client must follow the redirection that it gets there.
fn moved(client: &mut ClusterConnection, ring: &Ring, turn: Turn) -> Held {
    let key = turn.key("moved");
    let slot: u16 = cmd("CLUSTER").arg("KEYSLOT").arg(&key).query(client)?;
    let get = cmd("GET").arg(&key).clone();
    let nodes = nodes_of(client)?;
    let mut told = Vec::new();
    for node in &nodes {
        let url = format!("redis://:{}@{node}/", ring.token);
        let mut alone = redis::Client::open(url)?.get_connection()?;
        if let Err(error) = get.query::<Option<String>>(&mut alone) {
            if error.kind() != ErrorKind::Server(ServerErrorKind::Moved) {
                return Err(error.into());
            }
            let (host, port) = error.redirect_node().ok_or("it is not said where to")?;
            told.push((format!("{host}:{port}"), node.clone()));
        }
    }
    same(Ok(told.len() + 1), nodes.len())?;
    holds(told.iter().all(|(leader, wrong)| leader == &told[0].0 && leader != wrong), "nodes disagree")?;
    let set = cmd("SET").arg(&key).arg("1").clone();
    for other in (0..16_384).step_by(512) {
        let route = Route::new(other, SlotAddr::Master);
        let routing = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
        same(client.route_command(&set, routing.clone()).map(|answer| answer == redis::Value::Okay), true)?;
    }
    holds(slot < 16_384, "a slot of another cluster")?;
    same(client.get(&key), text("1"))
}

fn wrong_type(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let (hash, word) = (turn.key("w"), turn.key("no-number"));
    client.hset::<_, _, _, ()>(&hash, "x", "1")?;
    refused(client.incr::<_, _, i64>(&hash, 1), "WRONGTYPE", "")?;
    same(client.set(&word, "x"), ok())?;
    refused(client.incr::<_, _, i64>(&word, 1), "ERR", "not an integer")
}

fn syntax_errors(client: &mut ClusterConnection, ring: &Ring, turn: Turn) -> Held {
    let key = turn.key("s");
    let set = cmd("SET").arg(&key).arg("1").arg("NOSUCH").query::<String>(client);
    refused(set, "ERR", "syntax error")?;
    let get = cmd("GET").arg(&key).arg("s2").query::<String>(client);
    refused(get, "ERR", "wrong number of arguments")?;
    let unknown = client.route_command(cmd("NOSUCH").arg(&key), by_address(given(ring, turn))?);
    refused(unknown, "ERR", "unknown command")
}

/// Another of the nodes in each attempt: one may be gone.
fn given(ring: &Ring, turn: Turn) -> &str {
    &ring.nodes[turn.number % ring.nodes.len()]
}

fn large_values(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let key = turn.key("large");
    let large: Vec<u8> = (0..=255).cycle().take(4 << 20).collect();
    same(client.set(&key, &large), ok())?;
    same(client.get::<_, Vec<u8>>(&key).map(|found| found == large), true)?;
    turn.once(client.del(&key), 1, 0)
}

fn empty_and_binary(client: &mut ClusterConnection, _: &Ring, turn: Turn) -> Held {
    let empty = turn.key("empty");
    same(client.set(&empty, ""), ok())?;
    same(client.get(&empty), text(""))?;
    same(client.exists(&empty), true)?;
    let binary = [turn.key("").as_bytes(), b"\x00\xff\r\n"].concat();
    let (key, value) = (binary.as_slice(), b"\r\n\x00\xff$-1\r\n".as_slice());
    same(client.set(key, value), ok())?;
    same(client.get(key), value.to_vec())
}

fn wrong_token(_: &mut ClusterConnection, ring: &Ring, turn: Turn) -> Held {
    let alone = redis::Client::open(format!("redis://:wrong@{}/", given(ring, turn)))?;
    let error = alone.get_connection().err().ok_or("a wrong token was let in")?;
    if is_later(&error) {
        return Err(error.into());
    }
    same(Ok(error.kind()), ErrorKind::AuthenticationFailed)
}

fn both_protocols(client: &mut ClusterConnection, ring: &Ring, turn: Turn) -> Held {
    let (key, absent) = (turn.key("both"), turn.key("absent"));
    client.hset::<_, _, _, ()>(&key, "x", "1")?;
    for protocol in [ProtocolVersion::RESP2, ProtocolVersion::RESP3] {
        let mut other = ring.client(Some(protocol))?.get_connection()?;
        same(other.hgetall(&key), HashMap::from([("x".to_owned(), "1".to_owned())]))?;
        same(other.get(&absent), None::<String>)?;
    }
    Ok(())
}
