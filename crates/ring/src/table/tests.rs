//! What clients are told of a table: routes, ranges, and the texts of each command.

use super::*;
use crate::address::{HostPort, NodeName};
use crate::dates::ClockSeen;
use crate::group::GroupHeard;
use crate::metrics::OthersSeen;
use crate::setup::RingSetup;
use atoll_keyspace::SLOTS;
use atoll_replica::{Copies, Epoch, KeyspaceRules, Member, Persistence, Slot};
use atoll_resp::{Protocol, ReplyWriter};

/// Three nodes: the first leads slots up to 99, the second those up to 16,000, no node the rest; the third
/// leads none.
fn table() -> Table {
    let mut table = Table::empty(SLOTS.into());
    table.version = Version(7);
    for id in 1..=3 {
        let name = NodeName::new(format!("{id:040x}").as_bytes()).unwrap();
        let host = |port| HostPort { host: format!("10.0.0.{id}"), port };
        let address = NodeAddress { name, clients: host(7379), peers: host(17379) }.to_string();
        let member = Member { is_up: id != 3, ..Member::new(address.into()) };
        table.members.insert(NodeId(id), member);
    }
    table.slots.change_each(|slot, configuration| {
        let primary = match slot.0 {
            0..100 => NodeId(1),
            100..=16000 => NodeId(2),
            _ => return,
        };
        // Different copies do not split a range.
        let other = NodeId(if slot.0 % 2 == 0 { 3 } else { 2 });
        *configuration = Configuration {
            epoch: Epoch(5),
            primary: Some(primary),
            in_sync: Copies::of(&[primary, other]),
            ..Configuration::default()
        };
    });
    assert_eq!(table.slot(Slot(16001)).primary, None);
    table
}

#[test]
fn each_slot_leads_to_its_primary() {
    let seen = SlotTable::of(Arc::new(table()), NodeId(1));
    assert_eq!(seen.version(), Version(7));
    assert_eq!(seen.route(Slot(0)), Route::Here);
    assert_eq!(seen.route(Slot(99)), Route::Here);
    assert!(seen.is_here(Slot(99)) && !seen.is_here(Slot(100)) && !seen.is_here(Slot(16001)));
    assert!(matches!(seen.route(Slot(100)), Route::There(at) if at.host == "10.0.0.2"));
    assert_eq!(seen.route(Slot(16001)), Route::Nowhere);
    assert_eq!(seen.own_slots(0).collect::<Vec<_>>(), (0..100).map(Slot).collect::<Vec<_>>());
    // A node that is not in the table has no slots, and neither has one that leads none.
    for stranger in [3, 9] {
        let seen = SlotTable::of(Arc::new(table()), NodeId(stranger));
        assert!(matches!(seen.route(Slot(0)), Route::There(_)));
        assert_eq!(seen.own_slots(0).count(), 0);
    }
}

#[test]
fn clients_are_told_of_each_range_once() {
    let seen = SlotTable::of(Arc::new(table()), NodeId(1));
    let reply = String::from_utf8(seen.slots_reply(0, Protocol::Resp2).to_vec()).unwrap();
    let node = |id: u8, first, last| {
        format!("*3\r\n:{first}\r\n:{last}\r\n*4\r\n$8\r\n10.0.0.{id}\r\n:7379\r\n$40\r\n{id:040x}\r\n*0\r\n")
    };
    assert_eq!(reply, format!("*2\r\n{}{}", node(1, 0, 99), node(2, 100, 16000)));
    assert!(String::from_utf8_lossy(seen.slots_reply(0, Protocol::Resp3)).ends_with("%0\r\n"));
    let nodes = format!(
        "{:040x} 10.0.0.1:7379@17379 myself,master - 0 0 5 connected 0-99
{:040x} 10.0.0.2:7379@17379 master - 0 0 5 connected 100-16000
{:040x} 10.0.0.3:7379@17379 master,fail - 0 0 0 disconnected
",
        1, 2, 3
    );
    assert_eq!(seen.nodes_text(0), nodes);
    let info = seen.info_text(0);
    assert!(info.starts_with("cluster_state:fail\r\ncluster_slots_assigned:16001\r\n"), "{info}");
    assert!(info.contains("cluster_known_nodes:3\r\ncluster_size:2\r\n"), "{info}");
}

