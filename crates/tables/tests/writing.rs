//! Writing tables through the public interface: runs, steps and listings, appends that share a commit,
//! sessions, deletes, and stores that lose answers.
//!
//! Replay a random failure with `ATOLL_SEED=N cargo test -p atoll-tables --test writing`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]
#![allow(clippy::disallowed_methods, reason = "the environment may name the seed")]

#[path = "writing/beginning.rs"]
mod beginning;
#[path = "writing/cleared.rs"]
mod cleared;
#[path = "writing/columns.rs"]
mod columns;
#[path = "writing/copies.rs"]
mod copies;
#[path = "writing/deletes.rs"]
mod deletes;
#[path = "writing/door.rs"]
mod door;
#[path = "writing/entries.rs"]
mod entries;
#[path = "writing/faults.rs"]
mod faults;
#[path = "writing/history.rs"]
mod history;
#[path = "writing/leftovers.rs"]
mod leftovers;
#[path = "writing/line.rs"]
mod line;
#[path = "writing/listing.rs"]
mod listing;
#[path = "writing/load.rs"]
mod load;
#[path = "writing/loader.rs"]
mod loader;
#[path = "writing/looks.rs"]
mod looks;
#[path = "writing/marks.rs"]
mod marks;
#[path = "writing/notes.rs"]
mod notes;
#[path = "writing/of_runs.rs"]
mod of_runs;
#[path = "writing/rows.rs"]
mod rows;
#[path = "writing/sessions.rs"]
mod sessions;
#[path = "writing/sizes.rs"]
mod sizes;
#[path = "writing/store_attributes.rs"]
mod store_attributes;
#[path = "writing/unions.rs"]
mod unions;
#[path = "writing/unique.rs"]
mod unique;
#[path = "writing/vanishing.rs"]
mod vanishing;
