//! Names that users give to tables and columns.

/// Maximum length of a name, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// The reason why a name is invalid, or `None` if it is valid.
pub(crate) fn problem(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("it is empty")
    } else if name.len() > NAME_BYTES_MAX {
        Some("it is longer than 255 bytes")
    } else if name.chars().any(char::is_control) {
        Some("it holds a control character")
    } else {
        None
    }
}