#[test]
fn clients_that_ask_for_the_table_are_told_of_each_leader_once_and_of_nobody_else() {
    let mut table = table();
    // The first node leads nothing any more, and the second one scattered ranges.
    table.slots.change_each(|slot, configuration| {
        if slot.0 < 100 {
            configuration.primary = Some(NodeId(2 + u32::from(slot.0 % 2 == 0)));
        }
    });
    let seen = SlotTable::of(Arc::new(table), NodeId(1));
    let told = String::from_utf8(seen.leaders_reply(0).to_vec()).unwrap();
    let node = |id: u8| format!("*2\r\n$8\r\n10.0.0.{id}\r\n:7379\r\n");
    let range = |first: u32, last: u32, place: u32| format!(":{first}\r\n:{last}\r\n:{place}\r\n");
    let nodes = format!("*2\r\n{}{}", node(2), node(3));
    let scattered: String = (0..99).map(|slot| range(slot, slot, u32::from(slot % 2 == 0))).collect();
    let ranges = scattered + &range(99, 16_000, 0);
    assert_eq!(told, format!("$5\r\nnodes\r\n{nodes}$5\r\nslots\r\n*300\r\n{ranges}"));
    let rendered = || seen.leaders_reply(0).as_ptr();
    assert!(std::ptr::eq(rendered(), rendered()), "it is rendered once");
    assert_eq!(seen.leaders_reply(1), b"$5\r\nnodes\r\n*0\r\n$5\r\nslots\r\n*0\r\n");
}

#[test]
fn slots_whose_node_is_down_are_told_as_failed_though_it_still_leads_them() {
    let mut table = table();
    table.members.get_mut(&NodeId(2)).unwrap().is_up = false;
    let info = SlotTable::of(Arc::new(table), NodeId(1)).info_text(0);
    let slots = "cluster_slots_assigned:16001\r\ncluster_slots_ok:100\r\ncluster_slots_pfail:0\r\n\
        cluster_slots_fail:15901\r\n";
    assert!(info.starts_with(&format!("cluster_state:fail\r\n{slots}")), "{info}");
    // Clients that see a failed state do not ask at all, whatever else is served.
    let mut table = Table::empty(SLOTS.into());
    table.members = self::table().members;
    table.slots.change_each(|_, slot| slot.primary = Some(NodeId(3)));
    let info = SlotTable::of(Arc::new(table), NodeId(1)).info_text(0);
    let slots = "cluster_slots_assigned:16384\r\ncluster_slots_ok:0\r\n";
    assert!(info.starts_with(&format!("cluster_state:ok\r\n{slots}")), "{info}");
}

#[test]
fn what_takes_a_look_at_every_slot_is_counted_once() {
    let seen = SlotTable::of(Arc::new(table()), NodeId(1));
    assert!(std::ptr::eq(seen.counts().as_ptr(), seen.counts().as_ptr()));
}

#[test]
fn a_status_tells_of_all_slots_that_are_down_however_they_are_scattered() {
    let mut table = Table::clone(&table());
    table.slots.change_each(|slot, configuration| {
        // Below 1,000 slots with one copy and with two take turns; the others have two copies, in either
        // order.
        let in_sync = match slot.0 {
            0..1000 if slot.0 % 2 == 0 => Copies::of(&[NodeId(3)]),
            0..1000 => Copies::of(&[NodeId(3), NodeId(2)]),
            _ if slot.0 % 2 == 0 => Copies::of(&[NodeId(2), NodeId(3)]),
            _ => Copies::of(&[NodeId(3), NodeId(2)]),
        };
        *configuration =
            Configuration { epoch: Epoch(5), primary: None, in_sync, ..Configuration::default() };
    });
    let mut reply = Vec::new();
    SlotTable::of(Arc::new(table), NodeId(1))
        .write_down(0, &mut ReplyWriter::new(&mut reply, Protocol::Resp2));
    let text = String::from_utf8(reply).unwrap();
    assert!(text.starts_with("$4\r\ndown\r\n*1000\r\n*3\r\n:0\r\n:0\r\n:3\r\n*4\r\n:1\r\n"), "{text}");
    assert!(text.ends_with("*4\r\n:999\r\n:16383\r\n:2\r\n:3\r\n"), "{text}");
}

