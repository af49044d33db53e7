//! What a ring tells of itself, as it is read.

use super::*;

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
    ];
    let lists = |lists: &[&[i64]]| {
        let list = |list: &&[i64]| Value::Array(list.iter().copied().map(Value::Integer).collect());
        Value::Array(lists.iter().map(list).collect())
    };
    let scratch = vec![
        (name("keyspace"), Value::Integer(1)),
        (name("name"), name("scratch")),
        (name("copies"), Value::Integer(2)),
        (name("in_sync_min"), Value::Null),
        (name("latency_ms"), Value::Integer(500)),
        (name("served"), Value::Integer(16384)),
        (name("copies_in_sync_min"), Value::Integer(1)),
    ];
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
            (name("down"), lists(&[&[5, 9, 1, 3], &[12, 12]])),
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
    assert_eq!(third.down[0], DownSlots { first: 5, last: 9, had_by: vec![1, 3] });
    assert_eq!(third.down[1], DownSlots { first: 12, last: 12, had_by: vec![] });
    assert_eq!(read(&flat(ring(flat(node), flat(scratch)))), Some(third.clone()));
    assert_eq!((third.nodes[0].leads, third.nodes[0].is_up, third.version), (5461, true, 9));
    let scratch = KeyspaceStatus {
        keyspace: 1,
        name: "scratch".to_owned(),
        copies: Some(2),
        in_sync_min: None,
        latency: LatencyClass::FiveHundred,
        served: 16384,
        copies_in_sync_min: 1,
    };
    assert_eq!(third.keyspaces, [scratch]);
    assert_eq!((third.group_silent_ms, third.group_leader), (80, 2));
    assert_eq!(read(&Value::Map(Vec::new())), None);
}
