//! Keys and values as arguments and as JSON fields.

use crate::Failure;
use crate::text::Encoding;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use serde_json::{Map, Value};
use std::io::Read;

/// How keys and values are written on this command line.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct EncodingArguments {
    /// How keys and values are written: text, escaped, hex or base64
    #[arg(long, value_name = "ENCODING", default_value = "text", help_heading = "Encoding")]
    encoding: Encoding,
    /// Short for --encoding escaped
    #[arg(long, conflicts_with_all = ["encoding", "hex", "base64"], help_heading = "Encoding")]
    escaped: bool,
    /// Short for --encoding hex
    #[arg(long, conflicts_with_all = ["encoding", "base64"], help_heading = "Encoding")]
    hex: bool,
    /// Short for --encoding base64
    #[arg(long, conflicts_with = "encoding", help_heading = "Encoding")]
    base64: bool,
}

impl EncodingArguments {
    /// The encoding chosen.
    pub(crate) fn chosen(self) -> Encoding {
        match self {
            Self { escaped: true, .. } => Encoding::Escaped,
            Self { hex: true, .. } => Encoding::Hex,
            Self { base64: true, .. } => Encoding::Base64,
            Self { encoding, .. } => encoding,
        }
    }

    /// The bytes of an argument.
    pub(crate) fn decode(self, what: &'static str, text: &str) -> Result<Vec<u8>, Failure> {
        self.chosen().decode(text).map_err(|source| Failure::Text { what, source })
    }

    /// The bytes of a value; `-` stands for standard input, which is taken as it is.
    pub(crate) async fn value(self, text: &str, bytes_max: u64) -> Result<Vec<u8>, Failure> {
        if text != "-" {
            return self.decode("the value", text);
        }
        // Read on a thread of its own, so that an interruption is noticed while no input arrives.
        match tokio::task::spawn_blocking(move || read_input(bytes_max)).await {
            Ok(read) => read,
            Err(_) => Err(Failure::Interrupted { exit: 130, hint: None }),
        }
    }

    /// Checks the text of a value before a store is made for it. Standard input is read only after that,
    /// because the store says how much of it.
    pub(crate) fn check_value(self, text: &str) -> Result<(), Failure> {
        if text == "-" { Ok(()) } else { self.decode("the value", text).map(drop) }
    }

    /// Bytes as one line of text.
    pub(crate) fn show(self, bytes: &[u8]) -> String {
        self.chosen().encode(bytes)
    }
}

fn read_input(bytes_max: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    // One byte more than the limit, so that the store refuses the value instead of us truncating it silently.
    let mut input = std::io::stdin().lock().take(bytes_max.saturating_add(1));
    input.read_to_end(&mut bytes).map_err(|source| Failure::File {
        action: "read",
        place: "standard input".to_owned(),
        source,
    })?;
    Ok(bytes)
}

/// How messages name a cell.
pub(crate) fn cell_name(partition: &[u8], sort: &[u8]) -> String {
    let shown = |key: &[u8]| crate::text::shortened(key, key.len() as u64);
    format!("{} {}", shown(partition), shown(sort))
}

/// Puts bytes into a JSON object: as `name` when they are UTF-8, as `name_base64` otherwise.
pub(crate) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), Value::from(text)),
        Err(_) => object.insert(format!("{name}_base64"), Value::from(STANDARD.encode(bytes))),
    };
}

/// A JSON object of named bytes.
pub(crate) fn bytes_object<'a>(fields: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Map<String, Value> {
    let mut object = Map::new();
    for (name, bytes) in fields {
        insert_bytes(&mut object, name, bytes);
    }
    object
}
