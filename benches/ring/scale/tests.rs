//! The model: the same seed gives the same result, results that can be computed by hand are right, and
//! fitting to its own output recovers its costs.

use super::cold::{Cold, SideCosts, TOUCHED_KB};
use super::costs::Costs;
use super::events::{self, Machine, Outcome};
use super::large::{self, Connections, Effort, SIZE_MAX};
use super::network::{Shape, Topologies};
use super::processor::{CacheState, Left, Processor};
use super::real::{Connecting, Measured};
use super::waking::Waking;
use super::{Compared, Findings, report};

const COSTS: Costs = Costs {
    node_us: 10.0,
    client_us: 8.0,
    wake_us: 3.0,
    waking_us: 2.0,
    idle_two: 0.04,
    idle_power: 0.7,
    connect_us: (20.0, 15.0),
    cold: COLD,
    doubling: both(2.0, 0.5),
};

const COLD: Cold = Cold {
    warm: both(8.0, 7.0),
    spaces: both(1.0, 0.3),
    asked: [both(2.0, 0.5), both(3.17, 0.792), both(4.0, 1.0)],
    touched: [both(4.0, 1.0); TOUCHED_KB.len()],
    pushed_kb: 300.0,
};

/// Costs as if nothing was ever evicted.
const ALWAYS_WARM: Costs = Costs {
    idle_two: 0.0,
    cold: Cold { spaces: both(0.0, 0.0), touched: [both(0.0, 0.0); TOUCHED_KB.len()], ..COLD },
    doubling: both(0.0, 0.0),
    ..COSTS
};

const fn both(node_us: f64, client_us: f64) -> SideCosts {
    SideCosts { node_us, client_us }
}

fn is_near(one: f64, other: f64, share: f64) -> bool {
    (one / other - 1.0).abs() <= share
}

fn shared(costs: Costs, nodes: usize) -> Outcome {
    events::run(&Machine::shared(costs, nodes, 2), 0.5, 1)
}

fn shared_connecting(costs: Costs, nodes: usize) -> Outcome {
    events::run(&Machine { connecting_share: 1.0, ..Machine::shared(costs, nodes, 2) }, 0.5, 1)
}

