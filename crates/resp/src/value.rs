//! Replies, as a client reads them.

/// A reply.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A short text in one line, such as `OK`.
    Simple(Vec<u8>),
    /// An error: a word that programs look at, and a sentence.
    Error(Vec<u8>),
    /// A whole number.
    Integer(i64),
    /// A number with a fraction.
    Double(f64),
    /// A truth value.
    Boolean(bool),
    /// A whole number of any length, as it was written.
    BigNumber(Vec<u8>),
    /// Bytes.
    String(Vec<u8>),
    /// Bytes of a text, whose first three say what kind.
    Text([u8; 3], Vec<u8>),
    /// Nothing.
    Null,
    /// Replies in order.
    Array(Vec<Value>),
    /// Replies in no order.
    Set(Vec<Value>),
    /// Pairs, in the order in which they came.
    Map(Vec<(Value, Value)>),
    /// What nobody asked for just now.
    Push(Vec<Value>),
}

impl Value {
    /// The bytes of a string or a text, whichever it is.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Simple(bytes) | Self::String(bytes) | Self::Text(_, bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The word that an error begins with.
    #[must_use]
    pub fn error_word(&self) -> Option<&[u8]> {
        match self {
            Self::Error(text) => text.split(|&byte| byte == b' ').next(),
            _ => None,
        }
    }
}
