//! Tests of what the expression grammar promises.

mod agreement;
mod errors;
mod generator;
mod grammar;
mod intervals;
mod near;
mod oracle;
mod points;
mod rows;
mod verdicts;
