//! Replies, as a client reads them.

/// A reply.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A short text on one line, such as `OK`.
    Simple(Vec<u8>),
    /// An error: a word for programs, and a sentence for people.
    Error(Vec<u8>),
    /// An integer.
    Integer(i64),
    /// A floating-point number.
    Double(f64),
    /// A truth value.
    Boolean(bool),
    /// An integer of any length, as it was written.
    BigNumber(Vec<u8>),
    /// Bytes.
    String(Vec<u8>),
    /// A text, with three bytes that name its format.
    Text([u8; 3], Vec<u8>),
    /// No value.
    Null,
    /// Replies in order.
    Array(Vec<Value>),
    /// Replies in no order.
    Set(Vec<Value>),
    /// Pairs, in the order in which they came.
    Map(Vec<(Value, Value)>),
    /// An out-of-band message, which answers no request.
    Push(Vec<Value>),
}

impl Value {
    /// The bytes of a string or a text of any kind.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(bytes) | Self::String(bytes) | Self::Text(_, bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The first word of an error.
    #[must_use]
    pub fn error_word(&self) -> Option<&[u8]> {
        match self {
            Self::Error(text) => text.split(|&byte| byte == b' ').next(),
            _ => None,
        }
    }
}
