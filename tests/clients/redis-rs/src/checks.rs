//! The checks: what a client can rely on while the nodes stay the same.

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

type Held = Result<(), Broken>;
type Check = fn(&mut ClusterConnection, &Ring) -> Held;

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
    holds(
        error.code() == Some(code) && error.to_string().contains(says),
        &format!("{error} instead of {code} {says}"),
    )
}

fn set_and_get(client: &mut ClusterConnection, _: &Ring) -> Held {
    same(client.get("absent"), None::<String>)?;
    same(client.set("a", "1"), ok())?;
    same(client.set("a", "2"), ok())?;
    same(client.get("a"), text("2"))
}

fn set_options(client: &mut ClusterConnection, _: &Ring) -> Held {
    let only = |check| SetOptions::default().conditional_set(check);
    same(client.set_options("o", "1", only(ExistenceCheck::NX)), Some(ok()))?;
    same(client.set_options("o", "2", only(ExistenceCheck::NX)), None::<String>)?;
    same(client.set_options("o-absent", "2", only(ExistenceCheck::XX)), None::<String>)?;
    same(client.set_options("o", "3", only(ExistenceCheck::XX)), Some(ok()))?;
    same(client.get_del("o"), text("3"))?;
    same(client.get("o"), None::<String>)
}

fn exists_and_del(client: &mut ClusterConnection, _: &Ring) -> Held {
    same(client.set("e", "1"), ok())?;
    same(client.exists("e"), true)?;
    same(client.del("e"), 1)?;
    same(client.exists("e"), false)?;
    same(client.del("e"), 0)
}

fn numbers(client: &mut ClusterConnection, _: &Ring) -> Held {
    same(client.incr("n", 1), 1)?;
    same(client.incr("n", 5), 6)?;
    same(client.decr("n", 2), 4)?;
    same(client.append("n", "2"), 2)?;
    same(client.strlen("n"), 2)?;
    same(client.get("n"), text("42"))
}

fn expiry(client: &mut ClusterConnection, _: &Ring) -> Held {
    same(client.set_options("x", "1", SetOptions::default().with_expiration(SetExpiry::EX(100))), ok())?;
    let left: i64 = client.ttl("x")?;
    holds((91..=100).contains(&left), "it lives for another time")?;
    same(client.persist("x"), true)?;
    same(client.ttl("x"), -1)?;
    same(client.expire("x", 200), true)?;
    let left: i64 = client.ttl("x")?;
    holds((191..=200).contains(&left), "it lives for another time")?;
    same(client.pexpire("x", 50), true)?;
    let until = Instant::now() + Duration::from_secs(10);
    while client.get::<_, Option<String>>("x")?.is_some() {
        holds(Instant::now() < until, "it does not expire")?;
    }
    same(client.ttl("x"), -2)
}

fn hashes(client: &mut ClusterConnection, _: &Ring) -> Held {
    let both = |x: &str| HashMap::from([("x".to_owned(), x.to_owned()), ("y".to_owned(), "2".to_owned())]);
    same(cmd("HSET").arg("h").arg(&["x", "1", "y", "2"]).query(client), 2)?;
    same(client.hset("h", "x", "3"), 0)?;
    same(client.hget("h", "x"), text("3"))?;
    same(client.hget("h", "z"), None::<String>)?;
    same(client.hgetall("h"), both("3"))?;
    same(client.hmget("h", &["y", "z"]), vec![text("2"), None])?;
    same(client.hexists("h", "y"), true)?;
    same(client.hlen("h"), 2)?;
    same(client.hincr("h", "x", 4), 7)?;
    same(client.hdel("h", "x"), 1)?;
    same(client.hkeys("h"), vec!["y".to_owned()])?;
    same(cmd("TYPE").arg("h").query(client), "hash".to_owned())
}

fn several_keys(client: &mut ClusterConnection, _: &Ring) -> Held {
    same(client.mset(&[("{t}1", "1"), ("{t}2", "2")]), ok())?;
    same(client.mget(&["{t}1", "{t}2", "{t}3"]), vec![text("1"), text("2"), None])?;
    same(client.exists(&["{t}1", "{t}2", "{t}3"]), 2)?;
    same(client.del(&["{t}1", "{t}2"]), 2)
}

