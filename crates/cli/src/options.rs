//! The options of the command line: sections, flags, and where files and variables are read.
//!
//! Invariant: only this file reads options from files and the environment, with two exceptions: `events.rs`
//! looks up the log settings, and `launch.rs` whether to show colours.

use crate::Failure;
use atoll_open::{OpenOptions, Password};
use atoll_options::{Assignment, Origin, Schema, Section, Settings, Size, Sources, TomlText, resolve};
use atoll_store::{Durability, WriteOptions};
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Args, Command};
use rustix::fs::OFlags;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Flags that every verb takes.
#[derive(Args, Clone, Debug, Default)]
pub struct GlobalArguments {
    /// The store: a folder, file:PATH?mode=read, mem:, cassandra://HOST/KEYSPACE or ring://HOST:PORT/ [env:
    /// ATOLL_STORE]
    #[arg(long, global = true, value_name = "URL", help_heading = "Global options")]
    pub store: Option<String>,
    /// Write results and errors as JSON, one object per line
    #[arg(long, global = true, help_heading = "Global options")]
    pub json: bool,
    /// What writes must survive: default, buffered, flushed or synced
    #[arg(long, global = true, value_name = "CLASS", value_parser = AnyOf(DurabilityChoice::WORDS),
        hide_possible_values = true, help_heading = "Global options")]
    pub durability: Option<String>,
    /// Time to wait for the store, such as 2s; after that the outcome is unknown
    #[arg(long, global = true, value_name = "DURATION", help_heading = "Global options")]
    pub deadline: Option<String>,
    /// When to use colours: auto, always or never
    #[arg(long, global = true, value_name = "WHEN", value_parser = AnyOf(Color::WORDS),
        hide_possible_values = true, help_heading = "Global options")]
    pub color: Option<String>,
    /// Options file to read instead of the usual ones [env: ATOLL_CONFIG]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Global options")]
    pub config: Option<PathBuf>,
    /// Set any option, such as --set engine.memory=512MiB; `atoll config show` lists them
    #[arg(long, global = true, value_name = "KEY=VALUE", help_heading = "Global options")]
    pub set: Vec<String>,
}

/// Words that shell completion offers. Other words are refused together with all other options, wherever they
/// were set.
#[derive(Clone, Copy)]
struct AnyOf(&'static [&'static str]);

impl TypedValueParser for AnyOf {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        argument: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.0.iter().map(PossibleValue::new)))
    }
}

atoll_options::choice! {
    /// When to use colours.
    pub enum Color: "auto, always or never" {
        /// Only on terminals.
        Auto = "auto",
        /// Always.
        Always = "always",
        /// Never.
        Never = "never",
    }
}

atoll_options::choice! {
    /// What a write must survive.
    pub enum DurabilityChoice: "default, buffered, flushed or synced" {
        /// The default of the store.
        Default = "default",
        /// Nothing: the write may be lost when the process ends.
        Buffered = "buffered",
        /// The end of the process.
        Flushed = "flushed",
        /// A loss of power.
        Synced = "synced",
    }
}

atoll_options::options! {
    /// Options at the top of the options file, outside of sections.
    pub struct TopOptions in "" {
        /// The store to use: a folder, file:PATH?mode=read, mem:, cassandra://HOST/KEYSPACE or
        /// ring://HOST:PORT/
        store: String = "",
        /// When to use colours: auto, always or never
        color: Color = "auto",
    }
}

atoll_options::options! {
    /// How to write.
    pub struct WriteSection in "write." {
        /// What writes must survive: default (the store's own), buffered, flushed or synced
        durability: DurabilityChoice = "default",
        /// Time to wait before the outcome counts as unknown, or none
        deadline: Option<Duration> = "none",
    }
}

atoll_options::options! {
    /// How to run a store on this machine.
    pub struct EngineSection in "engine." {
        /// Memory budget
        memory: Size = "1GiB",
        /// Bytes of log that trigger a checkpoint
        checkpoint: Size = "1GiB",
        /// How long to keep unreferenced space for readers without a lease; never more than a quarter of the
        /// file, beyond which the oldest is used again earlier
        keep: Duration = "10min",
    }
}

atoll_options::options! {
    /// How to import.
    pub struct ImportSection in "import." {
        /// Partitions to write at the same time
        in_flight: u16 = "8",
        /// Bytes to read before they are written and the progress is recorded
        window: Size = "8MiB",
    }
}

/// All options of this program.
pub(crate) fn schema() -> Schema {
    Schema::new().with::<TopOptions>().with::<WriteSection>().with::<EngineSection>().with::<ImportSection>()
}

/// Variables with our prefix that are not options.
const RESERVED_VARIABLES: [&str; 9] = [
    CONFIG_VARIABLE,
    "ATOLL_LOG",
    "ATOLL_LOG_FORMAT",
    PASSWORD_VARIABLE,
    // Where tests find a Cassandra cluster.
    "ATOLL_CASSANDRA",
    "ATOLL_CASSANDRA_NODES",
    "ATOLL_CASSANDRA_CONTROL",
    "ATOLL_CASSANDRA_FOLDER",
    // Where benchmarks keep their stores.
    "ATOLL_BENCH_DIR",
];

