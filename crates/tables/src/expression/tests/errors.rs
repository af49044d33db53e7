//! Errors say what is wrong, where, and what would be right.

use super::super::{Expression, ExpressionError, parse_box};
use super::rows;

/// Checks that the error is about exactly these bytes, and has this text and this hint.
fn check(error: &ExpressionError, place: &str, says: &str, hints: &str) {
    let rendered = error.render();
    assert_eq!(&error.text()[error.span()], place, "{rendered}");
    assert!(error.to_string().contains(says), "{rendered}");
    assert!(error.hint().unwrap_or_default().contains(hints), "{rendered}");
    assert_eq!(error.hint().is_none(), hints.is_empty(), "{rendered}");
}

fn check_parse(text: &str, place: &str, says: &str, hints: &str) {
    check(&Expression::parse(text).expect_err(text), place, says, hints);
}

fn check_bind(text: &str, place: &str, says: &str, hints: &str) {
    let expression = Expression::parse(text).unwrap();
    check(&expression.bind(&rows::schema()).expect_err(text), place, says, hints);
}

fn check_box(text: &str, place: &str, says: &str, hints: &str) {
    check(&parse_box(text).expect_err(text), place, says, hints);
}

#[test]
fn a_slip_is_pointed_at_with_what_would_be_right() {
    check_parse("a = 1 && b = 2", "&&", "not part of the grammar", "`and`");
    check_parse("a => 1", "=>", "not part of the grammar", "`>=`");
    check_parse("!a", "!", "not part of the grammar", "`not`");
    check_parse("`a` = 1", "`", "not part of the grammar", "double quotes");
    check_parse("a # 1", "#", "`#` is not part of the grammar", "");
    check_parse("0 < a < 1", "0 < a <", "chained", "`a < b and b < c`");
    check_parse("a = 'it", "'it", "never closed", "twice");
    check_parse("a = 1 or (b = 2 and (c = 3)", "(", "parenthesis is never closed", "");
    check_parse("sqr(a) > 1", "sqr", "no function `sqr`", "sqrt");
    check_parse("length(a) > 1", "length", "no function", "abs, sqrt");
    check_parse("a = 12abc", "12abc", "not a number", "without separators");
    check_parse("a = 1.2.3", "1.2.3", "not a number", "2e-3");
    check_parse("a = 18446744073709551616", "18446744073709551616", "64-bit integers", "decimal point");
    check_parse("a = -9223372036854775809", "-9223372036854775809", "64-bit integers", "decimal point");
    check_parse("a = 1e999", "1e999", "beyond the range of doubles", "inf");
    check_parse("a > timestamp '2026-02-30'", "'2026-02-30'", "no such day", "2026-01-01T12:30:00Z");
    check_parse("a = not b", "not", "`not` was found", "parentheses");
    check_parse("a b", "b", "`and`, `or` or the end was expected, but `b` was found", "");
    check_parse("a is 5", "5", "`null` or `nan` was expected", "");
    check_parse("a in ()", ")", "another literal was expected", "");
    check_parse("a in (b)", "b", "another literal was expected", "");
    check_parse("a between 1", "", "`and` with the upper end", "");
    check_parse("a[-1] = 1", "-", "the number of an element", "");
    check_parse("a[0 = 1", "=", "`]` was expected", "");
    check_parse("  ", "", "there is nothing", "");
    check_parse("a =", "", "the text ends", "");
}

#[test]
fn what_does_not_fit_the_schema_is_named() {
    check_bind("i64==1 and millo>2", "millo", "no column \"millo\"", "milli");
    check_bind("\"odd nam\" = 1", "\"odd nam\"", "no column \"odd nam\"", "\"odd name\"");
    check_bind("zz > 1", "zz", "no column \"zz\"", "there are: i8, i16, i32");
    check_bind("word = \"quoted\"", "\"quoted\"", "no column \"quoted\"", "'single quotes'");
    check_bind(
        "flag and (i64 = '1' or f64 < 2)",
        "i64 = '1'",
        "an integer cannot be compared with a text",
        "quotes",
    );
    check_bind("word < 1.5", "word < 1.5", "a text cannot be compared with a float", "quotes");
    check_bind("nano > '2026-01-01'", "nano > '2026-01-01'", "a timestamp cannot", "timestamp '2026");
    check_bind("word + 1 = 2", "word", "a number was expected, but this is a text", "");
    check_bind("i64 + 1", "i64 + 1", "a condition was expected, but this is an integer", "`x > 0`");
    check_bind("flag or i64", "i64", "a condition was expected", "`x > 0`");
    check_bind("pos > 1", "pos", "pos is a vector of 3", "pos[0]");
    check_bind("pos[3] > 1", "pos[3]", "3 elements", "");
    check_bind("i64[0] > 1", "i64[0]", "not a vector column, but int64", "i64 alone");
    check_bind("blob = 'a'", "blob", "the type binary", "");
    check_bind("i64 is nan", "i64", "a float was expected, but this is an integer", "never NaN");
    check_bind("flag in (true)", "flag", "this is a condition", "");
    check_bind("i64 in (1, 'a')", "i64 in (1, 'a')", "an integer cannot be compared with a text", "quotes");
    check_bind("null + word = 1", "word", "a number was expected", "");
}

