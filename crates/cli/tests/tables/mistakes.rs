//! Answers to mistyped commands and unsuitable files: what is wrong, and the command line that would be
//! right.

use super::support::Workspace;
use super::{CREATE, atoll, csv, filled, words};

#[test]
fn files_that_are_sound_and_options_that_do_not_fit_are_not_told_as_damage() {
    let place = filled();
    place.write("n.jsonl", "{\"pid\": 1, \"pos\": {\"x\": 1}}\n");
    let nested = atoll(&place, "table import t n.jsonl");
    assert!(nested.fails(14).contains("\"pos\""), "{}", nested.stderr);
    let head = "{'descr': '<f8', 'fortran_order': False, 'shape': (2,)}";
    let mut array = b"\x93NUMPY\x01\x00".to_vec();
    array.extend((head.len() as u16).to_le_bytes());
    array.extend(head.as_bytes());
    array.extend([0; 16]);
    place.write("x.npy", array);
    let named = atoll(&place, "table create u --like x.npy --names x,y,z --id x --index x");
    assert!(named.fails(12).contains("3 names for 1 column"), "{}", named.stderr);
    assert!(named.stderr.contains("--names"), "{}", named.stderr);
}

#[test]
fn a_compressed_file_is_answered_with_the_line_that_reads_it() {
    let place = filled();
    let magics: [(&str, &[u8], &str); 2] =
        [("d.dump.gz", b"\x1f\x8b\x08\0\0\0\0\0", "zcat"), ("d.csv.zst", b"\x28\xb5\x2f\xfd\0\0", "zstdcat")];
    for (name, bytes, program) in magics {
        place.write(name, bytes);
        let format = if name.contains("csv") { "csv" } else { "lammps" };
        let line = format!("`{program} {name} | atoll table import TABLE - --format {format} --run NAME`");
        for said in ["", "--format csv", "--format lammps"] {
            let answer = atoll(&place, &format!("table import t {name} {said}"));
            let line = if said.is_empty() {
                line.clone()
            } else {
                line.replace(&format!("--format {format}"), said)
            };
            let exit = if said.is_empty() { 2 } else { 14 };
            assert!(answer.fails(exit).contains(&line), "{said}: {}", answer.stderr);
        }
    }
    let piped = place.run_with(
        &["--store", "data", "table", "import", "t", "-", "--format", "csv", "--run", "r"],
        b"\x1f\x8b\x08\0\0\0\0\0",
    );
    assert!(piped.fails(14).contains("put `zcat |` before"), "{}", piped.stderr);
    assert!(!piped.stderr.contains("standard input'"), "{}", piped.stderr);
}

#[test]
fn a_compressed_file_that_no_pipe_can_bring_is_answered_with_what_unpacks_it() {
    let place = filled();
    let gzip = b"\x1f\x8b\x08\0\0\0\0\0";
    let lines = [
        ("table import t d.parquet.gz", "`zcat d.parquet.gz > d.parquet`"),
        ("table import t d.parquet.gz --format parquet", "`zcat d.parquet.gz > d.parquet`"),
        ("table import t run.parquet", "`zcat run.parquet > unpacked-run.parquet`"),
        ("table append t d.npz.gz --run r", "`zcat d.npz.gz > d.npz`"),
        ("table create u --like d.csv.gz", "`zcat d.csv.gz > d.csv`"),
        ("table create u --like d.csv.gz --format csv", "`zcat d.csv.gz > d.csv`"),
        ("table import t d.tar.gz", "`tar -xf d.tar.gz`"),
        ("table import t d.tar.gz --format csv", "`tar -xf d.tar.gz`"),
        ("table import t d.gz", "`zcat d.gz > d`"),
    ];
    for (typed, line) in lines {
        place.write(typed.split_whitespace().find(|word| word.contains('.')).unwrap(), gzip);
        let answer = atoll(&place, typed);
        assert_ne!(answer.exit, Some(0), "{typed}");
        assert!(answer.stderr.contains(line), "{typed}: {}", answer.stderr);
        assert!(!answer.stderr.contains(" - "), "{typed}: {}", answer.stderr);
        assert!(!answer.stderr.contains("atoll table"), "{typed}: {}", answer.stderr);
    }
}

#[test]
fn the_line_that_reads_a_compressed_file_is_of_the_verb_and_quotes_its_name() {
    let place = filled();
    place.write("it's.csv.gz", b"\x1f\x8b\x08\0\0\0\0\0");
    for words in [vec![], vec!["--format", "csv"]] {
        let all = ["--store", "data", "table", "append", "t", "it's.csv.gz", "--run", "r"];
        let answer = place.run(&[&all[..], &words[..]].concat());
        let line = r"`zcat 'it'\''s.csv.gz' | atoll table append TABLE - --format csv --run NAME`";
        assert!(answer.stderr.contains(line), "{}", answer.stderr);
    }
}

