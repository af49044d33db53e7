//! `atoll table append`, and the runs and steps that it creates.

use super::support::{Answer, Workspace};
use super::{CREATE, atoll, csv, lines, sorted, words};
use std::collections::BTreeSet;

#[test]
fn appends_without_a_step_are_all_in_and_a_step_that_was_there_is_told() {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    place.write("one.csv", csv(0..1, 5));
    place.write("other.csv", csv(1..2, 7));
    let unsaid = atoll(&place, "table append t one.csv --run r --ranks 2");
    assert!(unsaid.fails(2).contains("name the step that it writes"), "{}", unsaid.stderr);
    assert!(unsaid.stderr.contains("--step N"), "{}", unsaid.stderr);
    atoll(&place, "table append t one.csv --run r --ranks 2 --step 3").text();
    // What another process appends as the same block is not taken, and the answer says so.
    let again = atoll(&place, "table append t other.csv --run r --ranks 2 --step 3");
    assert!(again.text().contains("step 3 of run r was there already"), "{}", again.text());
    let again = atoll(&place, "table append t other.csv --run r --ranks 2 --step 3 --json").json();
    assert_eq!((&again["already_there"], &again["rows"]), (&true.into(), &0.into()));
    // Concurrent appends take a step each.
    let first = atoll(&place, "table append t one.csv --run s --json").json();
    assert_eq!((&first["already_there"], &first["rows"]), (&false.into(), &5.into()));
    let append = words("--store data table append t other.csv --run s --json");
    let racing: Vec<_> = (0..4).map(|_| place.spawn(&append)).collect();
    let answers = racing.into_iter().map(|child| Answer::from(child.wait_with_output().unwrap()));
    let steps: BTreeSet<u64> = answers.map(|answer| answer.json()["step"].as_u64().unwrap()).collect();
    assert_eq!(steps, (1..5).collect());
    assert_eq!(sorted(&place, "--run s").len(), 5 + 4 * 7);
}

