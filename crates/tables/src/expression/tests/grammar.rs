//! The meaning of texts; what is displayed is parsed back.

use super::super::{
    Arithmetic, Column, Comparison, DEPTH_MAX, Expression, Function, LENGTH_MAX, Literal, parse_box,
};
use super::generator::Generator;
use crate::seeds::for_seeds;
use arrow_schema::{DataType, Field, Schema};

fn read(text: &str) -> Expression {
    Expression::parse(text).unwrap_or_else(|error| panic!("{}", error.render()))
}

fn literal(literal: impl Into<Literal>) -> Expression {
    Expression::Literal(literal.into())
}

/// Checks that both texts mean the same; the second is how the expression is displayed.
fn check_shown(text: &str, shown: &str) {
    assert_eq!(read(text).to_string(), shown, "{text}");
    assert_eq!(read(shown), read(text), "{text}");
}

#[test]
fn the_tree_is_the_one_that_the_text_says() {
    let kind = Expression::column("type").compare(Comparison::Equal, 2);
    let speed = Expression::column("vz").compare(Comparison::Greater, 0.5);
    assert_eq!(read("type = 2 and vz > 0.5"), kind.clone().and(speed.clone()));
    assert_eq!(read("not type = 2 or vz > 0.5"), (!kind).or(speed));
    let product = Expression::Arithmetic(
        Box::new(Expression::Column(Column::element("pos", 0))),
        Arithmetic::Multiply,
        Box::new(Expression::Negate(Box::new(Expression::column("odd \"name\"")))),
    );
    let root = Expression::Call(Function::Sqrt, Box::new(product));
    assert_eq!(
        read("sqrt(pos[0] * -\"odd \"\"name\"\"\") not between -1 and 3"),
        Expression::Between {
            value: Box::new(root),
            low: Box::new(literal(-1)),
            high: Box::new(literal(3)),
            is_negated: true
        }
    );
    let list = vec![Literal::Integer(1), Literal::Null, Literal::Text("it's".into()), Literal::Float(-2.5)];
    assert_eq!(
        read("x in (1, null, 'it''s', -2.5)"),
        Expression::In { value: Box::new(Expression::column("x")), list, is_negated: false }
    );
}

#[test]
fn operators_bind_as_everybody_expects() {
    check_shown("a=1 or b=2 and c=3", "a = 1 or b = 2 and c = 3");
    check_shown("(a = 1 or b = 2) and c = 3", "(a = 1 or b = 2) and c = 3");
    check_shown("(a = 1 and b = 2) or c = 3", "a = 1 and b = 2 or c = 3");
    check_shown("not (a and b)", "not (a and b)");
    check_shown("not ((a) = (b))", "not a = b");
    check_shown("a - (b - c) - d", "a - (b - c) - d");
    check_shown("(a - b) - c", "a - b - c");
    check_shown("a + b * c", "a + b * c");
    check_shown("(a + b) * c % (d / e)", "(a + b) * c % (d / e)");
    check_shown("-a * b", "-a * b");
    check_shown("-(a * b)", "-(a * b)");
    check_shown("a--1", "a - -1");
    check_shown("(a > 1) = (b < 2)", "(a > 1) = (b < 2)");
    check_shown("(a or b) is null", "(a or b) is null");
    check_shown("a between 1 and 2 and b", "a between 1 and 2 and b");
}

#[test]
fn there_are_several_ways_to_write_the_same() {
    check_shown("A == 1 AND b <> 2", "A = 1 and b != 2");
    check_shown("x IS NOT NULL Or y Is NaN", "x is not null or y is nan");
    check_shown("\"x\" = TRUE", "x = true");
    check_shown("\"and\" = 1", "\"and\" = 1");
    check_shown("t > TIMESTAMP '2026-01-01'", "t > timestamp '2026-01-01T00:00:00Z'");
    check_shown("timestamp > 5 and timestamp = timestamp", "timestamp > 5 and timestamp = timestamp");
    check_shown("abs > ABS(x)", "abs > abs(x)");
    check_shown("x<.5 or x>1e3 or x=1.", "x < 0.5 or x > 1000.0 or x = 1.0");
    check_shown("x = -inf or x != nan", "x = -inf or x != nan");
    check_shown("größe > 1\n\tand 年 = 2", "größe > 1 and 年 = 2");
}

#[test]
fn integers_of_64_bits_are_read_exactly() {
    for text in ["9007199254740993", "-9223372036854775808", "18446744073709551615", "0"] {
        assert_eq!(read(text), Expression::Literal(Literal::Integer(text.parse().unwrap())));
    }
    assert_eq!(read("-(5)"), Expression::Negate(Box::new(literal(5))));
    assert_eq!(read("- 5"), literal(-5));
}

#[test]
fn what_is_written_is_read_back_as_the_same() {
    for_seeds("what_is_written_is_read_back_as_the_same", 40, |random| {
        for _ in 0..300 {
            let expression = Generator::new(random).anything(4);
            let text = expression.to_string();
            assert_eq!(Expression::parse(&text).as_ref(), Ok(&expression), "{text}");
        }
    });
}