#[test]
fn a_status_tells_slots_that_lost_their_last_copies_from_those_that_never_had_any() {
    let mut table = Table::clone(&table());
    table.slots.change_each(|slot, configuration| {
        if slot.0 == 99 {
            (configuration.primary, configuration.in_sync) = (None, Copies::default());
            configuration.joining = Copies::of(&[NodeId(3), NodeId(2)]);
        }
    });
    let seen = SlotTable::of(Arc::new(table), NodeId(1));
    let mut reply = Vec::new();
    let mut writer = ReplyWriter::new(&mut reply, Protocol::Resp2);
    let (heard, others) = (GroupHeard::default(), OthersSeen::default());
    seen.write_status(0, heard, &others, None, &mut writer);
    let text = String::from_utf8(reply).unwrap();
    let down = "$4\r\ndown\r\n*2\r\n*2\r\n:99\r\n:99\r\n*2\r\n:16001\r\n:16383\r\n";
    // The copy that was in sync last comes first.
    let left = "$9\r\ndown_left\r\n*2\r\n*3\r\n:1\r\n:3\r\n:2\r\n*1\r\n:0\r\n";
    assert!(text.contains(&format!("{down}{left}")), "{text}");
}

#[test]
fn a_status_counts_what_each_node_leads_and_copies() {
    let of = SlotTable::of(Arc::new(table()), NodeId(1));
    let mut reply = Vec::new();
    let behind = [(NodeId(2), 12), (NodeId(3), 0)].into();
    let clock = ClockSeen { off_ms: -70_000, is_doubted: true };
    let others = OthersSeen { behind, unreached: vec![NodeId(3)], clock };
    let heard = GroupHeard {
        silence: std::time::Duration::from_millis(7),
        leader: Some(NodeId(2)),
        is_seat_lost: true,
    };
    let at = |host: &str| HostPort { host: host.to_owned(), port: 7379 };
    let setup = RingSetup {
        processes: vec![at("a"), at("::1")],
        loops: 2,
        keepers: 5,
        copies: 3,
        in_sync_min: 2,
        rate_error_ppm: 10_000,
        is_clockless: true,
    };
    let mut writer = ReplyWriter::new(&mut reply, Protocol::Resp2);
    of.write_status(0, heard, &others, Some(&setup), &mut writer);
    let text = String::from_utf8(reply).unwrap();
    let number = |name: &str| -> Vec<u64> {
        let name = format!("\r\n{name}\r\n:");
        let behind = text.split(&name).skip(1);
        behind.map(|rest| rest.lines().next().unwrap().parse().unwrap()).collect()
    };
    let configurations: Vec<_> = table().slots.iter().collect();
    let nodes: Vec<_> = table().members.keys().copied().collect();
    let counted = |has: &dyn Fn(&Configuration, NodeId) -> bool| -> Vec<u64> {
        nodes
            .iter()
            .map(|&node| configurations.iter().filter(|slot| has(slot, node)).count() as u64)
            .collect()
    };
    assert_eq!(number("leads"), counted(&|slot, node| slot.primary == Some(node)));
    assert_eq!(number("in_sync"), counted(&|slot, node| slot.in_sync.contains(node)));
    assert_eq!(number("catching_up"), counted(&|slot, node| slot.joining.contains(node)));
    // Over the whole ring, and over its only keyspace.
    assert_eq!(number("served"), [number("leads").iter().sum::<u64>(); 2]);
    assert_eq!((number("group_silent_ms"), number("group_leader")), (vec![7], vec![2]));
    assert!(text.contains("\r\nbehind\r\n*2\r\n*2\r\n:2\r\n:12\r\n*2\r\n:3\r\n:0\r\n"), "{text}");
    assert!(text.contains("\r\nunreached\r\n*1\r\n:3\r\n"), "{text}");
    assert!(text.contains("\r\nclock_off_ms\r\n:-70000\r\n"), "{text}");
    assert_eq!((number("clock_doubted"), number("group_seat_lost")), (vec![1], vec![1]));
    let down = configurations.iter().filter(|slot| slot.primary.is_none()).count();
    assert!(down > 0 && text.contains("\r\ndown\r\n*"), "{text}");
    assert!(text.contains("\r\nprocesses\r\n*2\r\n$6\r\na:7379\r\n$10\r\n[::1]:7379\r\n"), "{text}");
    let told = ["loops", "keepers", "copies", "rate_error_ppm", "clockless"].map(number);
    assert_eq!(told, [vec![2], vec![5], vec![3], vec![10_000], vec![1]]);
    let last_of_all = format!(":16001\r\n:{}\r\n", configurations.len() - 1);
    assert!(text.contains(&last_of_all), "{text}");
}