/// Names an options file that replaces the usual ones.
const CONFIG_VARIABLE: &str = "ATOLL_CONFIG";

/// The password for Cassandra. It is not an option, because options are shown.
const PASSWORD_VARIABLE: &str = "ATOLL_CASSANDRA_PASSWORD";

/// Reads files and environment, and applies the flags on top.
pub(crate) fn read_settings(global: &GlobalArguments) -> Result<Settings, Failure> {
    let environment = read_environment(std::env::vars_os())?;
    let files = read_files(global)?;
    let texts: Vec<TomlText<'_>> = files.iter().map(|(name, text)| TomlText { name, text }).collect();
    let flags = flags(global)?;
    let sources = Sources {
        files: &texts,
        environment: &environment,
        reserved_variables: &RESERVED_VARIABLES,
        flags: &flags,
    };
    Ok(resolve(&schema(), &sources)?)
}

/// Our variables. A variable that is not UTF-8 is refused: converted lossily, it would name another folder or
/// another password. Its value is not shown, since it may be the password.
fn read_environment(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Vec<(String, String)>, Failure> {
    let names = variables.into_iter().map(|(name, text)| (name.to_string_lossy().into_owned(), text));
    // The path of a file need not be UTF-8.
    let ours = names.filter(|(name, _)| name.starts_with("ATOLL_") && name != CONFIG_VARIABLE);
    let read = |(name, text): (String, OsString)| match text.into_string() {
        Ok(text) => Ok((name, text)),
        Err(_) => Err(Failure::Usage {
            problem: format!("the variable {name} is not valid UTF-8"),
            hint: "set it to valid UTF-8, and rename a folder whose name is not".to_owned(),
        }),
    };
    ours.map(read).collect()
}

/// The files that apply, weakest first: the user's, then that of the current folder; or only the one that was
/// named.
fn read_files(global: &GlobalArguments) -> Result<Vec<(String, String)>, Failure> {
    let variable = |name: &str| std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    if let Some(named) = global.config.clone().or_else(|| variable(CONFIG_VARIABLE)) {
        return Ok(vec![read_file(&named)?]);
    }
    let user = variable("XDG_CONFIG_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".config")))
        .map(|folder| folder.join("atoll/atoll.toml"));
    let user = user.filter(|path| path.is_file()).map(|path| read_file(&path)).transpose()?;
    Ok(user.into_iter().chain(read_here(Path::new("atoll.toml"))?).collect())
}

/// The options file of the current folder, if it has one. Another user of the folder may replace it at any
/// moment, so the file that is judged is the one that is read. What is no file, such as a pipe, is not waited
/// for.
fn read_here(here: &Path) -> Result<Option<(String, String)>, Failure> {
    let place = here.display().to_string();
    let failed = |source| Failure::File { action: "read the options file", place: place.clone(), source };
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let mut file = match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(here) {
        Ok(file) => file,
        Err(source) if here.is_file() => return Err(failed(source)),
        Err(_) => return Ok(None),
    };
    let opened = file.metadata().map_err(failed)?;
    if !opened.is_file() {
        return Ok(None);
    }
    check_whose(here, &opened)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    Ok(Some((place, text)))
}

/// Refuses the options file of the current folder if another user owns it, or the link that leads to it: by
/// choosing the store and the file of its token, that user could have the token sent anywhere.
///
/// The name is looked at after the file was opened: a link that was there for a moment only is not there any
/// more.
fn check_whose(here: &Path, opened: &Metadata) -> Result<(), Failure> {
    let named = here.symlink_metadata().ok();
    let link = named.as_ref().filter(|named| named.is_symlink());
    let is_own = |user: &u32| [rustix::process::geteuid().as_raw(), 0].contains(user);
    let place = here.display();
    let users = [Some(opened.uid()), link.map(MetadataExt::uid)];
    if let Some(user) = users.into_iter().flatten().find(|user| !is_own(user)) {
        return Err(Failure::Usage {
            problem: format!(
                "{place} in the current folder belongs to another user ({user}), who could make you use another store"
            ),
            hint: format!("read it, and if it is right, name it with --config {place}"),
        });
    }
    let is_it = |named: &Metadata| (named.dev(), named.ino()) == (opened.dev(), opened.ino());
    if link.is_some() || named.as_ref().is_some_and(is_it) {
        return Ok(());
    }
    Err(Failure::Usage {
        problem: format!("{place} in the current folder was replaced while it was read"),
        hint: format!("read it, and if it is right, name it with --config {place}"),
    })
}

fn read_file(path: &Path) -> Result<(String, String), Failure> {
    let place = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok((place, text)),
        Err(source) => Err(Failure::File { action: "read the options file", place, source }),
    }
}

fn flags(global: &GlobalArguments) -> Result<Vec<Assignment>, Failure> {
    let named = [
        ("store", "--store", &global.store),
        ("write.durability", "--durability", &global.durability),
        ("write.deadline", "--deadline", &global.deadline),
        ("color", "--color", &global.color),
    ];
    let mut flags = Vec::new();
    for pair in &global.set {
        let Some((key, text)) = pair.split_once('=') else {
            return Err(Failure::Usage {
                problem: format!("--set \"{pair}\" is not KEY=VALUE"),
                hint: "write, for example, --set engine.memory=512MiB".to_owned(),
            });
        };
        flags.push(assignment(key.trim(), text, "--set"));
    }
    flags.extend(
        named.into_iter().filter_map(|(key, flag, text)| Some(assignment(key, text.as_ref()?, flag))),
    );
    Ok(flags)
}

fn assignment(key: &str, text: &str, flag: &str) -> Assignment {
    Assignment { key: key.to_owned(), text: text.to_owned(), origin: Origin::Flag { flag: flag.to_owned() } }
}

/// How to open a store under these settings.
pub(crate) fn open_options(settings: &Settings) -> Result<OpenOptions, Failure> {
    let engine = EngineSection::from_settings(settings)?;
    Ok(OpenOptions {
        memory_bytes: engine.memory.0,
        checkpoint_bytes: engine.checkpoint.0,
        keep: engine.keep,
        // A variable that is not UTF-8 was refused with all the others.
        password: std::env::var_os(PASSWORD_VARIABLE)
            .and_then(|password| password.into_string().ok())
            .map(Password),
        ..OpenOptions::default()
    })
}

/// How to write under these settings.
pub(crate) fn write_options(settings: &Settings) -> Result<WriteOptions, Failure> {
    let write = WriteSection::from_settings(settings)?;
    let durability = match write.durability {
        DurabilityChoice::Default => None,
        DurabilityChoice::Buffered => Some(Durability::Buffered),
        DurabilityChoice::Flushed => Some(Durability::Flushed),
        DurabilityChoice::Synced => Some(Durability::Synced),
    };
    Ok(WriteOptions { durability, deadline: write.deadline, request: None })
}

/// The durability that the command line itself names. What is made with it has it for good, so how writes are
/// made by default, by files and variables, does not count.
pub(crate) fn named_durability(settings: &Settings) -> Result<Option<Durability>, Failure> {
    let setting = settings.setting("write.durability");
    match setting.is_some_and(|setting| matches!(setting.origin, Origin::Flag { .. })) {
        true => Ok(write_options(settings)?.durability),
        false => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_options_file_that_is_not_the_one_that_was_opened_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let [here, other, link] = ["atoll.toml", "other", "link"].map(|name| place.path().join(name));
        std::fs::write(&here, "ours").unwrap();
        std::fs::write(&other, "another").unwrap();
        std::os::unix::fs::symlink("atoll.toml", &link).unwrap();
        let (there, opened) = (here.metadata().unwrap(), other.metadata().unwrap());
        for name in [&here, &link] {
            check_whose(name, &there).unwrap();
        }
        // Another user had a link there for a moment, which led to a file of ours.
        let refused = check_whose(&here, &opened).unwrap_err();
        assert!(refused.to_string().contains("was replaced while it was read"), "{refused}");
        std::fs::remove_file(&here).unwrap();
        assert!(check_whose(&here, &there).is_err());
        if std::os::unix::fs::lchown(&link, Some(65534), None).is_err() {
            println!("SKIPPED [other-user] a file cannot be given away here");
            return;
        }
        let refused = check_whose(&link, &opened).unwrap_err();
        assert!(refused.to_string().contains("belongs to another user (65534)"), "{refused}");
    }

    #[test]
    fn what_is_no_file_under_the_name_of_the_options_file_is_passed_over_at_once() {
        let place = tempfile::tempdir().unwrap();
        let here = place.path().join("atoll.toml");
        assert!(read_here(&here).unwrap().is_none());
        // Nobody writes to it.
        let (mode, path) = (rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR, here.clone());
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(read_here(&here).unwrap().is_none());
        std::fs::remove_file(&here).unwrap();
        std::fs::write(&here, "text").unwrap();
        assert_eq!(read_here(&here).unwrap().unwrap().1, "text");
    }

    #[test]
    fn only_the_command_line_names_what_is_there_for_good() {
        let environment = [("ATOLL_WRITE_DURABILITY".to_owned(), "synced".to_owned())];
        let files = [TomlText { name: "atoll.toml", text: "write.durability = \"synced\"" }];
        let found = |files: &[TomlText<'_>], environment: &[(String, String)], flags: &[Assignment]| {
            let sources = Sources { files, environment, reserved_variables: &RESERVED_VARIABLES, flags };
            let settings = resolve(&schema(), &sources).unwrap();
            (named_durability(&settings).unwrap(), write_options(&settings).unwrap().durability)
        };
        let (flushed, synced) = (Some(Durability::Flushed), Some(Durability::Synced));
        assert_eq!(found(&[], &[], &[]), (None, None));
        assert_eq!(found(&files, &[], &[]), (None, synced));
        assert_eq!(found(&[], &environment, &[]), (None, synced));
        let flags = |word| [assignment("write.durability", word, "--durability")];
        assert_eq!(found(&files, &environment, &flags("flushed")), (flushed, flushed));
        assert_eq!(found(&files, &environment, &flags("default")), (None, None));
    }
}
