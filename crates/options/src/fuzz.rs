//! Entry points for the fuzzer: any bytes may come in, nothing may panic.

use crate::{OptionValue, Schema, Size, Sources, TomlText, parse_duration, resolve};
use atoll_errors::nearest;
use std::time::Duration;

crate::options! {
    /// One option of each type.
    struct EveryType in "every." {
        /// A size.
        size: Size = "1MiB",
        /// A duration.
        duration: Duration = "1s",
        /// A number.
        number: u32 = "1",
        /// A truth.
        truth: bool = "true",
        /// A text.
        text: String = "",
        /// Something that may be missing.
        maybe: Option<Size> = "none",
    }
}

/// Reads the bytes as a TOML file, as a pair of the environment, as a size and as a duration.
///
/// Returns whether any of them was accepted, so that a fuzzer sees that it gets past the surface.
#[must_use]
pub fn options(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let schema = Schema::new().with::<EveryType>();
    let file = TomlText { name: "fuzz.toml", text: &text };
    let accepted = resolve(&schema, &Sources { files: &[file], ..Sources::default() }).is_ok();
    let (name, value) = text.split_once('=').unwrap_or((&text, ""));
    let pair = [(format!("ATOLL_{name}"), value.to_owned())];
    let from_pair = resolve(&schema, &Sources { environment: &pair, ..Sources::default() }).is_ok();
    let size = Size::parse(&text);
    if let Ok(size) = size {
        assert_eq!(Size::parse(&size.show()), Ok(size), "a size must read back what it shows");
    }
    let similar = nearest(&text, ["every.size", "every.duration"]).is_some();
    accepted || from_pair || similar || size.is_ok() || parse_duration(&text).is_ok()
}
