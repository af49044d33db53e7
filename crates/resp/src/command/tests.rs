//! Requests as a person would type them, and their errors.

use super::*;
use crate::{Limits, RequestParser, write_request};

/// Parses a request that is typed like this.
fn with<R>(line: &str, show: impl FnOnce(Result<Command<'_>, CommandError>) -> R) -> R {
    let mut parser = RequestParser::new(Limits::default());
    let line = format!("{line}\r\n");
    let request = parser.parse(line.as_bytes()).unwrap().unwrap();
    let mut bytes = Vec::new();
    write_request(&mut bytes, &request.iter().collect::<Vec<_>>());
    // The same as an array.
    let mut parser = RequestParser::new(Limits::default());
    let request = parser.parse(&bytes).unwrap().unwrap();
    show(Command::of(&request))
}

fn assert_is(line: &str, expected: Command<'_>) {
    with(line, |found| assert_eq!(found, Ok(expected), "{line}"));
}

fn error(line: &str) -> String {
    with(line, |found| match found {
        Err(error) => format!("{} {error}", error.word()),
        Ok(command) => panic!("{line} is {command:?}"),
    })
}

fn set<'a>(condition: SetCondition<'a>, lifetime: SetLifetime, answer: SetAnswer) -> Command<'a> {
    Command::Set(SetRequest { key: b"k", value: b"v", condition, lifetime, answer })
}

#[test]
fn a_set_has_options_in_any_order() {
    use SetAnswer::{Former, Ok, Whether};
    use SetCondition::{Absent, Always, Equals, Present};
    use SetLifetime::{Forever, Kept, Until};
    assert_is("SET k v", set(Always, Forever, Ok));
    assert_is("set k v nx ex 10", set(Absent, Until(Deadline::After(10_000)), Ok));
    assert_is("set k v PX 10 XX GET", set(Present, Until(Deadline::After(10)), Former));
    assert_is("set k v EXAT 10", set(Always, Until(Deadline::At(10_000)), Ok));
    assert_is("set k v PXAT 10 get", set(Always, Until(Deadline::At(10)), Former));
    assert_is("set k v IFEQ x KEEPTTL", set(Equals(b"x"), Kept, Ok));
    assert_is("setnx k v", set(Absent, Forever, Whether));
    assert_is("getset k v", set(Always, Forever, Former));
    assert_is("setex k 7 v", set(Always, Until(Deadline::After(7000)), Ok));
    assert_is("psetex k 7 v", set(Always, Until(Deadline::After(7)), Ok));
    // The same option twice is not a contradiction: the last one counts, and no other is looked at.
    assert_is("set k v ex 10 ex 20", set(Always, Until(Deadline::After(20_000)), Ok));
    assert_is("set k v pxat x nx pxat 20", set(Absent, Until(Deadline::At(20)), Ok));
    assert_is("set k v keepttl keepttl", set(Always, Kept, Ok));
    for line in [
        "set k v nx xx",
        "set k v ex 1 exat 1",
        "set k v ex 1 ex 1 keepttl",
        "set k v ex 1 ex",
        "set k v ex 1 px 1",
        "set k v ex",
        "set k v keepttl ex 1",
        "set k v foo",
        "set k v ifeq",
    ] {
        assert_eq!(error(line), "ERR syntax error", "{line}");
    }
    assert_eq!(error("set k v ex 0"), "ERR invalid expire time in 'set' command");
    assert_eq!(error("set k v ex 9223372036854775"), "ERR invalid expire time in 'set' command".to_owned());
    assert_eq!(error("set k v px x"), "ERR value is not an integer or out of range");
    assert_eq!(error("setex k -1 v"), "ERR invalid expire time in 'setex' command");
}

