//! The parser: precedence climbing over tokens, with a limit on nesting.
//!
//! From the loosest to the tightest: `or`, `and`, `not`, comparisons (`= < between in is`, which do not
//! chain), `+ -`, `* / %`, unary `-`.
//!
//! Invariant: both the recursion of the parser and the height of what it returns are at most [`DEPTH_MAX`].

use super::error::{ExpressionError, Problem, shortened};
use super::literal::{Typing, is_reserved};
use super::token::{Lexer, Token, TokenKind};
use super::{
    Arithmetic, Cell, Column, Comparison, DEPTH_MAX, Expression, Function, LENGTH_MAX, Literal, Near, instant,
};
use atoll_errors::nearest;
use std::ops::Range;

/// An expression and its height: 1 for a literal or a column.
type Parsed = Result<(Expression, usize), ExpressionError>;

pub(super) fn parse(text: &str) -> Result<Expression, ExpressionError> {
    whole(Parser::new(text)?)
}

/// As [`parse`], without a limit on the length of the text.
pub(super) fn parse_any_length(text: &str) -> Result<Expression, ExpressionError> {
    whole(Parser::of_any_length(text)?)
}

fn whole(mut parser: Parser<'_>) -> Result<Expression, ExpressionError> {
    let (expression, _) = parser.disjunction()?;
    match parser.token.kind {
        TokenKind::End => Ok(expression),
        _ => Err(parser.unexpected("`and`, `or` or the end")),
    }
}