#[test]
fn slots_whose_last_copy_is_on_a_node_that_is_down_are_not_served_and_say_so() {
    let mut table = table();
    table.members.get_mut(&NodeId(2)).unwrap().is_up = false;
    let seen = SlotTable::of(Arc::new(table), NodeId(1));
    assert_eq!(seen.served(), (SLOTS.into(), 100));
    let mut reply = Vec::new();
    seen.write_status(
        0,
        GroupHeard::default(),
        &OthersSeen::default(),
        None,
        &mut ReplyWriter::new(&mut reply, Protocol::Resp2),
    );
    let text = String::from_utf8(reply).unwrap();
    let (_, down) = text.split_once("\r\ndown\r\n*").unwrap();
    assert!(down.contains(":100\r\n"), "{down}");
    assert!(!down.contains(":0\r\n:99\r\n"), "{down}");
}

#[test]
fn a_table_of_a_million_slots_leads_to_primaries_and_is_told_in_ranges() {
    let slots = atoll_keyspace::SLOTS_WIDE;
    let mut table = Table { slots: atoll_replica::Configurations::nobodys(slots), ..table() };
    table.slots.change_each(|slot, configuration| {
        let primary = NodeId(1 + slot.0 * 2 / slots);
        let in_sync = Copies::of(&[primary]);
        *configuration =
            Configuration { epoch: Epoch(1), primary: Some(primary), in_sync, ..Configuration::default() };
    });
    let seen = SlotTable::of(Arc::new(table), NodeId(1));
    assert_eq!(seen.served(), (slots.into(), slots.into()));
    for number in 0..1000 {
        let slot = Slot(atoll_keyspace::slot_among(format!("key-{number}").as_bytes(), slots));
        assert_eq!(seen.is_here(slot), slot.0 < slots / 2);
        assert_eq!(seen.route(slot) == Route::Here, slot.0 < slots / 2);
    }
    assert_eq!(seen.route(Slot(slots)), Route::Nowhere);
    let reply = String::from_utf8(seen.slots_reply(0, Protocol::Resp2).to_vec()).unwrap();
    assert!(reply.starts_with("*2\r\n*3\r\n:0\r\n:524287\r\n"), "{reply}");
    assert!(reply.contains(":524288\r\n:1048575\r\n"), "{reply}");
    assert!(seen.info_text(0).contains("cluster_slots_ok:1048576"));
}

#[test]
fn nodes_are_found_whatever_their_numbers() {
    let mut table = table();
    let member = table.members.remove(&NodeId(2)).unwrap();
    table.members.insert(NodeId(4_000_000_000), member);
    table.slots.change_each(|_, configuration| {
        if configuration.primary == Some(NodeId(2)) {
            configuration.primary = Some(NodeId(4_000_000_000));
        }
    });
    let table = Arc::new(table);
    let seen = SlotTable::of(table.clone(), NodeId(1));
    assert!(matches!(seen.route(Slot(100)), Route::There(at) if at.host == "10.0.0.2"));
    assert_eq!((seen.route(Slot(0)), seen.route(Slot(16_001))), (Route::Here, Route::Nowhere));
    let there = SlotTable::of(table, NodeId(4_000_000_000));
    assert_eq!((there.route(Slot(100)), there.own_slots(0).count()), (Route::Here, 15_901));
}