#[test]
fn values_are_read_changed_and_cut() {
    assert_is("GET k", Command::Get(b"k"));
    assert_is("incr k", Command::Increment { key: b"k", by: 1 });
    assert_is("decrby k -5", Command::Increment { key: b"k", by: 5 });
    assert_is("getrange k 0 -1", Command::GetRange { key: b"k", start: 0, end: -1 });
    assert_is("mget a b", Command::GetMany(vec![b"a", b"b"]));
    assert_is("mset a 1 b 2", Command::SetMany(vec![(b"a", b"1"), (b"b", b"2")]));
    assert_is("getex k", Command::GetExpire { key: b"k", lifetime: SetLifetime::Kept });
    with("getex k", |command| assert!(command.unwrap().only_reads()));
    for line in ["getex k persist", "getex k ex 5", "set k v keepttl get", "getdel k"] {
        with(line, |command| assert!(!command.unwrap().only_reads(), "{line}"));
    }
    assert_is("getex k persist", Command::GetExpire { key: b"k", lifetime: SetLifetime::Forever });
    assert_eq!(error("mset a 1 b"), "ERR wrong number of arguments for 'mset' command");
    assert_eq!(error("decrby k -9223372036854775808"), "ERR decrement would overflow");
    assert_eq!(error("incrby k 1.5"), "ERR value is not an integer or out of range");
    assert_is("getex k persist persist", Command::GetExpire { key: b"k", lifetime: SetLifetime::Forever });
    let lifetime = SetLifetime::Until(Deadline::After(7));
    assert_is("getex k px 5 px 7", Command::GetExpire { key: b"k", lifetime });
    assert_eq!(error("getex k ex 1 persist"), "ERR syntax error");
    assert_eq!(error("getex k keepttl"), "ERR syntax error");
}

#[test]
fn keys_are_deleted_now_or_later() {
    let expire = |deadline, rule| Command::Expire { key: b"k", deadline, rule };
    let always = ExpiryRule::default();
    assert_is("del a b", Command::Delete(vec![b"a", b"b"]));
    assert_is("delifeq k v", Command::DeleteIfEqual { key: b"k", value: b"v" });
    assert_is("delex k ifeq v", Command::DeleteIfEqual { key: b"k", value: b"v" });
    assert_is("delex k", Command::Delete(vec![b"k"]));
    assert_is("expire k 3", expire(Deadline::After(3000), always));
    assert_is(
        "pexpireat k 3 XX GT",
        expire(Deadline::At(3), ExpiryRule { if_some: true, if_later: true, ..always }),
    );
    assert_is("expire k -3", expire(Deadline::After(-3000), always));
    assert_is("pttl k", Command::Lifetime { key: b"k", unit: Unit::Milliseconds, is_absolute: false });
    assert_eq!(
        error("expire k 1 nx gt"),
        "ERR NX and XX, GT or LT options at the same time are not compatible"
    );
    assert_eq!(error("expire k 1 gt lt"), "ERR GT and LT options at the same time are not compatible");
    assert_eq!(error("expire k 1 foo"), "ERR Unsupported option foo");
    assert_eq!(error("expire k 9223372036854775807"), "ERR invalid expire time in 'expire' command");
    assert_eq!(error("delex k ifeq v w"), "ERR syntax error");
}

#[test]
fn fields_are_set_and_read() {
    let pairs = vec![(b"f".as_slice(), b"1".as_slice())];
    assert_is("hset k f 1", Command::HashSet { key: b"k", pairs: pairs.clone(), says_ok: false });
    assert_is("hmset k f 1", Command::HashSet { key: b"k", pairs, says_ok: true });
    assert_is("hvals k", Command::HashAll { key: b"k", fields: false, values: true });
    assert_is("hincrby k f -2", Command::HashIncrement { key: b"k", field: b"f", by: -2 });
    assert_eq!(error("hset k f 1 g"), "ERR wrong number of arguments for 'hset' command");
}

