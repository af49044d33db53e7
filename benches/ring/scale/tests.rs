//! The model as it must be: the same from the same seed, right where it can be reckoned, and fitted to what it made itself.

use super::costs::Costs;
use super::events::{self, Machine, Outcome};
use super::large::{self, Connections, Effort, SIZE_MAX};
use super::network::{Shape, Topologies};
use super::real::{Connecting, Measured};
use super::{Compared, Findings, report};

const COSTS: Costs = Costs {
    node_warm_us: 10.0,
    node_cold_us: 6.0,
    client_warm_us: 8.0,
    client_cold_us: 2.0,
    wake_us: 3.0,
    idle_two: 0.04,
    idle_power: 0.7,
    connect_us: (20.0, 15.0),
};

fn is_near(one: f64, other: f64, share: f64) -> bool {
    (one / other - 1.0).abs() <= share
}

fn shared(costs: Costs, nodes: usize) -> Outcome {
    events::run(&Machine::shared(costs, nodes, 2), 0.5, 1)
}

fn shared_connecting(costs: Costs, nodes: usize) -> Outcome {
    events::run(&Machine { connecting_share: 1.0, ..Machine::shared(costs, nodes, 2) }, 0.5, 1)
}

/// What the model makes, as if it had been measured.
fn as_measured(costs: Costs, nodes: usize) -> Measured {
    let outcome = shared(costs, nodes);
    let idle_processors = costs.idle_of_one(nodes) * nodes as f64;
    let ticks_us = idle_processors * 1e6 / outcome.throughput;
    let node_us = costs.node_warm_us + costs.node_cold_us * outcome.node_cold_share;
    let client_us = costs.client_warm_us + costs.client_cold_us * outcome.client_cold_share;
    let connecting = shared_connecting(costs, nodes);
    Measured {
        nodes,
        throughput: outcome.throughput,
        node_us: node_us + ticks_us,
        client_us,
        idle_processors,
        alone_us: costs.node_warm_us + costs.client_warm_us + 2.0 * costs.wake_us,
        connecting: Connecting {
            throughput: connecting.throughput,
            node_us: node_us + costs.connect_us.0 + idle_processors * 1e6 / connecting.throughput,
            client_us: client_us + costs.connect_us.1,
            ..Connecting::default()
        },
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
    // Without costs of changing, all that counts is the time of both sides; all are always busy.
    let costs = Costs { node_cold_us: 0.0, client_cold_us: 0.0, idle_two: 0.0, ..COSTS };
    let outcome = shared(costs, 32);
    assert!(is_near(outcome.throughput, 2.0 / 18e-6, 0.01), "{outcome:?}");
    // And as each client waits for one answer, the time of each follows.
    assert!(is_near(outcome.latency_us, 32.0 * 9.0, 0.01), "{outcome:?}");
    assert!(outcome.busy_share > 0.99);
}

#[test]
fn one_that_nobody_disturbs_takes_both_times_and_is_woken_twice() {
    let costs = Costs { idle_two: 0.0, ..COSTS };
    let outcome = shared(costs, 1);
    assert!(is_near(outcome.latency_us, 10.0 + 8.0 + 2.0 * 3.0, 0.01), "{outcome:?}");
    assert!(is_near(outcome.throughput, 1e6 / 24.0, 0.01), "{outcome:?}");
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
    // Two nodes are neighbours, and a fat tree of four floors passes seven switches.
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
        (row.figure.unwrap().round(), row.holds)
    };
    assert_eq!(figure("predicted over measured, worst of 8, 16, 32"), (15.0, false));
    assert_eq!(figure("fitted over measured, worst of 2, 4"), (25.0, false));
}
