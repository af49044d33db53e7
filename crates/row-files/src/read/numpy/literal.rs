//! Python literals in the head of a NumPy file: texts, integers, booleans, tuples, lists and dictionaries.

/// A literal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Literal {
    Text(String),
    Number(u64),
    Boolean(bool),
    /// A tuple or a list.
    Sequence(Vec<Literal>),
    Dictionary(Vec<(String, Literal)>),
}

/// The deepest nesting of a head.
const DEPTH_MAX: usize = 8;

impl Literal {
    /// Parses a literal, which only white space may follow.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut rest = Rest(text.trim());
        let literal =
            rest.literal(0).ok_or_else(|| format!("its head cannot be read at {:?}", rest.shown()))?;
        if rest.0.is_empty() {
            Ok(literal)
        } else {
            Err(format!("something follows its head: {:?}", rest.shown()))
        }
    }

    /// The value of a key in a dictionary.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Dictionary(pairs) => pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value),
            _ => None,
        }
    }

    pub(super) fn text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn sequence(&self) -> Option<&[Self]> {
        if let Self::Sequence(items) = self { Some(items) } else { None }
    }

    /// A sequence of integers, or a single one.
    pub(super) fn numbers(&self) -> Option<Vec<u64>> {
        let number = |literal: &Self| if let Self::Number(number) = literal { Some(*number) } else { None };
        match self {
            Self::Sequence(items) => items.iter().map(number).collect(),
            alone => number(alone).map(|number| vec![number]),
        }
    }
}

struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn shown(&self) -> String {
        self.0.chars().take(20).collect()
    }

    fn take(&mut self, symbol: char) -> bool {
        let Some(rest) = self.0.strip_prefix(symbol) else { return false };
        self.0 = rest.trim_start();
        true
    }

    fn literal(&mut self, depth: usize) -> Option<Literal> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.0.chars().next()? {
            quote @ ('\'' | '"') => self.quoted(quote).map(Literal::Text),
            '(' => self.sequence('(', ')', depth),
            '[' => self.sequence('[', ']', depth),
            '{' => self.dictionary(depth),
            '0'..='9' => self.number(),
            _ => self.boolean(),
        }
    }

    fn quoted(&mut self, quote: char) -> Option<String> {
        let inner = self.0.strip_prefix(quote)?;
        let (text, rest) = inner.split_once(quote)?;
        if text.contains('\\') {
            return None;
        }
        let text = text.to_owned();
        self.0 = rest.trim_start();
        Some(text)
    }

    fn number(&mut self) -> Option<Literal> {
        let end = self.0.find(|character: char| !character.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        let number = digits.parse().ok()?;
        // Python 2 wrote `3L`.
        self.0 = rest.strip_prefix('L').unwrap_or(rest).trim_start();
        Some(Literal::Number(number))
    }

    fn boolean(&mut self) -> Option<Literal> {
        let (value, rest) = match self.0.strip_prefix("True") {
            Some(rest) => (true, rest),
            None => (false, self.0.strip_prefix("False")?),
        };
        self.0 = rest.trim_start();
        Some(Literal::Boolean(value))
    }

    fn sequence(&mut self, open: char, close: char, depth: usize) -> Option<Literal> {
        self.take(open);
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.literal(depth + 1)?);
            if !self.take(',') && !self.0.starts_with(close) {
                return None;
            }
        }
        Some(Literal::Sequence(items))
    }

    fn dictionary(&mut self, depth: usize) -> Option<Literal> {
        self.take('{');
        let mut pairs = Vec::new();
        while !self.take('}') {
            let quote = self.0.chars().next().filter(|quote| "'\"".contains(*quote))?;
            let key = self.quoted(quote)?;
            if !self.take(':') {
                return None;
            }
            pairs.push((key, self.literal(depth + 1)?));
            if !self.take(',') && !self.0.starts_with('}') {
                return None;
            }
        }
        Some(Literal::Dictionary(pairs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_as_numpy_writes_them_are_read() {
        let head = Literal::parse(
            "{'descr': [('x', '<f8'), ('pos', '<f4', (3,))], 'fortran_order': False, 'shape': (5,), }  \n",
        );
        let head = head.unwrap();
        assert_eq!(head.get("shape").and_then(Literal::numbers), Some(vec![5]));
        assert_eq!(head.get("fortran_order"), Some(&Literal::Boolean(false)));
        let fields = head.get("descr").and_then(Literal::sequence).unwrap();
        assert_eq!(fields[1].sequence().unwrap()[2].numbers(), Some(vec![3]));
    }

    #[test]
    fn nonsense_is_refused() {
        let deep = "(".repeat(100);
        for text in
            ["", "{", "{'a'}", "{'a': }", "(1 2)", "'open", "None", "1 2", "99999999999999999999", &deep]
        {
            assert!(Literal::parse(text).is_err(), "{text}");
        }
    }
}