#[test]
fn a_connection_says_who_it_is_and_its_password_is_not_shown() {
    let authentication = Authentication { user: Some(b"u"), password: b"secret" };
    assert!(!format!("{authentication:?}").contains("secret"));
    let hello = Hello {
        protocol: Some(crate::Protocol::Resp3),
        authentication: Some(authentication),
        name: Some(b"n"),
    };
    assert_is("HELLO 3 AUTH u secret SETNAME n", Command::Hello(hello));
    assert_is("hello", Command::Hello(Hello::default()));
    assert_is("auth p", Command::Auth(Authentication { user: None, password: b"p" }));
    assert_is("client setinfo LIB-NAME x", Command::Client(ClientRequest::LibraryName(b"x")));
    assert_eq!(error("hello 4"), "NOPROTO unsupported protocol version");
    assert_eq!(error("hello x"), "ERR Protocol version is not an integer or out of range");
    assert_eq!(error("hello 3 auth u"), "ERR Syntax error in HELLO option 'auth'");
    assert_eq!(error("select 16"), "ERR DB index is out of range");
    assert_eq!(
        error("client setname 'a b'"),
        "ERR Client names cannot contain spaces, newlines or special characters."
    );
    let list = |selection| Command::Client(ClientRequest::List(selection));
    for line in ["client list", "client list type normal", "CLIENT LIST TYPE Normal"] {
        assert_is(line, list(ClientSelection::All));
    }
    assert_is("client list type replica", list(ClientSelection::Ids(Vec::new())));
    assert_is("client list id 7 -1 3 7", list(ClientSelection::Ids(vec![3, 7])));
    assert_eq!(error("client list type foo"), "ERR Unknown client type 'foo'");
    assert_eq!(error("client list id 1 x"), "ERR Invalid client ID");
    for line in ["client list foo", "client list type", "client list id", "client list type normal normal"] {
        assert_eq!(error(line), "ERR syntax error", "{line}");
    }
    for part in ["no-evict", "no-touch"] {
        assert_is(&format!("client {part} ON"), Command::Client(ClientRequest::Accepted));
        assert_is(&format!("client {part} off"), Command::Client(ClientRequest::Accepted));
        assert_eq!(error(&format!("client {part} foo")), "ERR syntax error");
    }
    assert_eq!(error("client foo"), "ERR unknown subcommand 'foo'. Try CLIENT HELP.");
}

#[test]
fn clusters_and_commands_are_asked_about() {
    assert_is("cluster keyslot a", Command::Cluster(ClusterRequest::KeySlot(b"a")));
    assert_is("cluster getkeysinslot 5 10", Command::Cluster(ClusterRequest::Keys { slot: 5, count: 10 }));
    assert_is("command getkeys mset a 1 b 2", Command::Command(CommandRequest::Keys(vec![b"a", b"b"])));
    let scan = ScanRequest { cursor: 7, pattern: Some(b"a*"), count: 100, kind: None };
    assert_is("scan 7 match a* count 100", Command::Scan(scan));
    assert_is("wait 2 0", Command::Wait { copies: 2, timeout: 0 });
    assert_is("cluster countkeysinslot 16383", Command::Cluster(ClusterRequest::CountKeys(16_383)));
    for slot in ["16384", "-1"] {
        assert_eq!(error(&format!("cluster countkeysinslot {slot}")), "ERR Invalid slot");
        let told = "ERR Invalid slot or number of keys";
        assert_eq!(error(&format!("cluster getkeysinslot {slot} 1")), told);
    }
    assert_eq!(error("cluster getkeysinslot 0 -1"), "ERR Invalid slot or number of keys");
    assert_eq!(error("cluster getkeysinslot 16384 x"), "ERR value is not an integer or out of range");
    assert_eq!(error("cluster slots x"), "ERR wrong number of arguments for 'cluster|slots' command");
    assert_eq!(error("scan x"), "ERR invalid cursor");
    assert_eq!(error("command getkeys ping a"), "ERR The command has no key arguments");
    assert_eq!(error("wait 1 -1"), "ERR timeout is negative");
}

#[test]
fn what_is_no_command_is_quoted_in_short() {
    assert_eq!(error("foo a 'b c'"), "ERR unknown command 'foo', with args beginning with: 'a' 'b c' ");
    assert_eq!(error("get"), "ERR wrong number of arguments for 'get' command");
    assert_eq!(error("GET a b"), "ERR wrong number of arguments for 'get' command");
    let long = error(&format!("foo {} b", "a".repeat(300)));
    assert!(long.len() < 200 && !long.contains("'b'"), "{long}");
}

#[test]
fn a_latency_class_is_one_of_three_or_none() {
    assert_is("AT.CLASS 500", Command::Class(Some(LatencyClass::FiveHundred)));
    assert_is("at.class 50", Command::Class(Some(LatencyClass::Fifty)));
    assert_is("AT.CLASS 5", Command::Class(Some(LatencyClass::Five)));
    assert_is("AT.CLASS none", Command::Class(Some(LatencyClass::None)));
    assert_is("AT.CLASS", Command::Class(None));
    let wrong = "ERR a latency class is 5, 50 or 500, in milliseconds, or NONE";
    for line in ["AT.CLASS 499", "AT.CLASS -5", "AT.CLASS soon", "AT.CLASS 99999999999999999999"] {
        assert_eq!(error(line), wrong, "{line}");
    }
    assert_eq!(error("AT.CLASS 5 50"), "ERR syntax error");
}