#[test]
fn noise_is_refused_without_a_panic() {
    const PIECES: [&str; 36] = [
        "a",
        "b[0]",
        "(",
        ")",
        "not ",
        "and ",
        "or ",
        "in ",
        "is ",
        "null ",
        "nan ",
        "between ",
        "1",
        "2.5",
        "-",
        "+",
        "*",
        "%",
        "=",
        "!=",
        "<",
        "'",
        "'x'",
        "\"",
        "\"y\"",
        ",",
        ":",
        "[",
        "]",
        "abs(",
        "timestamp ",
        " ",
        "é",
        ".",
        "e9",
        "\u{0}",
    ];
    for_seeds("noise_is_refused_without_a_panic", 20, |random| {
        for _ in 0..500 {
            let text: String =
                (0..random.usize(..14)).map(|_| PIECES[random.usize(..PIECES.len())]).collect();
            let _ = super::super::fuzz::expression(text.as_bytes());
        }
    });
}

#[test]
fn depth_is_limited_and_length_is_not_depth() {
    let deep = |open: &str, middle: &str, close: &str, times: usize| {
        Expression::parse(&format!("{}{middle}{}", open.repeat(times), close.repeat(times)))
    };
    let shapes = [
        ("(", "a", ")"),
        ("not ", "a", ""),
        ("-", "a", ""),
        ("abs(", "a", ")"),
        ("- -", "1", ""),
        ("", "a", " + a"),
        ("", "a", " * a"),
    ];
    for (open, middle, close) in shapes {
        assert!(deep(open, middle, close, DEPTH_MAX / 2 - 1).is_ok(), "{open}{middle}{close}");
        for times in [DEPTH_MAX + 1, 100_000] {
            let error = deep(open, middle, close, times).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("it nests more than {DEPTH_MAX} deep"),
                "{open}{middle}{close}"
            );
            assert_eq!(error.kind(), atoll_errors::ErrorKind::Limit);
        }
    }
    let chain = read(&vec!["a = 1"; 100_000].join(" or "));
    assert!(matches!(chain, Expression::Or(parts) if parts.len() == 100_000));
    assert!(read(&format!("a in ({}0)", "0,".repeat(100_000))).to_string().len() > 100_000);
    let long = "a".repeat(LENGTH_MAX + 1);
    assert_eq!(Expression::parse(&long).unwrap_err().kind(), atoll_errors::ErrorKind::Limit);
    assert!(Expression::parse(&long[1..]).is_ok());
}

#[test]
fn expressions_at_the_limit_of_depth_are_read_back() {
    let mut expression = Expression::column("a");
    for _ in 1..DEPTH_MAX {
        expression = !expression;
    }
    assert_eq!(read(&expression.to_string()), expression);
    assert!(Expression::parse(&(!expression).to_string()).is_err());
}

#[test]
fn a_box_is_half_open_and_its_ends_may_be_left_out() {
    let sides = parse_box("x=0:1, time=2.0:,\"odd name\"[2] = :-3,t=timestamp '2026-01-01':,all=:").unwrap();
    let shown: Vec<_> = sides.iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        ["x=0:1", "time=2.0:", "\"odd name\"[2]=:-3", "t=timestamp '2026-01-01T00:00:00Z':", "all=:"]
    );
    let conditions: Vec<_> =
        sides.iter().map(|side| side.condition().map(|condition| condition.to_string())).collect();
    assert_eq!(conditions[0].as_deref(), Some("x >= 0 and x < 1"));
    assert_eq!(conditions[1].as_deref(), Some("time >= 2.0"));
    assert_eq!(conditions[2].as_deref(), Some("\"odd name\"[2] < -3"));
    assert_eq!(conditions[4], None);
    assert_eq!((&sides[0].low, &sides[0].high), (&Some(Literal::Integer(0)), &Some(Literal::Integer(1))));
}

/// The contents of the fenced blocks of one language in the guide.
fn fenced(language: &str) -> Vec<String> {
    let page = include_str!("../../../../../docs/guide/expressions.md");
    let fences = page.split("```").skip(1).step_by(2);
    let of_language = fences.filter_map(|fence| fence.strip_prefix(language)?.strip_prefix('\n'));
    of_language.map(|fence| fence.trim_end().to_owned()).collect()
}

#[test]
fn every_example_of_the_guide_is_read() {
    let conditions: Vec<_> =
        fenced("sql").iter().flat_map(|fence| fence.lines().map(read).collect::<Vec<_>>()).collect();
    assert_eq!(conditions.len(), 7);
    let texts = fenced("text");
    let (boxes, errors) = texts.split_at(2);
    assert_eq!(parse_box(&boxes[0]).unwrap().len() + parse_box(&boxes[1]).unwrap().len(), 7);
    let mut fields = ["type", "vz"].map(|name| Field::new(name, DataType::Float64, true)).to_vec();
    fields.push(Field::new("region", DataType::Utf8, true));
    let schema = Schema::new(fields);
    let error_of = |text| read(text).bind(&schema).unwrap_err().render();
    assert_eq!(errors, ["type = 2 and vzz > 0.5", "region = \"inlet\""].map(error_of));
}

#[test]
fn every_seed_of_the_fuzzer_gets_past_the_surface() {
    let seeds: [&[u8]; 4] = [
        include_bytes!("../../../../../fuzz/seeds/expression/box"),
        include_bytes!("../../../../../fuzz/seeds/expression/condition"),
        include_bytes!("../../../../../fuzz/seeds/expression/numbers"),
        include_bytes!("../../../../../fuzz/seeds/expression/quoted"),
    ];
    for seed in seeds {
        let text = String::from_utf8_lossy(seed);
        assert!(super::super::fuzz::expression(seed), "{text}");
        assert!(text.contains('=') && Expression::parse(&text).is_ok() != parse_box(&text).is_ok(), "{text}");
    }
}
