//! The lexer: tokens of the grammar, one at a time.
//!
//! Invariant: a token knows the bytes that it came from; these begin and end between characters.

use super::error::{ExpressionError, Problem, shortened};
use super::literal::{continues_word, starts_word};
use std::ops::Range;

/// The kind of a token.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum TokenKind {
    /// A name or a keyword.
    Word(String),
    /// `"odd name"`, always a column.
    Quoted(String),
    /// `'text'`.
    Text(String),
    /// Digits alone.
    Integer(u64),
    /// Digits with a point or an exponent.
    Float(f64),
    /// One of [`SYMBOLS`].
    Symbol(&'static str),
    /// The end of the text.
    End,
}

/// A token and its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    pub(super) span: Range<usize>,
}

/// All symbols; longer ones precede those that are their prefixes.
const SYMBOLS: [&str; 18] =
    ["!=", "<>", "<=", ">=", "=", "<", ">", "+", "-", "*", "/", "%", "(", ")", "[", "]", ",", ":"];

/// Symbols from other languages, and their equivalents here.
const FOREIGN_SYMBOLS: [(&str, &str); 12] = [
    ("&&", "and"),
    ("||", "or"),
    ("=>", ">="),
    ("=<", "<="),
    ("=~", "="),
    ("**", "*"),
    ("//", "/"),
    ("&", "and"),
    ("|", "or"),
    ("!", "not"),
    ("`", "\""),
    ("“", "\""),
];

/// Splits a text into tokens.
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// The next token; [`TokenKind::End`] at the end of the text and ever after.
    pub(super) fn next(&mut self) -> Result<Token, ExpressionError> {
        let rest = self.text[self.at..].trim_start();
        let start = self.text.len() - rest.len();
        let mut characters = rest.chars();
        let kind = match (characters.next(), characters.next()) {
            (None, _) => {
                self.at = start;
                TokenKind::End
            }
            (Some('\''), _) => TokenKind::Text(self.quoted(start, '\'')?),
            (Some('"'), _) => TokenKind::Quoted(self.quoted(start, '"')?),
            (Some('0'..='9'), _) | (Some('.'), Some('0'..='9')) => self.number(start)?,
            (Some(first), _) if starts_word(first) => {
                let length = rest.find(|character| !continues_word(character)).unwrap_or(rest.len());
                self.at = start + length;
                TokenKind::Word(rest[..length].to_owned())
            }
            (Some(first), _) => self.symbol(start, first)?,
        };
        Ok(Token { kind, span: start..self.at })
    }

    fn fail(&self, problem: Problem, span: Range<usize>) -> ExpressionError {
        ExpressionError::new(problem, self.text, span)
    }

    /// The text between two marks; a doubled mark stands for one mark in the content.
    fn quoted(&mut self, start: usize, mark: char) -> Result<String, ExpressionError> {
        let mut content = String::new();
        let mut rest = &self.text[start + 1..];
        loop {
            let Some(end) = rest.find(mark) else {
                let what =
                    if mark == '"' { "the name in double quotes" } else { "the text in single quotes" };
                return Err(self.fail(Problem::Unclosed { what }, start..self.text.len()));
            };
            content.push_str(&rest[..end]);
            rest = &rest[end + 1..];
            let Some(behind) = rest.strip_prefix(mark) else { break };
            content.push(mark);
            rest = behind;
        }
        self.at = self.text.len() - rest.len();
        Ok(content)
    }

    fn number(&mut self, start: usize) -> Result<TokenKind, ExpressionError> {
        let bytes = self.text.as_bytes();
        let digits_from = |mut at: usize| {
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            at
        };
        let mut end = digits_from(start);
        let mut is_whole = true;
        if bytes.get(end) == Some(&b'.') {
            (is_whole, end) = (false, digits_from(end + 1));
        }
        let mut is_number = true;
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let digits = end + 1 + usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            (is_whole, end) = (false, digits_from(digits));
            is_number = end > digits;
        }
        let rest = &self.text[end..];
        let joined = |character| continues_word(character) || character == '.';
        let tail = rest.find(|character| !joined(character)).unwrap_or(rest.len());
        self.at = end + tail;
        let span = start..self.at;
        let text = &self.text[span.clone()];
        let malformed = || Problem::Number { text: shortened(text) };
        if tail > 0 || !is_number {
            return Err(self.fail(malformed(), span));
        }
        if is_whole {
            let beyond = |_| self.fail(Problem::IntegerRange { text: shortened(text) }, span);
            return text.parse::<u64>().map(TokenKind::Integer).map_err(beyond);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(TokenKind::Float(value)),
            Ok(_) => Err(self.fail(Problem::FloatRange { text: shortened(text) }, span)),
            Err(_) => Err(self.fail(malformed(), span)),
        }
    }

    fn symbol(&mut self, start: usize, first: char) -> Result<TokenKind, ExpressionError> {
        let rest = &self.text[start..];
        if rest.starts_with("==") {
            self.at = start + 2;
            return Ok(TokenKind::Symbol("="));
        }
        let habit =
            FOREIGN_SYMBOLS.iter().find(|(habit, _)| rest.starts_with(habit) && !rest.starts_with("!="));
        if let Some((habit, instead)) = habit {
            let problem = Problem::Symbol { found: (*habit).to_owned(), instead: Some(*instead) };
            return Err(self.fail(problem, start..start + habit.len()));
        }
        match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
            Some(symbol) => {
                self.at = start + symbol.len();
                Ok(TokenKind::Symbol(symbol))
            }
            None => {
                let problem = Problem::Symbol { found: first.to_string(), instead: None };
                Err(self.fail(problem, start..start + first.len_utf8()))
            }
        }
    }
}