#[test]
fn a_keyspace_is_made_with_the_rules_that_are_named_and_no_others() {
    let create = |copies, in_sync_min, class, durability| {
        let name = &b"k"[..];
        Command::Keyspace(KeyspaceRequest::Create { name, copies, in_sync_min, class, durability })
    };
    assert_is("AT.KEYSPACE CREATE k", create(0, 0, LatencyClass::None, None));
    let synced = Some(&b"synced"[..]);
    assert_is("at.keyspace create k durability synced", create(0, 0, LatencyClass::None, synced));
    let all = "AT.KEYSPACE CREATE k DURABILITY synced CLASS 5 MINSYNC 2 COPIES 3";
    assert_is(all, create(3, 2, LatencyClass::Five, synced));
    assert_eq!(error("AT.KEYSPACE CREATE k DURABILITY"), "ERR syntax error");
}

fn wait<'a>(field: Option<&'a [u8]>, expected: Expected<&'a [u8]>) -> Command<'a> {
    Command::Watch(WatchRequest { id: None, milliseconds: 5, key: b"k", field, expected })
}

#[test]
fn a_wait_is_for_a_field_or_for_the_string_at_its_key() {
    let (f, v) = (Some(&b"f"[..]), Some(&b"v"[..]));
    assert_is("AT.WAIT 5 k f EQ v", wait(f, Expected::Equals(v)));
    assert_is("at.wait 5 k f ne v", wait(f, Expected::Differs(v)));
    assert_is("AT.WAIT 5 k AS STRING EQ v", wait(None, Expected::Equals(v)));
    assert_is("at.wait 5 k as string ne v", wait(None, Expected::Differs(v)));
    assert_is("AT.WAIT 5 k AS STRING ABSENT", wait(None, Expected::Equals(None)));
    assert_is("AT.WAIT 5 k AS STRING PRESENT", wait(None, Expected::Differs(None)));
    // Values and fields may be words of the syntax.
    for word in ["ABSENT", "PRESENT", "EQ", "NE", "AS", "STRING"] {
        let bytes = Some(word.as_bytes());
        assert_is(&format!("AT.WAIT 5 k AS STRING EQ {word}"), wait(None, Expected::Equals(bytes)));
        assert_is(&format!("AT.WAIT 5 k {word} NE {word}"), wait(bytes, Expected::Differs(bytes)));
        assert_is(&format!("AT.WAIT 5 k {word} PRESENT"), wait(bytes, Expected::Differs(None)));
    }
    let expected = Expected::Equals(v);
    let watch = WatchRequest { id: Some(7), milliseconds: 5, key: b"k", field: None, expected };
    assert_is("AT.WATCH 7 5 k AS STRING EQ v", Command::Watch(watch));
    for line in ["AT.WAIT 5 k AS STRING EQ v", "AT.WATCH 7 5 k AS STRING EQ v"] {
        let keys = CommandRequest::Keys(vec![b"k"]);
        assert_is(&format!("COMMAND GETKEYS {line}"), Command::Command(keys));
    }
}

#[test]
fn a_wait_that_cannot_be_told_says_what_follows_a_key() {
    let follows = "a key is followed by a field or AS STRING, then EQ value, NE value, ABSENT or PRESENT";
    for line in ["AT.WAIT 5 run:7 EQ done", "AT.WAIT 5 k AS STRING IS v", "AT.WATCH 7 5 k AS STRINGS EQ v"] {
        assert_eq!(error(line), format!("ERR syntax error: {follows}"), "{line}");
    }
    for line in [
        "AT.WAIT 5 k AS STRING",
        "AT.WAIT 5 k AS STRING EQ",
        "AT.WAIT 5 k AS STRING EQ v w",
        "AT.WAIT 5 k AS STRING ABSENT v",
        "AT.WATCH 7 5 k AS STRING NE",
    ] {
        assert_eq!(error(line), "ERR syntax error", "{line}");
    }
    for (line, name) in [
        ("AT.WAIT 5 k AS", "at.wait"),
        ("AT.WAIT 5 k PRESENT", "at.wait"),
        ("AT.WATCH 7 5 k AS", "at.watch"),
        ("AT.WATCH 7 5 k PRESENT", "at.watch"),
    ] {
        assert_eq!(error(line), format!("ERR wrong number of arguments for '{name}' command"), "{line}");
    }
    assert_eq!(error("AT.WAIT soon k AS STRING ABSENT"), "ERR value is not an integer or out of range");
    assert_eq!(error("AT.WATCH -7 5 k AS STRING ABSENT"), "ERR value is not an integer or out of range");
}

