//! The native half of the Python package: conversions only.
//!
//! Questions arrive here as plain values and arrays, are passed to the crates below, and return as Arrow
//! columns that any tool takes without a copy. The names, defaults and documentation that users see are in
//! the Python modules beside it (`python/atoll`).
//!
//! Invariant: the interpreter lock is never held during a wait for a store or during work on rows.
//! Invariant: only `capsule.rs` trusts a pointer, and only from a capsule of the Arrow PyCapsule interface.

mod ask;
mod capsule;
mod column;
mod conform;
mod error;
mod estimate;
mod input;
mod loader;
mod packer;
mod pickled;
mod refinement;
mod rows;
mod runtime;
mod scan;
mod schema;
mod store;
mod table;

use pyo3::prelude::*;

/// The native half of the package `atoll`.
#[pymodule]
fn _atoll(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<store::Store>()?;
    module.add_class::<table::Table>()?;
    module.add_class::<packer::Packer>()?;
    module.add_class::<loader::Loader>()?;
    module.add_class::<refinement::Refinement>()?;
    module.add_class::<scan::Scan>()?;
    module.add_class::<rows::Rows>()?;
    module.add_class::<column::Column>()?;
    module.add_class::<schema::Schema>()?;
    module.add_function(wrap_pyfunction!(error::error_kinds, module)?)?;
    module.add_function(wrap_pyfunction!(ask::condition, module)?)?;
    module.add_function(wrap_pyfunction!(ask::box_condition, module)?)?;
    module.add_function(wrap_pyfunction!(ask::checked_cell, module)?)?;
    module.add_function(wrap_pyfunction!(ask::near_condition, module)?)?;
    module.add_function(wrap_pyfunction!(ask::wrapped_condition, module)?)?;
    module.add_function(wrap_pyfunction!(ask::check_window, module)?)?;
    module.add_function(wrap_pyfunction!(estimate::estimate, module)?)?;
    module.add_function(wrap_pyfunction!(estimate::estimate_groups, module)?)?;
    module.add_function(wrap_pyfunction!(estimate::estimate_histogram, module)?)?;
    module.add_function(wrap_pyfunction!(table::union, module)?)?;
    module.add_function(wrap_pyfunction!(schema::fields, module)?)?;
    module.add_function(wrap_pyfunction!(schema::type_name, module)?)?;
    module.add_function(wrap_pyfunction!(pickled::rows_of_stream, module)?)?;
    module.add_function(wrap_pyfunction!(pickled::schema_of_stream, module)?)?;
    module.add_function(wrap_pyfunction!(input::alike, module)?)?;
    module.add_function(wrap_pyfunction!(input::nothing, module)?)?;
    module.add_function(wrap_pyfunction!(input::rows, module)?)
}
