//! No verdict on a box of rows is wrong about any of them, and verdicts decide where they can.

use super::super::{Column, Expression, Verdict};
use super::generator::Generator;
use super::oracle;
use super::rows::rows;
use crate::lattice::{Extent, Scalar};
use crate::seeds::for_seeds;
use std::collections::BTreeMap;

#[test]
fn no_verdict_on_a_box_is_wrong_about_a_row_in_it() {
    let mut decided = [0; 2];
    for_seeds("no_verdict_on_a_box_is_wrong_about_a_row_in_it", 20, |random| {
        let all = rows(random, 150);
        let schema = all.batch.schema();
        for round in 0..300 {
            let expression = Generator::new(random).condition(round % 4);
            let bound = expression.bind(&schema).unwrap();
            let from = random.usize(..all.rows.len());
            let count = random.usize(1..=(all.rows.len() - from).min(6));
            let part = all.batch.slice(from, count);
            let extents: BTreeMap<Column, Extent> = schema
                .fields()
                .iter()
                .zip(part.columns())
                .filter_map(|(field, column)| Some((Column::named(field.name()), Extent::of(column).ok()?)))
                .collect();
            let verdict = bound.verdict(&|column| extents.get(column).copied());
            let judge = bound.judge(extents.keys().cloned().collect());
            let looked_up: Vec<Extent> = extents.values().copied().collect();
            assert_eq!(judge.verdict(&looked_up), verdict, "{expression}, each column looked up once");
            for row in &all.rows[from..from + count] {
                let holds = oracle::condition(&expression, row) == Some(true);
                match verdict {
                    Verdict::Always => assert!(holds, "{expression} is not always true: {row:?}"),
                    Verdict::Never => assert!(!holds, "{expression} is not never true: {row:?}"),
                    Verdict::Perhaps => {}
                }
            }
            decided[0] += usize::from(verdict == Verdict::Always);
            decided[1] += usize::from(verdict == Verdict::Never);
        }
    });
    println!("{} always and {} never", decided[0], decided[1]);
    assert!(decided.iter().all(|&times| times > 100), "only {decided:?} boxes were decided");
}

fn verdict(text: &str, x: (f64, f64), has_null: bool, step: (i64, i64)) -> Verdict {
    let field = |name: &str, data_type| arrow_schema::Field::new(name, data_type, true);
    let schema = arrow_schema::Schema::new(vec![
        field("x", arrow_schema::DataType::Float64),
        field("step", arrow_schema::DataType::Int64),
        field("vz", arrow_schema::DataType::Float64),
    ]);
    let bound = Expression::parse(text).unwrap().bind(&schema).unwrap();
    bound.verdict(&|column: &Column| match column.name.as_str() {
        "x" => Some(Extent::new(Some((Scalar::Float(x.0), Scalar::Float(x.1))), has_null)),
        "step" => Some(Extent::new(Some((Scalar::Signed(step.0), Scalar::Signed(step.1))), false)),
        _ => None,
    })
}

#[test]
fn a_box_inside_a_region_is_certain_one_beside_it_is_left_out() {
    let inside = |text| verdict(text, (0.2, 0.4), false, (3, 5));
    assert_eq!(inside("x >= 0.2 and x < 0.5 and step between 3 and 5"), Verdict::Always);
    assert_eq!(inside("x >= 0.2 and x < 0.4"), Verdict::Perhaps, "the upper end is not in it");
    assert_eq!(inside("x > 0.4 or step = 6"), Verdict::Never);
    assert_eq!(inside("(x < 0.3 and step > 5) or (x > 0.5 and step = 4)"), Verdict::Never);
    assert_eq!(inside("step in (1, 7)"), Verdict::Never);
    assert_eq!(inside("step in (1, 4)"), Verdict::Perhaps);
    assert_eq!(inside("not (x < 0.1)"), Verdict::Always);
    assert_eq!(inside("x < 1 and vz > 0"), Verdict::Perhaps);
    assert_eq!(inside("x > 1 and vz > 0"), Verdict::Never);
    assert_eq!(inside("x is null or x is nan"), Verdict::Never);
    let with_null = |text| verdict(text, (0.2, 0.4), true, (3, 5));
    assert_eq!(with_null("x < 0.5"), Verdict::Perhaps, "a null is not");
    assert_eq!(with_null("x > 0.5"), Verdict::Never);
    assert_eq!(with_null("x is null"), Verdict::Perhaps);
    assert_eq!(with_null("x is nan"), Verdict::Perhaps);
}
