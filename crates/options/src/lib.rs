//! Options in layers: defaults, then TOML files, then the environment, then flags, into plain structs.
//!
//! A component declares its options once with [`options!`]: name, type, default and help in one place. A
//! program collects the declarations in a [`Schema`], reads files, environment and flags, and passes their
//! texts to [`resolve`]. Every value in the resulting [`Settings`] knows where it came from.
//!
//! Invariant: this crate reads no file and no environment; it uses only what it is given.
//! Invariant: every parser is total: any text gives a value or a typed error, never a panic.
//! Invariant: a key that no component declared is an error, never ignored.

mod duration;
mod error;
pub mod fuzz;
mod number;
mod schema;
mod settings;
mod size;
mod sources;
mod value;

pub use duration::{format_duration, parse_duration};
pub use error::{OptionsError, ValueError};
pub use schema::{Field, Schema, Section};
pub use settings::{Setting, Settings, resolve};
pub use size::Size;
pub use sources::{Assignment, Origin, Sources, TomlText, environment_name, parse_toml};
pub use value::OptionValue;