#[test]
fn follow_shows_each_step_once_as_it_arrives() {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    place.write("one.csv", csv(0..1, 5));
    atoll(&place, "table append t one.csv --run sim --step 1").text();
    let follower = place.spawn(&words("--store data table follow t --all --count 3 --timeout 1min --json"));
    atoll(&place, "table append t one.csv --run sim --step 2 --time 0.5").text();
    atoll(&place, "table append t one.csv --run sim --step 3").text();
    let answer = Answer::from(follower.wait_with_output().unwrap());
    let steps: Vec<serde_json::Value> =
        answer.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(steps.iter().map(|step| step["step"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(steps[1]["time"], 0.5);
}

#[test]
fn follow_that_ends_with_fewer_steps_than_asked_for_fails_as_a_wait_does() {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    place.write("one.csv", csv(0..1, 5));
    atoll(&place, "table append t one.csv --run sim --step 1").text();
    let fewer = atoll(&place, "table follow t --all --count 3 --timeout 200ms");
    assert!(fewer.fails(17).contains("1 of 3 steps arrived, and no other within 200ms"), "{}", fewer.stderr);
    assert!(String::from_utf8_lossy(&fewer.stdout).contains("step 1"), "{:?}", fewer.stdout);
    // Without a number, the end is the one that was asked for.
    assert_eq!(lines(&atoll(&place, "table follow t --all --timeout 200ms")).len(), 1);
    assert_eq!(lines(&atoll(&place, "table follow t --all --count 1 --timeout 200ms")).len(), 1);
}

#[test]
fn follow_ends_when_no_step_has_arrived_for_long_whatever_else_happens_to_the_table() {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    place.write("one.csv", csv(0..1, 5));
    let mut follower = place.spawn(&words("--store data table follow t --timeout 1s"));
    // One of two ranks writes: there are new versions all the time, and no complete step.
    let ended = (1..200).find(|step| {
        let part = format!("table append t one.csv --run r --step {step} --ranks 2 --attempt 1 --rank 0");
        atoll(&place, &part);
        follower.try_wait().unwrap().is_some()
    });
    let is_running = ended.is_none();
    if is_running {
        follower.kill().unwrap();
    }
    let answer = Answer::from(follower.wait_with_output().unwrap());
    assert!(!is_running, "it follows on");
    assert_eq!(answer.text(), "");
    let runs = atoll(&place, "table steps t --runs --json").json();
    assert_eq!((&runs["run"], &runs["steps"]), (&"r".into(), &0.into()));
}

#[test]
fn several_that_begin_a_run_at_the_same_time_all_append_to_it() {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    place.write("one.csv", csv(0..1, 10));
    let append = ["--store", "data", "table", "append", "t", "one.csv", "--run", "r"];
    let children: Vec<_> = (0..6).map(|_| place.command(&append).spawn().unwrap()).collect();
    for child in children {
        Answer::from(child.wait_with_output().unwrap()).text();
    }
    assert_eq!(sorted(&place, "").len(), 60);
    // One of them began it, and the others joined.
    let steps = lines(&atoll(&place, "table steps t --json"));
    assert!(steps.iter().all(|step| step.contains("\"attempt\":1")), "{steps:?}");
}

#[test]
fn of_two_appends_that_begin_one_run_at_once_each_that_is_told_as_in_is_in() {
    let place = Workspace::new();
    atoll(&place, CREATE).text();
    place.write("one.csv", csv(0..1, 5));
    for round in 0..4 {
        let steps = [5, 10];
        let both = steps.map(|step| {
            place.spawn(&words(&format!("--store data table append t one.csv --run r{round} --step {step}")))
        });
        let answers = both.map(|child| Answer::from(child.wait_with_output().unwrap()));
        let there = steps_of(&place, &format!("--run r{round}"));
        for (answer, step) in answers.iter().zip(steps) {
            let is_in = there.contains(&format!("r{round} {step} 5"));
            assert_eq!(answer.exit == Some(0), is_in, "round {round}, step {step}: {there:?} {answers:?}");
        }
    }
}

/// Run, step and row count of each step.
fn steps_of(place: &Workspace, arguments: &str) -> Vec<String> {
    let listed = atoll(place, &format!("table steps t {arguments}"));
    let words = |line: &String| line.split_whitespace().collect::<Vec<_>>().join(" ");
    lines(&listed).iter().skip(1).map(words).collect()
}

#[test]
fn a_step_that_is_appended_takes_no_place_of_later_ones_unless_a_new_attempt_is_named() {
    let place = Workspace::new();
    atoll(&place, &format!("{CREATE} --unique")).text();
    place.write("one.csv", csv(0..1, 5));
    place.write("two.csv", csv(1..2, 5));
    atoll(&place, "table append t one.csv --run r --step 10").text();
    // A second attempt has begun, and has no rows yet.
    atoll(&place, "table append t one.csv --run r --attempt 2 --step 11").fails(11);
    let refused = atoll(&place, "table append t two.csv --run r --step 5");
    assert!(refused.fails(11).contains("has steps up to 10"), "{}", refused.stderr);
    assert_eq!(steps_of(&place, ""), ["r 10 5"]);
    let again = atoll(&place, "table append t two.csv --run r --step 10");
    assert!(again.text().contains("was there already"), "{}", again.text());
    atoll(&place, "table append t two.csv --run r --step 12").text();
    assert_eq!(steps_of(&place, ""), ["r 10 5", "r 12 5"]);
    // Nor where the append would begin an attempt of its own; a refused append ends no other writer's
    // attempt.
    for rank in [0, 1] {
        let file = ["one.csv", "two.csv"][rank];
        let of_two = format!("--run s --step 10 --ranks 2 --attempt 1 --rank {rank}");
        atoll(&place, &format!("table append t {file} {of_two}")).text();
    }
    let refused = atoll(&place, "table append t two.csv --run s --step 5");
    assert!(refused.fails(11).contains("has steps up to 10"), "{}", refused.stderr);
    place.write("four.csv", csv(3..4, 5));
    atoll(&place, "table append t four.csv --run s --step 11 --ranks 2 --attempt 1").text();
    // A caller that names an attempt means it.
    place.write("three.csv", csv(2..3, 5));
    atoll(&place, "table append t three.csv --run r --attempt 3 --step 5").text();
    assert_eq!(steps_of(&place, "--run r"), ["r 5 5"]);
}

#[test]
fn a_step_that_contradicts_the_step_column_is_reported() {
    let place = Workspace::new();
    place.write("seven.csv", "id,step,x\n1,7,0.5\n2,7,1.5\n");
    atoll(&place, "table create t --like seven.csv --id id,step --index x,step").text();
    let other = atoll(&place, "table append t seven.csv --run r --step 400");
    let told = "the rows are appended as step 400, but one of them has 7 in its column \"step\"";
    assert!(other.exit == Some(0) && other.stderr.contains(told), "{}", other.stderr);
    let same = atoll(&place, "table append t seven.csv --run s --step 7");
    assert!(same.exit == Some(0) && !same.stderr.contains("one of them has"), "{}", same.stderr);
    // Nothing is appended where the step was there already.
    let again = atoll(&place, "table append t seven.csv --run r --step 400");
    assert!(again.exit == Some(0) && !again.stderr.contains("one of them has"), "{}", again.stderr);
    // Without --step, the step is the next one of the run: 8 of run s.
    let next = atoll(&place, "table append t seven.csv --run s");
    let told = "the rows are appended as step 8, but one of them has 7 in its column \"step\"";
    assert!(next.exit == Some(0) && next.stderr.contains(told), "{}", next.stderr);
    place.write("nine.csv", "id,step,x\n1,9,0.5\n");
    let fitting = atoll(&place, "table append t nine.csv --run s");
    assert!(fitting.text().contains("as step 9 of run s"), "{}", fitting.text());
    assert!(!fitting.stderr.contains("one of them has"), "{}", fitting.stderr);
}
