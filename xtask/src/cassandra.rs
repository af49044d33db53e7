//! `cargo xtask cassandra`: a real Apache Cassandra for developers, tests and the bench, of one to nine nodes
//! on the loopback addresses 127.0.0.1 and following.
//!
//! The nodes outlive this program. The cluster's shape is stored in its folder, so that later runs find it,
//! also after this program was killed.

mod certificates;
mod cluster;
mod jars;
mod java;
mod lent;
mod machine;
mod native;
mod node;
mod settings;
mod shape;

pub use jars::SPARK_CONNECTOR;
pub use lent::{CONTROL, FILE_OF_TESTS, Lent, ROOM};

use crate::arguments::Arguments;
use crate::console::{Step, Verdict};
use crate::failure::{Failure, shown};
use cluster::Cluster;
use shape::Shape;

/// How many lines of a log are printed.
const LOG_LINES: usize = 200;

/// Makes sure that nodes can be started: finds a suitable Java and fetches the jars.
pub fn prepare() -> Result<(), Failure> {
    java::java()?;
    jars::SERVER.folder().map(drop)
}

/// Runs the subcommand that the first word names.
pub fn run(mut arguments: Arguments) -> Result<(), Failure> {
    let action = arguments.required("up, down, status, kill, start or logs")?;
    let cluster = Cluster::here()?;
    match action.as_str() {
        "up" => {
            let shape = Shape::taken(&mut arguments)?;
            arguments.finish()?;
            cluster.up(&shape)?;
            tell(&cluster, &shape);
            Ok(())
        }
        "down" => {
            let keeps = arguments.flag("--keep");
            arguments.finish()?;
            let ended = cluster.down(keeps)?;
            println!("{ended} ended; {}", if keeps { "their data is kept" } else { "nothing of it is left" });
            Ok(())
        }
        "status" => {
            arguments.finish()?;
            status(&cluster)
        }
        "kill" | "start" | "logs" => {
            let shape = cluster.shape()?;
            let ahead = arguments.option("--clock-ahead")?.unwrap_or(0);
            let number = number(&mut arguments, &shape)?;
            arguments.finish()?;
            on_one(&cluster, &shape, &action, number, ahead)
        }
        other => Err(arguments.wrong(format!("{other:?} is not up, down, status, kill, start or logs"))),
    }
}

fn number(arguments: &mut Arguments, shape: &Shape) -> Result<usize, Failure> {
    let word = arguments.required("the number of a node")?;
    let number = word.parse().ok().filter(|number| shape.numbers().any(|each| each == *number));
    number.ok_or_else(|| arguments.wrong(format!("{word:?} is no node: they are 1 to {}", shape.nodes)))
}

fn on_one(cluster: &Cluster, shape: &Shape, action: &str, number: usize, ahead: i64) -> Result<(), Failure> {
    let node = cluster.node(shape, number);
    match action {
        "kill" => {
            let step = Step::start(format!("kill node {number}"));
            let ran = node.end("KILL")?;
            step.end(Verdict::Passed, if ran { "" } else { "it did not run" });
        }
        "start" => cluster.start(shape, &[number], ahead)?,
        _ => {
            node.last_lines(LOG_LINES).iter().for_each(|line| println!("{line}"));
            eprintln!("({})", shown(&node.log()));
        }
    }
    Ok(())
}

fn status(cluster: &Cluster) -> Result<(), Failure> {
    let shape = cluster.shape()?;
    println!("{shape}");
    for number in shape.numbers() {
        let node = cluster.node(&shape, number);
        let state = match (node.process(), node.answers()) {
            (Some(process), true) => format!("answers (process {process})"),
            (Some(process), false) => format!("runs and does not answer (process {process})"),
            (None, _) => "does not run".to_owned(),
        };
        println!("  node {number}, {}: {state}", node.address());
    }
    tell(cluster, &shape);
    Ok(())
}

/// Prints what a user of the cluster needs.
fn tell(cluster: &Cluster, shape: &Shape) {
    println!("URL: {}", shape.url());
    if shape.auth {
        println!("password: {}", node::FIRST_ROLE.password);
    }
    if shape.tls {
        println!("certificate of its authority: {}", cluster.authority().display());
    }
}