/// Each node scans only its own keys.
fn scan(client: &mut ClusterConnection, ring: &Ring) -> Held {
    let mut expected: Vec<String> = (0..200).map(|number| format!("scan-{number}")).collect();
    for key in &expected {
        same(client.set(key, "1"), ok())?;
    }
    let mut found: Vec<String> = Vec::new();
    for node in &ring.nodes {
        let mut cursor = 0u64;
        loop {
            let mut page = cmd("SCAN");
            page.arg(cursor).arg("MATCH").arg("scan-*");
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

fn by_address(node: &str) -> Result<RoutingInfo, Broken> {
    let (host, port) = node.split_once(':').ok_or("a node without a port")?;
    let node = SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse()? };
    Ok(RoutingInfo::SingleNode(node))
}

fn read<T: FromRedisValue>(answer: RedisResult<redis::Value>) -> Result<T, Broken> {
    Ok(redis::from_redis_value(answer?)?)
}

fn pipelines(client: &mut ClusterConnection, _: &Ring) -> Held {
    let (mut write, mut read) = (cluster_pipe(), cluster_pipe());
    for number in 0..200 {
        write.cmd("SET").arg(format!("pipe-{number}")).arg(number);
        read.cmd("GET").arg(format!("pipe-{number}"));
    }
    same(write.query(client), vec![ok(); 200])?;
    same(read.query(client), (0..200).collect::<Vec<i64>>())
}

/// A command is sent to the node of another slot; the client must follow the redirection that it gets there.
fn moved(client: &mut ClusterConnection, ring: &Ring) -> Held {
    let slot: u16 = cmd("CLUSTER").arg("KEYSLOT").arg("moved").query(client)?;
    let get = cmd("GET").arg("moved").clone();
    let mut told = Vec::new();
    for node in &ring.nodes {
        let url = format!("redis://:{}@{node}/", ring.token);
        let mut alone = redis::Client::open(url)?.get_connection()?;
        if let Err(error) = get.query::<Option<String>>(&mut alone) {
            same(Ok(error.kind()), ErrorKind::Server(ServerErrorKind::Moved))?;
            let (host, port) = error.redirect_node().ok_or("it is not said where to")?;
            told.push((format!("{host}:{port}"), node.clone()));
        }
    }
    same(Ok(told.len()), 2)?;
    holds(told.iter().all(|(leader, wrong)| leader == &told[0].0 && leader != wrong), "nodes disagree")?;
    let set = cmd("SET").arg("moved").arg("1").clone();
    for other in (0..16_384).step_by(512) {
        let route = Route::new(other, SlotAddr::Master);
        let routing = RoutingInfo::SingleNode(SingleNodeRoutingInfo::SpecificNode(route));
        same(client.route_command(&set, routing.clone()).map(|answer| answer == redis::Value::Okay), true)?;
    }
    holds(slot < 16_384, "a slot of another cluster")?;
    same(client.get("moved"), text("1"))
}

fn wrong_type(client: &mut ClusterConnection, _: &Ring) -> Held {
    client.hset::<_, _, _, ()>("w", "x", "1")?;
    refused(client.incr::<_, _, i64>("w", 1), "WRONGTYPE", "")?;
    same(client.set("no-number", "x"), ok())?;
    refused(client.incr::<_, _, i64>("no-number", 1), "ERR", "not an integer")
}

fn syntax_errors(client: &mut ClusterConnection, ring: &Ring) -> Held {
    let set = cmd("SET").arg("s").arg("1").arg("NOSUCH").query::<String>(client);
    refused(set, "ERR", "syntax error")?;
    let get = cmd("GET").arg("s").arg("s2").query::<String>(client);
    refused(get, "ERR", "wrong number of arguments")?;
    let unknown = client.route_command(cmd("NOSUCH").arg("s"), by_address(&ring.nodes[0])?);
    refused(unknown, "ERR", "unknown command")
}

fn large_values(client: &mut ClusterConnection, _: &Ring) -> Held {
    let large: Vec<u8> = (0..=255).cycle().take(4 << 20).collect();
    same(client.set("large", &large), ok())?;
    same(client.get::<_, Vec<u8>>("large").map(|found| found == large), true)
}

fn empty_and_binary(client: &mut ClusterConnection, _: &Ring) -> Held {
    same(client.set("empty", ""), ok())?;
    same(client.get("empty"), text(""))?;
    same(client.exists("empty"), true)?;
    let (key, value) = (b"\x00\xff\r\n".as_slice(), b"\r\n\x00\xff$-1\r\n".as_slice());
    same(client.set(key, value), ok())?;
    same(client.get(key), value.to_vec())
}

fn wrong_token(_: &mut ClusterConnection, ring: &Ring) -> Held {
    let alone = redis::Client::open(format!("redis://:wrong@{}/", ring.nodes[0]))?;
    let kind = alone.get_connection().err().map(|error| error.kind());
    same(Ok(kind), Some(ErrorKind::AuthenticationFailed))
}

fn both_protocols(client: &mut ClusterConnection, ring: &Ring) -> Held {
    client.hset::<_, _, _, ()>("both", "x", "1")?;
    for protocol in [ProtocolVersion::RESP2, ProtocolVersion::RESP3] {
        let mut other = ring.client(Some(protocol))?.get_connection()?;
        same(other.hgetall("both"), HashMap::from([("x".to_owned(), "1".to_owned())]))?;
        same(other.get("absent"), None::<String>)?;
    }
    Ok(())
}
