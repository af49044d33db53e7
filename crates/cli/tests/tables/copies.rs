//! `atoll table copy`: the same answers from another store, or under another name.

use super::support::Workspace;
use super::{CREATE, atoll, csv, lines, words};

fn with_runs() -> Workspace {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    for (run, steps) in [("one", 0..8), ("two", 5..9)] {
        place.write(&format!("{run}.csv"), csv(steps, 40));
        atoll(&place, &format!("table import t {run}.csv")).text();
    }
    atoll(&place, "table attributes t --run one deck=tube.in").text();
    place
}

#[test]
fn a_copy_in_another_store_answers_alike() {
    let place = with_runs();
    let before = atoll(&place, "table info t --json").json()["version"].clone();
    atoll(&place, "table snapshot create t before").text();
    atoll(&place, "table delete t --where 'x > 600'").text();
    atoll(&place, "table pack t --whole").text();
    let told = atoll(&place, "table copy t --to ./other --json").json();
    assert_eq!((&told["table"], &told["objects_before"]), (&"t".into(), &0.into()), "{told}");
    for ask in [
        "query t --format csv",
        "sample t 0.1 --format csv",
        "steps t --json",
        "attributes t --run one --json",
    ] {
        let there = place.run(&words(&format!("--store other table {ask}")));
        assert_eq!(lines(&atoll(&place, &format!("table {ask}"))), lines(&there), "{ask}");
    }
    let again = atoll(&place, "table copy t --to ./other");
    again.fails(11);
    assert!(again.stderr.contains("there is a table \"t\" already"), "{}", again.stderr);
    atoll(&place, "table copy t --to ./other --as earlier --as-of before").text();
    let earlier = place.run(&words("--store other table info earlier --json")).json();
    assert_eq!((&earlier["version"], &earlier["rows"]), (&before, &480.into()));
}

#[test]
fn a_copy_in_the_same_store_has_another_name() {
    let place = with_runs();
    let told = atoll(&place, "table copy t --as u");
    assert!(told.text().starts_with("copied version "), "{}", told.text());
    atoll(&place, "table drop t").text();
    assert_eq!(atoll(&place, "table query u --count").text().trim(), "480");
    let where_to = atoll(&place, "table copy u");
    where_to.fails(2);
    assert!(where_to.stderr.contains("--to"), "{}", where_to.stderr);
    atoll(&place, "table copy u --as u").fails(11);
    atoll(&place, "table copy v --as w").fails(10);
    atoll(&place, "table copy u --as w --as-of 99").fails(12);
}