#[test]
fn a_table_is_asked_for_by_the_version_that_a_node_named() {
    let version = TableVersion { of: b"00ab.0", number: 42 };
    assert_eq!(version.text(), b"00ab.0.42");
    assert_is("AT.TABLE", Command::SlotTable(None));
    assert_is("at.table 00ab.0.42", Command::SlotTable(Some(version)));
    assert_eq!(error("AT.TABLE 00ab.0.42 00ab.0.43"), "ERR syntax error");
    let wrong = "ERR a version is what AT.TABLE returned, unchanged";
    for text in ["42", ".42", "00ab.0.", "00ab.0.-1", "00ab.0.042", "00ab.0.x", "a.18446744073709551615"] {
        assert_eq!(error(&format!("AT.TABLE {text}")), wrong, "{text}");
    }
}

#[test]
fn versions_of_two_rings_or_keyspaces_do_not_compare() {
    let of = |text: &'static str| TableVersion::read(text.as_bytes()).unwrap();
    assert!(of("00ab.0.42").is_at_least(&of("00ab.0.42")));
    assert!(of("00ab.0.42").is_at_least(&of("00ab.0.9")), "they are numbers");
    assert!(!of("00ab.0.9").is_at_least(&of("00ab.0.42")));
    for other in ["00ac.0.1", "00ab.1.1", "00ab.1"] {
        assert!(!of("00ab.0.42").is_at_least(&of(other)), "{other}");
    }
}

#[test]
fn a_pattern_is_no_longer_than_one_that_is_matched_in_little_time() {
    for command in ["SCAN", "AT.SCAN"] {
        let of = |bytes: usize| format!("{command} 0 COUNT 5 MATCH {}", "a".repeat(bytes));
        let with_star = |bytes: usize, behind: &str| format!("{}*{behind}", of(bytes));
        with(&with_star(1022, "b"), |found| assert!(found.is_ok()));
        let refused = "allowed are 1024, or 32769 where its only star is its last byte";
        assert_eq!(error(&with_star(1023, "b")), format!("LIMIT a pattern: 1025 bytes; {refused}"));
        // A pattern that is a prefix and a star is a mere comparison.
        with(&with_star(32_768, ""), |found| assert!(found.is_ok()));
        let escaped = format!("{command} 0 MATCH {}*", r"\*".repeat(16_384));
        with(&escaped, |found| assert!(found.is_ok()));
        assert!(error(&with_star(32_769, "")).starts_with("LIMIT a pattern: 32770 bytes"));
    }
}

#[test]
fn options_are_compared_with_patterns_that_take_little_time() {
    with(&format!("CONFIG GET maxmemory *{}", "a".repeat(1023)), |found| assert!(found.is_ok()));
    let refused = error(&format!("CONFIG GET maxmemory *[{}]", "a".repeat(1022)));
    assert!(refused.starts_with("LIMIT a pattern: 1025 bytes"), "{refused}");
    with(&format!("CONFIG GET{}", " save".repeat(64)), |found| assert!(found.is_ok()));
    let refused = error(&format!("CONFIG GET{}", " save".repeat(65)));
    assert_eq!(refused, "LIMIT patterns: 65; allowed are 64");
}

#[test]
fn so_many_commands_are_described_at_once() {
    for part in ["INFO", "DOCS"] {
        with(&format!("COMMAND {part}{}", " get".repeat(1024)), |found| assert!(found.is_ok()));
        let refused = error(&format!("COMMAND {part}{}", " get".repeat(1025)));
        assert_eq!(refused, "LIMIT names of commands: 1025; allowed are 1024");
    }
}

#[test]
fn a_loss_is_accepted_of_what_was_seen() {
    let seen =
        |version, slots: &[u16]| Command::Ring(RingRequest::Recover { version, slots: slots.to_vec() });
    assert_is("AT.RING RECOVER 700 12 16383", seen(700, &[12, 16_383]));
    assert_is("at.ring recover 0 0", seen(0, &[0]));
    assert_eq!(error("AT.RING RECOVER 700"), "ERR wrong number of arguments for 'at.ring|recover' command");
    assert_eq!(error("AT.RING RECOVER -1 12"), "ERR value is not an integer or out of range");
    assert!(error("AT.RING RECOVER 700 16384").starts_with("ERR "));
}