#[test]
fn a_table_that_follows_says_what_it_would_say_alone() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut table, mut seen) = (table(), SlotTable::of(Arc::new(table()), NodeId(1)));
        for version in 8..40 {
            table.version = Version(version);
            let (slot, primary) = (random.usize(0..table.slots.len()), NodeId(random.u32(1..5)));
            let before = table.slots.get(slot).unwrap();
            let primary = table.members.contains_key(&primary).then_some(primary);
            table.slots.set(slot, Configuration { primary, ..before });
            match random.u8(..16) {
                0 => table.slots.grow(table.slots.len() as u32 + u32::from(SLOTS)),
                1 => drop(table.members.remove(&NodeId(2))),
                2 => drop(table.members.insert(NodeId(2), table.members[&NodeId(3)].clone())),
                _ => {}
            }
            if random.bool() {
                table.slots.settle();
            }
            let table = Arc::new(table.clone());
            seen = seen.followed_by(Arc::clone(&table), NodeId(1));
            let alone = SlotTable::of(table, NodeId(1));
            assert!(seen.routes == alone.routes && seen.nodes == alone.nodes, "seed {seed}, table {version}");
            assert_eq!((seen.version(), seen.me), (Version(version), alone.me), "seed {seed}");
        }
    }
}

#[test]
fn each_keyspace_is_told_of_as_if_it_were_the_only_one() {
    let mut table = table();
    let (name, durability) = ("scratch".into(), Some(Persistence::Always));
    let rules = KeyspaceRules { name, copies: 1, in_sync_min: 0, latency_ms: 500, durability };
    (table.keyspaces, table.slots) = (Arc::new([rules]), {
        let mut slots = table.slots.clone();
        slots.grow(2 * u32::from(SLOTS));
        slots
    });
    table.slots.change_each(|slot, configuration| {
        if let Some(number) = slot.0.checked_sub(SLOTS.into()) {
            let primary = NodeId(1 + u32::from(number < 10));
            let in_sync = Copies::of(&[primary]);
            *configuration = Configuration {
                epoch: Epoch(1),
                primary: Some(primary),
                in_sync,
                ..Configuration::default()
            };
        }
    });
    let seen = SlotTable::of(Arc::new(table), NodeId(1));
    let slots = |keyspace| String::from_utf8(seen.slots_reply(keyspace, Protocol::Resp2).to_vec()).unwrap();
    assert!(slots(0).starts_with("*2\r\n*3\r\n:0\r\n:99\r\n"), "{}", slots(0));
    assert!(slots(1).starts_with("*2\r\n*3\r\n:0\r\n:9\r\n"), "{}", slots(1));
    assert!(slots(1).contains(":10\r\n:16383\r\n"), "{}", slots(1));
    assert_eq!(slots(2), "*0\r\n");
    let listed = |keyspace| String::from_utf8(seen.leaders_reply(keyspace).to_vec()).unwrap();
    assert!(listed(0).ends_with(":100\r\n:16000\r\n:1\r\n"), "{}", listed(0));
    assert!(listed(1).ends_with(":10\r\n:16383\r\n:0\r\n"), "{}", listed(1));
    let own: Vec<_> = seen.own_slots(1).collect();
    assert_eq!((own.first(), own.len()), (Some(&Slot(16_384 + 10)), 16_374));
    assert_eq!(seen.own_slots(0).count(), 100);
    assert!(seen.info_text(0).contains("cluster_state:fail"), "the first one is as it was");
    assert!(seen.info_text(1).contains("cluster_state:ok\r\ncluster_slots_assigned:16384"));
    assert!(seen.nodes_text(1).contains("connected 10-16383"), "{}", seen.nodes_text(1));
    assert_eq!((seen.keyspace_named("scratch"), seen.keyspace_named("")), (Some(1), None));
    let mut reply = Vec::new();
    seen.write_keyspaces(&[0, 1], &mut ReplyWriter::new(&mut reply, Protocol::Resp3));
    let told = String::from_utf8(reply).unwrap();
    assert!(told.contains("$7\r\nscratch\r\n$6\r\ncopies\r\n:1\r\n$11\r\nin_sync_min\r\n_\r\n"), "{told}");
    assert!(told.contains("served\r\n:16384\r\n$18\r\ncopies_in_sync_min\r\n:1\r\n"), "{told}");
    assert!(told.ends_with("$10\r\ndurability\r\n$6\r\nsynced\r\n"), "{told}");
    assert_eq!(told.matches("durability\r\n_\r\n").count(), 1, "the first one has none of its own: {told}");
}