/// The model's output as if it had been measured.
fn as_measured(costs: Costs, nodes: usize) -> Measured {
    let outcome = shared(costs, nodes);
    let idle_processors = costs.idle_of_one(nodes) * nodes as f64;
    let ticks_us = idle_processors * 1e6 / outcome.throughput;
    let connecting = shared_connecting(costs, nodes);
    let node_us = |of: Outcome| costs.node_us + of.node_cold_us + of.node_wakes * costs.waking_us;
    let client_us = |of: Outcome| costs.client_us + of.client_cold_us + of.client_wakes * costs.waking_us;
    Measured {
        nodes,
        throughput: outcome.throughput,
        node_us: node_us(outcome) + ticks_us,
        client_us: client_us(outcome),
        idle_processors,
        connecting: Connecting {
            throughput: connecting.throughput,
            node_us: node_us(connecting) + costs.connect_us.0 + idle_processors * 1e6 / connecting.throughput,
            client_us: client_us(connecting) + costs.connect_us.1,
            ..Connecting::default()
        },
        cold: Some(costs.cold),
        waking: Some(Waking { wake_us: costs.wake_us, waking_us: costs.waking_us }),
        ..Measured::default()
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let run = |seed| events::run(&Machine::shared(COSTS, 8, 2), 0.2, seed);
    assert_eq!(run(3).throughput.to_bits(), run(3).throughput.to_bits());
    assert_ne!(run(3).latency_us.to_bits(), run(4).latency_us.to_bits());
}

#[test]
fn many_processes_do_what_two_processors_can() {
    // Without costs of switching, only the times of both sides count; all processors are always busy.
    let outcome = shared(ALWAYS_WARM, 32);
    assert!(is_near(outcome.throughput, 2.0 / 18e-6, 0.01), "{outcome:?}");
    // Each client waits for one answer, so the latency follows from the throughput.
    assert!(is_near(outcome.latency_us, 32.0 * 9.0, 0.01), "{outcome:?}");
    assert!(outcome.busy_share > 0.99);
}

#[test]
fn one_that_nobody_disturbs_takes_both_times_and_is_woken_twice() {
    let outcome = shared(ALWAYS_WARM, 1);
    assert!(is_near(outcome.latency_us, 10.0 + 8.0 + 2.0 * 3.0, 0.01), "{outcome:?}");
    assert!(is_near(outcome.throughput, 1e6 / 24.0, 0.01), "{outcome:?}");
}

#[test]
fn few_threads_leave_processors_idle_and_many_none() {
    let busy = [2, 4, 32].map(|nodes| shared(ALWAYS_WARM, nodes).busy_share);
    assert!(busy[0] < 0.8 && busy[0] < busy[1] && busy[1] < 0.95 && busy[2] > 0.99, "{busy:?}");
    // The thread that wakes an idle processor pays for it, and the woken thread starts later.
    let dear = shared(Costs { wake_us: 30.0, waking_us: 10.0, ..ALWAYS_WARM }, 2);
    assert!(dear.node_wakes > 0.1 && dear.throughput < 0.8 * shared(ALWAYS_WARM, 2).throughput, "{dear:?}");
}

#[test]
fn a_processor_has_six_address_spaces_at_hand_and_knows_who_ran_meanwhile() {
    let (mut processor, mut host_ran) = (Processor::default(), 0);
    let mut left = [Left::default(); 7];
    let mut runs = |space: usize| processor.runs(0, &mut host_ran, (space, true), &mut left[space]);
    let first: Vec<CacheState> = (0..6).map(&mut runs).collect();
    assert!(first.iter().all(|found| !found.is_out && found.here.is_none()), "{first:?}");
    assert_eq!(runs(0), CacheState { is_out: false, here: Some(5), anywhere: 5 });
    assert!(runs(6).is_out);
    // The seventh address space replaced the one that had not run for longest.
    assert_eq!(runs(1), CacheState { is_out: true, here: Some(6), anywhere: 6 });
    assert_eq!(runs(0), CacheState { is_out: false, here: Some(2), anywhere: 2 });
}

#[test]
fn more_nodes_push_out_more_and_those_of_another_processor_only_from_what_is_shared() {
    let mut costs = COSTS;
    costs.cold.touched[TOUCHED_KB.len() - 1] = both(40.0, 20.0);
    let cold = |here, anywhere| costs.cold_us(true, CacheState { is_out: false, here: Some(here), anywhere });
    assert_eq!([cold(0, 0), cold(1, 1), cold(3, 3)], [0.0, 2.0, 4.0]);
    // With 300 KiB each, a hundred of them exceed the cache.
    assert_eq!(cold(3, 10), 4.0);
    assert!(cold(3, 100) > 30.0);
    assert!(costs.cold_us(true, CacheState { is_out: true, here: Some(0), anywhere: 0 }) == 1.0);
    // The node that a client uses has always run since then.
    assert_eq!(costs.cold_us(false, CacheState { is_out: false, here: Some(1), anywhere: 1 }), 0.0);
}

#[test]
fn what_was_put_in_is_found_again_from_two_and_four() {
    let fitted = Costs::fitted(&as_measured(COSTS, 2), &as_measured(COSTS, 4), 2);
    for nodes in [8, 16, 32] {
        let (told, made) = (shared(fitted, nodes), shared(COSTS, nodes));
        assert!(is_near(told.throughput, made.throughput, 0.05), "{nodes}: {told:?} {made:?} {fitted:?}");
        let (told, made) = (shared_connecting(fitted, nodes), shared_connecting(COSTS, nodes));
        assert!(is_near(told.throughput, made.throughput, 0.05), "{nodes}: {told:?} {made:?} {fitted:?}");
    }
    assert!(is_near(fitted.idle_power, COSTS.idle_power, 0.01) && is_near(fitted.connect_us.0, 20.0, 0.1));
}

#[test]
fn ways_in_a_torus_are_as_long_as_they_are() {
    let topologies = Topologies::read().unwrap();
    let mean = |shape, nodes| {
        let network = topologies.network(shape, nodes, 0.0, 0.0);
        let mut random = fastrand::Rng::with_seed(1);
        (0..20_000).map(|_| network.way_us(true, &mut random)).sum::<f64>() / 20_000.0
    };
    // 128 x 128 x 64 nodes: 32 + 32 + 16 links on average, and 163 bytes at 425 MB/s.
    let expected = 0.5 + 79.0 * 0.067 + 163.0 / 425.0;
    assert!(is_near(mean(Shape::Torus, SIZE_MAX), expected, 0.01), "{}", mean(Shape::Torus, SIZE_MAX));
    // Two nodes are neighbours, and a fat tree of four levels passes seven switches.
    assert!(is_near(mean(Shape::Torus, 2), 0.5 + 163.0 / 425.0, 0.01));
    assert!(is_near(mean(Shape::FatTree, SIZE_MAX), 0.6 + 6.0 * 0.205 + 163.0 / 25_000.0, 0.01));
    assert!(mean(Shape::Dragonfly, SIZE_MAX) > mean(Shape::Dragonfly, 200_000));
}

#[test]
fn full_links_make_messages_wait() {
    let topologies = Topologies::read().unwrap();
    let mean = |each| {
        let network = topologies.network(Shape::Torus, SIZE_MAX, each, 0.0);
        network.way_us(true, &mut fastrand::Rng::with_seed(1))
    };
    assert!(mean(100_000.0) > mean(50_000.0) && mean(50_000.0) > mean(0.0));
}

#[test]
fn few_that_are_played_stand_for_many() {
    let topologies = Topologies::read().unwrap();
    let machine = |nodes, played| Machine {
        played,
        is_shared: false,
        network: Some(topologies.network(Shape::FatTree, nodes, 20_000.0, 0.0)),
        ..Machine::shared(COSTS, nodes, 2)
    };
    let all = events::run(&machine(1024, 1024), 0.02, 1);
    let some = events::run(&machine(1024, 128), 0.1, 2);
    assert!(is_near(all.throughput, some.throughput, 0.03), "{all:?} {some:?}");
}

#[test]
fn connections_that_are_made_and_longer_ways_cost_efficiency() {
    let topologies = Topologies::read().unwrap();
    let up = |shape, connections| {
        let sizes = large::up(&topologies, shape, (COSTS, 2), connections, Effort::TRIAL);
        sizes.last().map(|last| (last.nodes, last.efficiency)).unwrap()
    };
    let (nodes, kept) = up(Shape::Torus, Connections::Kept);
    assert_eq!(nodes, SIZE_MAX);
    assert!(up(Shape::FatTree, Connections::Kept).1 > kept && kept > 0.2 && kept < 1.0);
    assert!(up(Shape::Torus, Connections::AtMost(10_000)).1 < kept * 0.8);
}

#[test]
fn a_model_that_is_as_far_off_both_ways_is_not_right_and_its_fit_is_judged_as_well() {
    let compared = |nodes, off: f64| {
        let real = Measured { nodes, throughput: 100.0, ..Measured::default() };
        let kept = Outcome { throughput: 100.0 + off, ..Outcome::default() };
        Compared { real, kept, connecting: kept }
    };
    let all = |nodes, off: [f64; 5]| off.map(|off| compared(nodes, off)).to_vec();
    let findings = Findings {
        processes: vec![
            all(2, [43.2, 14.1, 25.2, 15.6, 43.9]),
            all(4, [0.0; 5]),
            all(32, [-2.3, 15.2, -14.7, -15.2, 40.6]),
        ],
        ..Findings::default()
    };
    let rows = report::rows(&findings);
    let figure = |bar: &str| {
        let row = rows.iter().find(|row| row.bar == bar).unwrap();
        (row.figure.unwrap().round(), row.holds())
    };
    assert_eq!(figure("predicted over measured, worst of 8, 16, 32"), (15.0, false));
    assert_eq!(figure("fitted over measured, worst of 2, 4"), (25.0, false));
}