#[test]
fn a_share_may_be_in_percent_and_an_error_about_a_point_says_what_it_needs() {
    let place = filled();
    let count = |flags: &str| atoll(&place, &format!("table query t --count {flags}")).text().to_owned();
    assert_eq!(count("--sample 10%"), count("--sample 0.1"));
    assert_eq!(count("--window 10%:20%"), count("--window 0.1:0.2"));
    assert_eq!(atoll(&place, "table sample t 10%").text(), atoll(&place, "table sample t 0.1").text());
    let answer = atoll(&place, "table query t --sample ten");
    assert!(answer.fails(2).contains("0.01 or 1%"), "{}", answer.stderr);
    let answer = atoll(&place, "table query t --near a,b");
    assert!(answer.fails(2).contains("X,Y,Z,R"), "{}", answer.stderr);
    assert!(!answer.stderr.contains("float literal"), "{}", answer.stderr);
}

#[test]
fn an_attribute_that_no_run_has_and_a_run_that_is_not_there_are_answered_with_those_that_are() {
    let place = filled();
    atoll(&place, "table attributes t --run run temperature=300 deck=a").text();
    let answer = atoll(&place, "table query t --runs-where 'temprature > 3'");
    let told = answer.fails(12);
    assert!(told.contains("no run has an attribute \"temprature\""), "{told}");
    assert!(told.contains("temperature"), "{told}");
    let answer = atoll(&place, "table query t --runs-where 'zzz > 3'");
    let told = answer.fails(12);
    assert!(["deck", "run", "temperature"].iter().all(|name| told.contains(name)), "{told}");
    let answer = atoll(&place, "table query t --run rum");
    assert!(answer.fails(10).contains("did you mean \"run\"?"), "{}", answer.stderr);
    let answer = atoll(&place, "table query t --run nosuch");
    assert!(answer.fails(10).contains("atoll table steps t --runs"), "{}", answer.stderr);
}

#[test]
fn verbs_of_tables_where_no_store_is_say_what_makes_one() {
    let place = Workspace::new();
    place.write("a.csv", "a\n1\n");
    for verb in ["import t a.csv", "append t a.csv --run r --step 0", "pack t", "query t", "drop t"] {
        let answer = atoll(&place, &format!("table {verb}"));
        assert!(answer.fails(10).contains("`atoll table create`"), "{verb}: {}", answer.stderr);
        assert!(!answer.stderr.contains("verbs that write create"), "{verb}: {}", answer.stderr);
    }
}

#[test]
fn control_characters_of_texts_are_shown_escaped() {
    let place = Workspace::new();
    atoll(&place, "table create t --column id:int64,text:utf8 --id id --index id").text();
    place.write("a.jsonl", "{\"id\": 1, \"text\": \"a\\nb\\tc\\u001b[31md\\u0000e\"}\n");
    atoll(&place, "table import t a.jsonl").text();
    let shown = atoll(&place, "table query t");
    assert!(shown.text().contains(r"a\nb\tc\x1b[31md\0e"), "{}", shown.text());
}

#[test]
fn one_is_counted_as_one() {
    let place = Workspace::new();
    atoll(&place, "table create t --column id:int64,x:float64 --id id --index x").text();
    place.write("a.csv", "id,x\n1,2\n");
    let imported = atoll(&place, "table import t a.csv");
    assert!(imported.text().contains("imported 1 row in 1 step as"), "{}", imported.text());
    let answer = atoll(&place, "table query t --as-of 9999");
    assert!(answer.fails(12).contains("`atoll table info TABLE`"), "{}", answer.stderr);
    let exported = atoll(&place, "table export t a.parquet");
    assert!(exported.text().contains("exported 1 row of"), "{}", exported.text());
}

#[test]
fn names_of_columns_that_hide_a_delimiter_are_answered_with_it() {
    let place = Workspace::new();
    place.write("bom.csv", "\u{feff}a;b\n1;2\n");
    let answer = atoll(&place, "table create t --like bom.csv --id a --index a");
    assert!(answer.fails(12).contains("--delimiter ';'"), "{}", answer.stderr);
    atoll(&place, "table create t --column a:int64,b:int64 --id a --index a").text();
    let answer = atoll(&place, "table import t bom.csv");
    assert!(answer.fails(12).contains("--delimiter ';'"), "{}", answer.stderr);
    let answer = atoll(&place, "table query t --output x.foo");
    let told = answer.fails(2);
    assert!(told.contains("csv, jsonl, parquet, arrow, npy, npz or lammps"), "{told}");
}

