//! Layers override each other in the stated order, and errors name the place.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use atoll_options::{
    Assignment, OptionsError, Origin, Schema, Section, Settings, Size, Sources, TomlText, resolve,
};
use std::time::Duration;

atoll_options::options! {
    pub struct TopOptions in "" {
        /// The store.
        store: String = "",
    }
}

atoll_options::options! {
    pub struct EngineOptions in "engine." {
        /// Memory budget.
        memory: Size = "1GiB",
        /// How long unreferenced space is kept.
        keep: Duration = "10min",
        /// Threads.
        threads: u16 = "2",
    }
}

fn schema() -> Schema {
    Schema::new().with::<TopOptions>().with::<EngineOptions>()
}

fn from_file(text: &str) -> Result<Settings, OptionsError> {
    let files = [TomlText { name: "atoll.toml", text }];
    resolve(&schema(), &Sources { files: &files, ..Sources::default() })
}

fn variable(name: &str, value: &str) -> [(String, String); 1] {
    [(name.to_owned(), value.to_owned())]
}

#[test]
fn the_strongest_layer_wins_and_is_remembered() {
    let files = [
        TomlText {
            name: "user.toml",
            text: "store = \"a\"\n[engine]\nmemory = \"1MiB\"\nkeep = \"1s\"\nthreads = 4",
        },
        TomlText { name: "project.toml", text: "engine.memory = \"2MiB\"" },
    ];
    let environment = variable("ATOLL_ENGINE_KEEP", "3s");
    let flags = [Assignment {
        key: "store".into(),
        text: "b".into(),
        origin: Origin::Flag { flag: "--store".into() },
    }];
    let sources =
        Sources { files: &files, environment: &environment, reserved_variables: &[], flags: &flags };
    let settings = resolve(&schema(), &sources).unwrap();
    let shown: Vec<String> = settings
        .all()
        .iter()
        .map(|setting| format!("{} = {} ({})", setting.field.key, setting.text, setting.origin))
        .collect();
    assert_eq!(
        shown,
        [
            "store = b (flag --store)",
            "engine.memory = 2MiB (project.toml, line 1)",
            "engine.keep = 3s (environment variable ATOLL_ENGINE_KEEP)",
            "engine.threads = 4 (user.toml, line 5)",
        ]
    );
    let engine = EngineOptions::from_settings(&settings).unwrap();
    assert_eq!(engine, EngineOptions { memory: Size(2 << 20), keep: Duration::from_secs(3), threads: 4 });
}

#[test]
fn an_unknown_key_is_named_with_file_line_and_the_nearest_key() {
    let error = from_file("# my options\n\n[engine]\nmemroy = \"1MiB\"").unwrap_err();
    assert_eq!(error.to_string(), "atoll.toml, line 4: there is no option \"engine.memroy\"");
    assert_eq!(error.hint().as_deref(), Some("did you mean \"engine.memory\"?"));
}

#[test]
fn an_unknown_variable_is_an_error_unless_it_is_reserved_or_not_ours() {
    let environment = variable("ATOLL_ENGINE_MEMORI", "1MiB");
    let sources = Sources { environment: &environment, ..Sources::default() };
    let error = resolve(&schema(), &sources).unwrap_err();
    assert_eq!(error.hint().as_deref(), Some("did you mean \"ATOLL_ENGINE_MEMORY\"?"));
    let reserved = Sources { reserved_variables: &["ATOLL_ENGINE_MEMORI"], ..sources };
    assert!(resolve(&schema(), &reserved).is_ok());
    let foreign = variable("PATH", "/bin");
    assert!(resolve(&schema(), &Sources { environment: &foreign, ..Sources::default() }).is_ok());
}

#[test]
fn a_wrong_value_names_place_key_and_what_would_be_right() {
    let error = from_file("[engine]\nmemory = \"lots\"").unwrap_err();
    assert_eq!(error.to_string(), "atoll.toml, line 2: option \"engine.memory\" cannot be used");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "\"lots\" is not a size such as 512MiB, 1.5GiB, 100kB or 4096");
}

#[test]
fn broken_toml_is_named_with_line_and_column() {
    match from_file("store = \"a\"\nstore 7").unwrap_err() {
        OptionsError::Syntax { file, line, column, .. } => {
            assert_eq!((file.as_str(), line, column), ("atoll.toml", 2, 7));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(from_file("engine.memory = [1]"), Err(OptionsError::NotSingle { found: "a list", .. })));
    assert!(matches!(from_file("engine = 1"), Err(OptionsError::UnknownKey { .. })));
}

#[test]
fn random_bytes_never_panic_any_parser() {
    let seed = 20_261_120;
    let mut random = fastrand::Rng::with_seed(seed);
    let words = [
        "every.",
        "size",
        "duration",
        "=",
        "\"",
        "[",
        "]",
        "\n",
        "1.5",
        "GiB",
        "ms",
        "{",
        "}",
        "none",
        "true",
        ".",
        "ATOLL_EVERY_SIZE",
        "'",
        "#",
        "µ",
        "9999999999999999999999",
        "0x",
        "-",
        "\u{0}",
        "é",
    ];
    for round in 0..20_000 {
        let mut bytes: Vec<u8> =
            (0..random.usize(0..12)).flat_map(|_| words[random.usize(..words.len())].bytes()).collect();
        if random.bool() {
            bytes.extend((0..random.usize(0..8)).map(|_| random.u8(..)));
        }
        let caught = std::panic::catch_unwind(|| atoll_options::fuzz::options(&bytes));
        assert!(caught.is_ok(), "seed {seed}, round {round}: {:?}", bytes.escape_ascii().to_string());
    }
    let deep = "[".repeat(100_000);
    assert!(!atoll_options::fuzz::options(format!("a = {deep}").as_bytes()));
}
