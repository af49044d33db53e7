//! Runs the suite.
#![allow(clippy::disallowed_methods, clippy::print_stdout)]

use atoll_conformance::{Outcome, SEED_DEFAULT, Size, Subject, run_check, run_seeded};

pub fn run(subject: &dyn Subject) {
    let size = match std::env::var("CONFORMANCE_SIZE").as_deref() {
        Ok("full") => Size::Full,
        _ => Size::Quick,
    };
    let seed =
        std::env::var("CONFORMANCE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(SEED_DEFAULT);
    let report = match std::env::var("CONFORMANCE_CHECK") {
        Ok(check) => run_check(subject, &check, size, seed),
        Err(_) => run_seeded(subject, size, seed),
    };
    println!("{report}");
    for check in &report.checks {
        assert!(!matches!(check.outcome, Outcome::Broken(_)), "{}: {:?}", check.name, check.outcome);
    }
}