#[test]
fn a_record_that_is_no_json_is_placed_in_its_line_alone() {
    let place = filled();
    atoll(&place, "table create j --column pid:int64 --id pid --index pid").text();
    place.write("g.jsonl", "{\"pid\": 1}\n{\"pid\": 2\n");
    let answer = atoll(&place, "table import j g.jsonl");
    assert!(answer.fails(12).contains("line 2: it is not a JSON object: "), "{}", answer.stderr);
    assert!(
        answer.stderr.contains(" at column 9") && !answer.stderr.contains("at line"),
        "{}",
        answer.stderr
    );
}

#[test]
fn names_that_no_screen_shows_are_escaped_and_cut_and_not_all_listed() {
    let place = filled();
    let odd = format!("a\u{1b}[2J{}", "b".repeat(300));
    let names: Vec<String> = (0..100).map(|number| format!("c{number}")).collect();
    place.write("odd.csv", format!("{odd},{}\n", names.join(",")));
    for verb in
        ["table import t odd.csv", "table create u --like odd.csv --id no --index no", "kv import odd.csv"]
    {
        let told = atoll(&place, verb).stderr;
        assert!(told.contains("1b") && !told.contains('\u{1b}'), "{verb}: {told:?}");
        assert!(told.contains(" and 71 more") && told.len() < 1300, "{verb}: {told:?}");
    }
}

#[test]
fn a_role_that_no_column_of_the_file_has_is_answered_with_those_there_are() {
    let place = filled();
    place.write("n.csv", "a,b\n1,2\n");
    let answer = atoll(&place, "table create u --like n.csv --id zzz --index b");
    assert!(answer.fails(12).contains("the columns of the file are: a, b"), "{}", answer.stderr);
    place.write("m.csv", "1,0.5\n2,0.6\n");
    let answer = atoll(&place, "table create u --like m.csv --id pid --index x");
    assert!(answer.fails(12).contains("the first line of a CSV file names its columns"), "{}", answer.stderr);
}

#[test]
fn an_argument_that_is_no_text_is_shown_with_what_takes_other_bytes() {
    use std::os::unix::ffi::OsStrExt;
    let place = Workspace::new();
    let mut command = place.command(&["--store", "data", "kv", "get", "p"]);
    let output = command.arg(std::ffi::OsStr::from_bytes(b"a\xff")).output().unwrap();
    let answer = super::Answer::from(output);
    assert!(answer.fails(2).contains(r"a\xff"), "{}", answer.stderr);
    assert!(answer.stderr.contains("--hex or --escaped"), "{}", answer.stderr);
}

#[test]
fn types_are_called_as_they_are_typed() {
    let place = Workspace::new();
    atoll(&place, "table create t --column id:int64,s:utf8,v:float64[3] --id id --index id").text();
    for (line, exit, word) in [
        ("table create u --column id:utf8 --id id --index id", 12, "it is utf8"),
        ("table create u --column id:float64[3] --id id --index id", 12, "it is float64[3]"),
        ("table estimate t --mean s", 12, "is utf8"),
        ("table query t --where 'id[0] > 1'", 12, "but int64"),
        ("table import t x.csv --step-column s", 2, "but utf8"),
    ] {
        place.write("x.csv", "id,s,v[0],v[1],v[2]\n");
        let answer = atoll(&place, line);
        assert!(answer.fails(exit).contains(word), "{line}: {}", answer.stderr);
    }
}

#[test]
fn the_work_of_a_count_does_not_speak_of_rows_that_it_returns() {
    let place = filled();
    let answer = atoll(&place, "table query t --count --work --where 'x > 1'");
    let rows = answer.text().trim().to_owned();
    assert_ne!(rows, "0");
    assert!(!answer.stderr.contains("0 rows of"), "{}", answer.stderr);
    assert!(answer.stderr.contains("rows were read, in "), "{}", answer.stderr);
}

#[test]
fn the_durability_that_is_asked_for_holds_for_tables_as_for_cells() {
    let place = Workspace::new();
    let asked = |verb: &[&str]| place.run(&[&["--store", "mem:", "--durability", "synced"], verb].concat());
    // A store in memory has no such class.
    let [cell, table] = [asked(&["kv", "put", "p", "s", "v"]), asked(&words(CREATE))];
    assert_ne!(cell.exit, Some(0));
    assert_eq!(table.exit, cell.exit, "{}", table.stderr);
    assert!(table.stderr.contains("durability class synced"), "{}", table.stderr);
    atoll(&place, &format!("{CREATE} --durability synced --deadline 1min")).text();
    place.write("run.csv", csv(0..2, 5));
    atoll(&place, "table import t run.csv --durability synced --deadline 1min").text();
    assert_eq!(atoll(&place, "table query t --count --deadline 1min").text(), "10\n");
}
