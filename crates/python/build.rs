//! Tells the linker what the platform needs of a library that an interpreter loads.

// Cargo speaks to build scripts through the environment.
#![allow(clippy::disallowed_methods)]

fn main() {
    // On macOS symbols of the interpreter are found when it loads the library.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "macos") {
        println!("cargo::rustc-cdylib-link-arg=-undefined");
        println!("cargo::rustc-cdylib-link-arg=dynamic_lookup");
    }
}