#[test]
fn a_text_in_double_quotes_is_shown_as_it_was_typed_and_told_how_it_is_written() {
    // A column with a similar name is not what the user means.
    let error = Expression::parse("i64 > 1 and word = \"wor\"").unwrap().bind(&rows::schema()).unwrap_err();
    assert_eq!(
        error.render(),
        "there is no column \"wor\"\n  i64 > 1 and word = \"wor\"\n                     ^^^^^\n\
         hint: a text is written in 'single quotes', and only the name of a column in \"double quotes\""
    );
    // If the mistake is elsewhere, the quotes of a name have no part in it, but are shown.
    check_bind("\"word\" = 'a' and millo > 2", "millo", "no column \"millo\"", "milli");
    check_bind("\"i64\"[0] > 1", "\"i64\"[0]", "not a vector column", "i64 alone");
    let (quoted, plain) =
        (Expression::parse("\"word\" = 'a'").unwrap(), Expression::parse("word = 'a'").unwrap());
    assert_eq!(quoted, plain);
    assert_eq!(quoted.to_string(), "word = 'a'");
}

#[test]
fn a_box_that_makes_no_sense_is_refused() {
    check_box("x=1:0", "1:0", "begins at 1 and ends at 0", "low:high");
    check_box(
        "x=9007199254740993:9007199254740992.0",
        "9007199254740993:9007199254740992.0",
        "ends at",
        "low",
    );
    check_box("x=0:1,y=0:1,x=2:3", "x=2:3", "x has two ranges", "");
    check_box("x=0", "", "`:` and the end of the range", "");
    check_box("x", "", "a range such as 0:1", "");
    check_box("x=0:1 y=0:1", "y", "`,` or the end", "");
    check_box("x=0:1,", "", "a column was expected", "");
    check_box("", "", "there is nothing", "");
    check_box("x=null:1", "null", "cannot begin or end with null", "");
    check_box("x=0:nan", "nan", "cannot begin or end with nan", "");
    check_box("x=0:'a'", "0:'a'", "an integer cannot be compared with a text", "quotes");
    check_box("x=a:1", "a", "another literal was expected", "");
    assert!(parse_box("x=1:1").is_ok());
}

#[test]
fn an_error_is_shown_with_carets_under_the_place() {
    let error = Expression::parse("größe == 1 &&\n b = 2").unwrap_err();
    assert_eq!(
        error.render(),
        "`&&` is not part of the grammar\n  größe == 1 &&\n             ^^\nhint: did you mean `and`?"
    );
    let error = Expression::parse("i64==1 and\nmillo>2").unwrap().bind(&rows::schema()).unwrap_err();
    assert_eq!(
        error.render(),
        "there is no column \"millo\"\n  i64 = 1 and millo > 2\n              ^^^^^\nhint: did you mean milli?"
    );
}

#[test]
fn an_error_in_a_long_text_is_shown_with_its_neighbourhood_only() {
    let long = format!("a in ({}) && b in ({})", "1,".repeat(9999) + "1", "2,".repeat(9999) + "2");
    let rendered = Expression::parse(&long).unwrap_err().render();
    assert!(rendered.len() < 300, "{rendered}");
    assert!(rendered.contains("1) && b"), "{rendered}");
    let rendered = Expression::parse(&format!("a = '{}", "x".repeat(10_000))).unwrap_err().render();
    assert!(rendered.len() < 300, "{rendered}");
}

#[test]
fn no_more_columns_are_named_than_anybody_reads() {
    let field =
        |number: usize| arrow_schema::Field::new(format!("c{number}"), arrow_schema::DataType::Int8, true);
    let hint = |count: usize| {
        let schema = arrow_schema::Schema::new((0..count).map(field).collect::<Vec<_>>());
        Expression::parse("velocity > 1").unwrap().bind(&schema).unwrap_err().hint().unwrap()
    };
    assert!(hint(30).contains(", c28, c29; a text"), "{}", hint(30));
    assert!(hint(31).contains(", c29, and 1 more; a text"), "{}", hint(31));
}
