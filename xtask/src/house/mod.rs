//! The house rules, as checks over the whole tree.
//!
//! Each rule is a plain function from a [`Tree`] to [`Finding`]s, so that its tests can plant a violation
//! and see it found. A rule stays silent where it cannot decide: a false alarm costs more trust than a
//! miss.

mod architecture;
mod code_spans;
mod commands;
mod dependencies;
mod finding;
mod floors;
mod headers;
mod links;
mod lints;
mod locks;
mod rust_text;
mod sizes;
mod tree;
mod unsafe_code;
mod words;

pub use commands::{Mention, has_flag, mentions};
pub use finding::Finding;
pub use tree::Tree;
pub use unsafe_code::files as unsafe_files;

use crate::failure::Failure;
use crate::workspace::Package;

/// Runs every rule over the whole repository.
pub fn findings(tree: &Tree, packages: &[Package]) -> Result<Vec<Finding>, Failure> {
    let mut found = floors::findings(packages);
    found.extend(architecture::findings(tree, packages));
    found.extend(dependencies::findings(tree));
    found.extend(links::findings(tree));
    found.extend(lints::findings(tree, packages));
    found.extend(locks::findings(tree, packages));
    found.extend(commands::findings(tree));
    found.extend(headers::findings(tree));
    found.extend(sizes::findings(tree));
    found.extend(words::findings(tree));
    found.extend(unsafe_code::findings(tree));
    Ok(found)
}