/// A text with one token of lookahead.
pub(super) struct Parser<'a> {
    lexer: Lexer<'a>,
    token: Token,
    /// The present depth of the recursion.
    depth: usize,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str) -> Result<Self, ExpressionError> {
        if text.len() > LENGTH_MAX {
            return Err(ExpressionError::new(Problem::TooLong { bytes: text.len() }, "", 0..0));
        }
        Self::of_any_length(text)
    }

    fn of_any_length(text: &'a str) -> Result<Self, ExpressionError> {
        let mut lexer = Lexer::new(text);
        let token = lexer.next()?;
        Ok(Self { lexer, token, depth: 0 })
    }

    /// `a or b or c`
    fn disjunction(&mut self) -> Parsed {
        let first = self.conjunction()?;
        self.chain("or", first, Self::conjunction, Expression::Or)
    }

    /// `a and b and c`
    fn conjunction(&mut self) -> Parsed {
        let first = self.negation()?;
        self.chain("and", first, Self::negation, Expression::And)
    }

    fn chain(
        &mut self,
        word: &str,
        first: (Expression, usize),
        next: fn(&mut Self) -> Parsed,
        join: fn(Vec<Expression>) -> Expression,
    ) -> Parsed {
        if !self.is_word(word) {
            return Ok(first);
        }
        let (expression, mut height) = first;
        let mut parts = vec![expression];
        while self.take_word(word)? {
            let (part, part_height) = next(self)?;
            parts.push(part);
            height = height.max(part_height);
        }
        self.raised(join(parts), height)
    }

    /// `not a`
    fn negation(&mut self) -> Parsed {
        if !self.take_word("not")? {
            return self.comparison();
        }
        let (value, height) = self.nested(Self::negation)?;
        self.raised(Expression::Not(Box::new(value)), height)
    }

    /// `a < b`, `a in (1, 2)` and the like, at most one of them.
    fn comparison(&mut self) -> Parsed {
        let start = self.token.span.start;
        let value = self.sum()?;
        if !self.is_at_comparison() {
            return Ok(value);
        }
        let compared = self.compared(value)?;
        if self.is_at_comparison() {
            return Err(self.fail(Problem::Chained, start..self.token.span.end));
        }
        Ok(compared)
    }

    fn is_at_comparison(&self) -> bool {
        self.comparison_symbol().is_some()
            || ["not", "between", "in", "is"].iter().any(|word| self.is_word(word))
    }

    fn comparison_symbol(&self) -> Option<Comparison> {
        let TokenKind::Symbol(symbol) = self.token.kind else { return None };
        let symbol = if symbol == "<>" { "!=" } else { symbol };
        Comparison::ALL.into_iter().find(|comparison| comparison.symbol() == symbol)
    }

    fn compared(&mut self, value: (Expression, usize)) -> Parsed {
        let (value, height) = (Box::new(value.0), value.1);
        if let Some(comparison) = self.comparison_symbol() {
            self.advance()?;
            let (right, right_height) = self.sum()?;
            return self
                .raised(Expression::Compare(value, comparison, Box::new(right)), height.max(right_height));
        }
        if self.take_word("is")? {
            let is_negated = self.take_word("not")?;
            if self.take_word("null")? {
                return self.raised(Expression::IsNull { value, is_negated }, height);
            }
            self.expect_word("nan", "`null` or `nan`")?;
            return self.raised(Expression::IsNan { value, is_negated }, height);
        }
        let is_negated = self.take_word("not")?;
        if self.take_word("in")? {
            let list = self.list()?;
            return self.raised(Expression::In { value, list, is_negated }, height);
        }
        self.expect_word("between", "`in` or `between`")?;
        let (low, low_height) = self.sum()?;
        self.expect_word("and", "`and` with the upper end of `between`")?;
        let (high, high_height) = self.sum()?;
        let between = Expression::Between { value, low: Box::new(low), high: Box::new(high), is_negated };
        self.raised(between, height.max(low_height).max(high_height))
    }

    /// `(1, 2, 3)`
    fn list(&mut self) -> Result<Vec<Literal>, ExpressionError> {
        let open = self.token.span.clone();
        self.expect_symbol("(", "a list such as (1, 2, 3)")?;
        let mut list = vec![self.literal()?];
        while self.take_symbol(",")? {
            list.push(self.literal()?);
        }
        self.close(open, "`,` or `)`")?;
        Ok(list)
    }

    /// A literal, where nothing else may stand.
    pub(super) fn literal(&mut self) -> Result<Literal, ExpressionError> {
        const EXPECTED: &str = "a number, a 'text' or another literal";
        if self.is_symbol("-") {
            let minus = self.advance()?;
            return match self.negative(minus.span)? {
                Some(literal) => Ok(literal),
                None => Err(self.unexpected("a number")),
            };
        }
        if self.take_word("timestamp")? {
            return if self.is_text() { self.timestamp() } else { Err(self.unexpected("a 'text'")) };
        }
        match self.positive()? {
            Some(literal) => Ok(literal),
            None => Err(self.unexpected(EXPECTED)),
        }
    }

    /// A literal without a sign, if the next token is one.
    fn positive(&mut self) -> Result<Option<Literal>, ExpressionError> {
        let literal = match &self.token.kind {
            TokenKind::Integer(value) => Literal::Integer(i128::from(*value)),
            TokenKind::Float(value) => Literal::Float(*value),
            TokenKind::Text(text) => Literal::Text(text.clone()),
            TokenKind::Word(word) => match word.to_ascii_lowercase().as_str() {
                "true" => Literal::Boolean(true),
                "false" => Literal::Boolean(false),
                "null" => Literal::Null,
                "nan" => Literal::Float(f64::NAN),
                "inf" => Literal::Float(f64::INFINITY),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        self.advance()?;
        Ok(Some(literal))
    }

    /// The number after a minus, if the next token is one: the least 64-bit integer can be written only in
    /// this way.
    fn negative(&mut self, minus: Range<usize>) -> Result<Option<Literal>, ExpressionError> {
        let literal = match &self.token.kind {
            TokenKind::Integer(value) => Literal::Integer(-i128::from(*value)),
            TokenKind::Float(value) => Literal::Float(-value),
            TokenKind::Word(word) if word.eq_ignore_ascii_case("inf") => Literal::Float(f64::NEG_INFINITY),
            TokenKind::Word(word) if word.eq_ignore_ascii_case("nan") => Literal::Float(f64::NAN),
            _ => return Ok(None),
        };
        let span = minus.start..self.token.span.end;
        if matches!(literal, Literal::Integer(value) if !Literal::INTEGERS.contains(&value)) {
            let text = literal.to_string();
            return Err(self.fail(Problem::IntegerRange { text }, span));
        }
        self.advance()?;
        Ok(Some(literal))
    }

    /// `a + b - c`
    fn sum(&mut self) -> Parsed {
        let first = self.product()?;
        self.climb(first, &[Arithmetic::Add, Arithmetic::Subtract], Self::product)
    }

    /// `a * b / c`
    fn product(&mut self) -> Parsed {
        let first = self.signed()?;
        self.climb(first, &[Arithmetic::Multiply, Arithmetic::Divide, Arithmetic::Modulo], Self::signed)
    }

    fn climb(
        &mut self,
        mut left: (Expression, usize),
        operators: &[Arithmetic],
        next: fn(&mut Self) -> Parsed,
    ) -> Parsed {
        while let Some(operator) = operators.iter().find(|operator| self.is_symbol(operator.symbol())) {
            self.advance()?;
            let (right, right_height) = next(self)?;
            let both = Expression::Arithmetic(Box::new(left.0), *operator, Box::new(right));
            left = self.raised(both, left.1.max(right_height))?;
        }
        Ok(left)
    }

    /// `-a`
    fn signed(&mut self) -> Parsed {
        if !self.is_symbol("-") {
            return self.primary();
        }
        let minus = self.advance()?;
        if let Some(literal) = self.negative(minus.span)? {
            return Ok((Expression::Literal(literal), 1));
        }
        let (value, height) = self.nested(Self::signed)?;
        self.raised(Expression::Negate(Box::new(value)), height)
    }

    /// A literal, a column, a call or something in parentheses.
    fn primary(&mut self) -> Parsed {
        if self.is_symbol("(") {
            let open = self.advance()?;
            let inner = self.nested(Self::disjunction)?;
            self.close(open.span, "an operator or `)`")?;
            return Ok(inner);
        }
        if let Some(literal) = self.positive()? {
            return Ok((Expression::Literal(literal), 1));
        }
        if !self.is_name() {
            return Err(self.unexpected("a column, a literal or `(`"));
        }
        let Token { kind, span } = self.advance()?;
        match kind {
            TokenKind::Word(word) if self.is_symbol("(") => self.call(&word, span),
            TokenKind::Word(word) if self.is_text() && word.eq_ignore_ascii_case("timestamp") => {
                Ok((Expression::Literal(self.timestamp()?), 1))
            }
            kind => Ok((Expression::Column(self.element_of(kind)?), 1)),
        }
    }

    /// A column, where nothing else may stand.
    pub(super) fn column(&mut self) -> Result<Column, ExpressionError> {
        if !self.is_name() {
            return Err(self.unexpected("a column"));
        }
        let name = self.advance()?;
        self.element_of(name.kind)
    }

    fn is_name(&self) -> bool {
        match &self.token.kind {
            TokenKind::Word(word) => !is_reserved(word),
            TokenKind::Quoted(_) => true,
            _ => false,
        }
    }

    fn is_text(&self) -> bool {
        matches!(self.token.kind, TokenKind::Text(_))
    }

    /// `'2026-01-01'`, after the word.
    fn timestamp(&mut self) -> Result<Literal, ExpressionError> {
        let Token { kind: TokenKind::Text(text), span } = self.advance()? else {
            return Err(self.unexpected("a 'text'"));
        };
        let fail = |problem| self.fail(Problem::Timestamp { text: shortened(&text), problem }, span);
        instant::parse(&text).map(Literal::Timestamp).map_err(fail)
    }

    /// `[0]` or nothing, after the name of a column.
    fn element_of(&mut self, name: TokenKind) -> Result<Column, ExpressionError> {
        let typing = Typing { is_quoted: matches!(name, TokenKind::Quoted(_)) };
        let (TokenKind::Word(name) | TokenKind::Quoted(name)) = name else {
            return Err(self.unexpected("a column"));
        };
        let open = self.token.span.clone();
        if !self.take_symbol("[")? {
            return Ok(Column { typing, ..Column::named(name) });
        }
        let TokenKind::Integer(element) = self.token.kind else {
            return Err(self.unexpected("the number of an element, from 0"));
        };
        let Ok(element) = u32::try_from(element) else {
            let text = element.to_string();
            return Err(self.fail(Problem::IntegerRange { text }, self.token.span.clone()));
        };
        self.advance()?;
        if !self.take_symbol("]")? {
            return Err(self.unclosed(open, "the bracket", "`]`"));
        }
        Ok(Column { typing, ..Column::element(name, element) })
    }

    /// `(value)`, after the name of a function.
    fn call(&mut self, name: &str, span: Range<usize>) -> Parsed {
        if name.eq_ignore_ascii_case("near") {
            return self.near(span.start);
        }
        let names = Function::ALL.map(Function::name);
        let Some(function) = Function::ALL.into_iter().find(|known| name.eq_ignore_ascii_case(known.name()))
        else {
            let nearest = nearest(name, names).map(str::to_owned);
            return Err(self.fail(Problem::UnknownFunction { name: shortened(name), nearest }, span));
        };
        let open = self.advance()?;
        let (value, height) = self.nested(Self::disjunction)?;
        self.close(open.span, "an operator or `)`")?;
        self.raised(Expression::Call(function, Box::new(value)), height)
    }

    /// `((x, y, z), (1.0, 2.0, 3.0), 0.5, cell(10, 10, 10))`, after the word `near`.
    fn near(&mut self, start: usize) -> Parsed {
        let open = self.advance()?;
        let columns = if self.is_symbol("(") { self.listed(Self::column)? } else { vec![self.column()?] };
        self.expect_symbol(",", "`,` and a point such as (1.0, 2.0, 3.0)")?;
        let point = self.listed(Self::number)?;
        self.expect_symbol(",", "`,` and a radius")?;
        let radius = self.number()?;
        let cell = if self.take_symbol(",")? { Some(self.cell(point.len())?) } else { None };
        let end = self.token.span.end;
        self.close(open.span, "`,` and a cell, or `)`")?;
        let near = Near::new(columns, &point, radius, cell);
        let near = near.map_err(|problem| self.fail(Problem::Near { problem }, start..end))?;
        Ok((Expression::Near(Box::new(near)), 1))
    }

    /// `cell(10, 10, 10)`, with tilts after the lengths; one length for each axis of the point.
    pub(super) fn cell(&mut self, axes: usize) -> Result<Cell, ExpressionError> {
        let start = self.token.span.start;
        self.expect_word("cell", "a cell such as cell(10, 10, 10)")?;
        let numbers = self.listed(Self::number)?;
        let (lengths, tilts) = numbers.split_at(axes.min(numbers.len()));
        let end = self.token.span.start;
        Cell::new(lengths, tilts).map_err(|problem| self.fail(Problem::Near { problem }, start..end))
    }

    /// A list in parentheses, `(1, 2, 3)`, of any items.
    fn listed<T>(
        &mut self,
        next: impl Fn(&mut Self) -> Result<T, ExpressionError>,
    ) -> Result<Vec<T>, ExpressionError> {
        let open = self.token.span.clone();
        self.expect_symbol("(", "a list such as (1, 2, 3)")?;
        let mut list = vec![next(self)?];
        while self.take_symbol(",")? {
            list.push(next(self)?);
        }
        self.close(open, "`,` or `)`")?;
        Ok(list)
    }

    /// A number as a double.
    fn number(&mut self) -> Result<f64, ExpressionError> {
        let span = self.token.span.clone();
        match self.literal()? {
            Literal::Integer(value) => Ok(value as f64),
            Literal::Float(value) => Ok(value),
            _ => Err(self.fail(Problem::Near { problem: "a number was expected" }, span)),
        }
    }

    /// Parses one level deeper, unless that is too deep.
    fn nested(&mut self, parse: fn(&mut Self) -> Parsed) -> Parsed {
        self.depth += 1;
        if self.depth >= DEPTH_MAX {
            return Err(self.fail(Problem::TooDeep, self.token.span.clone()));
        }
        let parsed = parse(self)?;
        self.depth -= 1;
        Ok(parsed)
    }

    /// An expression that is one level higher than its highest part.
    fn raised(&self, expression: Expression, height: usize) -> Parsed {
        match height < DEPTH_MAX {
            true => Ok((expression, height + 1)),
            false => Err(self.fail(Problem::TooDeep, self.token.span.clone())),
        }
    }

    /// Takes the current token and reads the next one.
    pub(super) fn advance(&mut self) -> Result<Token, ExpressionError> {
        let next = self.lexer.next()?;
        Ok(std::mem::replace(&mut self.token, next))
    }

    pub(super) fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.token.kind, TokenKind::Symbol(found) if found == symbol)
    }

    pub(super) fn is_end(&self) -> bool {
        self.token.kind == TokenKind::End
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.token.kind, TokenKind::Word(found) if found.eq_ignore_ascii_case(word))
    }

    pub(super) fn take_symbol(&mut self, symbol: &str) -> Result<bool, ExpressionError> {
        let is_next = self.is_symbol(symbol);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    fn take_word(&mut self, word: &str) -> Result<bool, ExpressionError> {
        let is_next = self.is_word(word);
        if is_next {
            self.advance()?;
        }
        Ok(is_next)
    }

    pub(super) fn expect_symbol(
        &mut self,
        symbol: &str,
        expected: &'static str,
    ) -> Result<(), ExpressionError> {
        if self.take_symbol(symbol)? { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn expect_word(&mut self, word: &str, expected: &'static str) -> Result<(), ExpressionError> {
        if self.take_word(word)? { Ok(()) } else { Err(self.unexpected(expected)) }
    }

    fn close(&mut self, open: Range<usize>, expected: &'static str) -> Result<(), ExpressionError> {
        if self.take_symbol(")")? { Ok(()) } else { Err(self.unclosed(open, "the parenthesis", expected)) }
    }

    /// The error for a missing closing token: it points at the opening one if the text ends here.
    fn unclosed(&self, open: Range<usize>, what: &'static str, expected: &'static str) -> ExpressionError {
        match self.token.kind {
            TokenKind::End => self.fail(Problem::Unclosed { what }, open),
            _ => self.unexpected(expected),
        }
    }

    pub(super) fn unexpected(&self, expected: &'static str) -> ExpressionError {
        let span = self.token.span.clone();
        let found = match self.token.kind {
            TokenKind::End if self.lexer.text().trim().is_empty() => "there is nothing".to_owned(),
            TokenKind::End => "the text ends".to_owned(),
            _ => format!("`{}` was found", shortened(&self.lexer.text()[span.clone()])),
        };
        self.fail(Problem::Unexpected { found, expected }, span)
    }

    pub(super) fn fail(&self, problem: Problem, span: Range<usize>) -> ExpressionError {
        ExpressionError::new(problem, self.lexer.text(), span)
    }

    pub(super) fn span(&self) -> Range<usize> {
        self.token.span.clone()
    }
}
