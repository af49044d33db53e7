//! From arguments to exit code: parsing, the runtime, signals, and reporting failures.

use crate::events;
use crate::failure::USAGE_EXIT;
use crate::options::{Color, read_settings};
use crate::output::report;
use crate::text::quoted;
use crate::{Failure, GlobalArguments, Session};
use atoll_options::{OptionValue, Settings};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};
use serde_json::json;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Exit codes that shells expect after a signal.
const INTERRUPTED_EXIT: u8 = 130;
const TERMINATED_EXIT: u8 = 143;

/// Parses the command line, or reports what is wrong with it.
///
/// # Errors
/// The exit code: 0 after `--help`, 2 after a mistake.
pub fn parse<T: Parser>() -> Result<T, ExitCode> {
    let wants_json = std::env::args_os().any(|argument| argument == "--json");
    let mut program = with_joined_prose(T::command());
    let matched = program.try_get_matches_from_mut(std::env::args_os());
    let parsed = matched.and_then(|mut matches| T::from_arg_matches_mut(&mut matches));
    parsed.map_err(|error| {
        let error = error.format(&mut program);
        let is_help = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
        let hint = usage_hint(&error, &program);
        if wants_json && !is_help {
            report_usage_as_json(&error, hint);
        } else {
            print(&error, is_help, &hint);
        }
        ExitCode::from(if error.use_stderr() { USAGE_EXIT } else { 0 })
    })
}

/// The program with the prose after the examples of each help text joined into paragraphs.
fn with_joined_prose(command: Command) -> Command {
    let told = command.get_after_help().map(|text| paragraphs(&text.to_string()));
    let command = match told {
        Some(text) => command.after_help(text),
        None => command,
    };
    command.mut_subcommands(with_joined_prose)
}

/// The heading of the examples in a help text.
const EXAMPLES: &str = "Examples:";

/// Joins hard-wrapped prose into one line per paragraph, so that the terminal wraps it anew. Examples stay as
/// they are, and a blank line separates them from the prose that follows.
fn paragraphs(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let is_prose = !line.is_empty() && !line.starts_with(' ');
        match lines.last_mut() {
            Some(last) if is_prose && last.starts_with(' ') => {
                lines.extend([String::new(), line.to_owned()]);
            }
            Some(last) if is_prose && !last.is_empty() && last != EXAMPLES => {
                last.push(' ');
                last.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// Prints a message of the argument parser, with a hint at its end like all our failures.
fn print(error: &clap::Error, is_help: bool, hint: &str) {
    let is_terminal = if is_help { std::io::stdout().is_terminal() } else { std::io::stderr().is_terminal() };
    let colored = use_colors_unread(is_terminal);
    let rendered = error.render();
    let text = if colored { rendered.ansi().to_string() } else { rendered.to_string() };
    let text = if is_help { text } else { with_plain_number_errors(text) };
    // A failed write cannot be reported anywhere.
    let _ = match text.rfind("For more information") {
        Some(at) if !is_help => writeln!(std::io::stderr().lock(), "{}hint: {hint}", &text[..at]),
        _ if error.use_stderr() => write!(std::io::stderr().lock(), "{text}"),
        _ => write!(std::io::stdout().lock(), "{text}"),
    };
}

/// Replaces the standard library's messages about numbers by plain ones. All our counts start at 0.
fn with_plain_number_errors(text: String) -> String {
    let whole = "it is not a whole number from 0 on";
    [
        ("invalid digit found in string", whole),
        ("cannot parse integer from empty string", whole),
        ("number too large to fit in target type", "it is too large"),
        ("invalid float literal", "it is not a number"),
    ]
    .into_iter()
    .fold(text, |text, (said, plain)| text.replace(said, plain))
}

/// The hint for mistakes that the parser has no better suggestion for.
fn usage_hint(error: &clap::Error, program: &Command) -> String {
    let unknown = error.get(ContextKind::InvalidSubcommand).map(ToString::to_string);
    let elsewhere = unknown.map(|name| verbs_called(&name, program)).unwrap_or_default();
    if !elsewhere.is_empty() {
        return format!("did you mean {}?", elsewhere.join(" or "));
    }
    if let Some(place) = place_behind(error) {
        return format!("is it a store? name it with --store {}", quoted(&place));
    }
    let odd = std::env::args_os().find(|argument| argument.to_str().is_none());
    match odd.filter(|_| error.kind() == ErrorKind::InvalidUtf8) {
        Some(odd) => format!(
            "\"{}\" is not UTF-8: type keys and values of other bytes with --hex or --escaped, and rename a folder",
            odd.as_encoded_bytes().escape_ascii()
        ),
        None => "`--help` after a verb shows what it takes, with examples".to_owned(),
    }
}

/// A stray argument after a verb that takes only flags: most likely the store that was meant.
fn place_behind(error: &clap::Error) -> Option<String> {
    let odd = error.get(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument)?;
    let usage = error.get(ContextKind::Usage)?.to_string().replace("[OPTIONS]", "");
    let odd = odd.to_string();
    let is_place = !odd.starts_with('-') && !odd.contains(char::is_control);
    (is_place && !usage.contains(['<', '['])).then_some(odd)
}

/// The verbs of this name in all groups, as they are typed.
fn verbs_called(name: &str, program: &Command) -> Vec<String> {
    let groups = program.get_subcommands().filter(|group| !group.is_hide_set());
    groups
        .filter(|group| group.get_subcommands().any(|verb| verb.get_name() == name && !verb.is_hide_set()))
        .map(|group| format!("`{} {} {name}`", program.get_name(), group.get_name()))
        .collect()
}

fn report_usage_as_json(error: &clap::Error, hint: String) {
    let message = match error.kind() {
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "a verb or an argument is missing".to_owned(),
        _ => with_plain_number_errors(first_paragraph(&error.render().to_string())),
    };
    let suggestion =
        [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue]
            .into_iter()
            .find_map(|kind| error.get(kind))
            .map(|value| match value {
                ContextValue::Strings(names) => names.join(", "),
                other => other.to_string(),
            });
    let hint = suggestion.map_or(hint, |name| format!("did you mean {name}?"));
    let object = json!({ "error": { "kind": "usage", "message": message, "causes": [], "hint": hint, "exit": USAGE_EXIT } });
    let _ = writeln!(std::io::stderr().lock(), "{object}");
}

/// The first paragraph of an error message, which may span several lines, as one line.
fn first_paragraph(text: &str) -> String {
    let lines: Vec<_> = text.trim_start_matches("error: ").lines().map(str::trim).collect();
    lines.split(|line| line.is_empty()).next().unwrap_or_default().join(" ")
}

/// Runs a verb and returns the exit code.
pub fn execute(
    global: &GlobalArguments,
    verb: impl AsyncFnOnce(&Session) -> Result<(), Failure>,
) -> ExitCode {
    let settings = events::start_logging(global.json).and_then(|()| read_settings(global));
    let (result, colored) = match settings {
        Ok(settings) => {
            let colored = use_colors(&settings);
            (run(&Session::new(global, settings), verb), colored)
        }
        Err(failure) => (Err(failure), use_colors_unread(std::io::stderr().is_terminal())),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !matches!(failure, Failure::OutputClosed) {
                report(&failure, global.json, colored);
            }
            ExitCode::from(failure.exit())
        }
    }
}

fn use_colors(settings: &Settings) -> bool {
    shows_colors(settings.get("color").unwrap_or(Color::Auto), std::io::stderr().is_terminal())
}

/// Whether to use colours before options are read, or if they cannot be: from the arguments and the
/// environment.
fn use_colors_unread(is_terminal: bool) -> bool {
    let typed: Vec<String> =
        std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    let apart = typed.iter().skip_while(|word| *word != "--color").nth(1).map(String::as_str);
    let said = typed.iter().find_map(|word| word.strip_prefix("--color=")).or(apart);
    let said = said.map(str::to_owned).or_else(|| std::env::var_os("ATOLL_COLOR")?.into_string().ok());
    shows_colors(said.and_then(|said| Color::parse(&said).ok()).unwrap_or(Color::Auto), is_terminal)
}

/// Whether colours are shown: as `said` decides; for `auto`, if the output is a terminal that can show them
/// and `NO_COLOR` is not set.
fn shows_colors(said: Color, is_terminal: bool) -> bool {
    match said {
        Color::Always => true,
        Color::Never => false,
        Color::Auto => {
            let asks_for_none = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
            is_terminal && !asks_for_none && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb")
        }
    }
}

fn run(session: &Session, verb: impl AsyncFnOnce(&Session) -> Result<(), Failure>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|source| {
        Failure::File { action: "start", place: "the threads of this program".to_owned(), source }
    })?;
    let result = runtime.block_on(async {
        let signals = Signals::listen();
        fail_writes_beyond_size_limit();
        let result = tokio::select! {
            result = verb(session) => result,
            exit = signals.heard() => session.interrupted(exit),
        };
        let closed = signals.hold(session.close()).await;
        let told = session.flush_output();
        result.and(closed).and(told)
    });
    // A thread may still be blocked reading standard input; waiting for it would block us as well.
    runtime.shutdown_background();
    result
}

/// Makes a write beyond the file size limit of the process fail with an error, as on a full disk, instead of
/// killing the process.
#[cfg(unix)]
fn fail_writes_beyond_size_limit() {
    use tokio::signal::unix::{SignalKind, signal};
    // Installing a handler once is enough: the default action, which ends the process, never comes back, even
    // if nothing listens any more.
    let _ = signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()));
}

#[cfg(not(unix))]
fn fail_writes_beyond_size_limit() {}

/// Requests to stop, as signals deliver them.
struct Signals {
    first: Arc<Notify>,
    exit: Arc<AtomicU8>,
    is_heard: Arc<AtomicBool>,
}

/// How long a verb that is blocked in a write, and so cannot react, may go on after the first signal.
const GRACE: Duration = Duration::from_secs(2);

/// How soon a repeated signal counts as the same one: `timeout` signals its child and then the child's whole
/// process group.
const ECHO: Duration = Duration::from_millis(200);

/// A source of signals that ask us to stop.
trait SignalSource {
    /// The exit code for the next signal; never returns if none can arrive.
    fn next(&mut self) -> impl Future<Output = u8> + Send;
}

/// Returns when the process must exit at once after its first signal: at a second signal, or if the first was
/// not handled in time. Nothing acknowledged is lost by that.
async fn until_exit_is_due(
    exit: u8,
    signals: &mut impl SignalSource,
    is_heard: &AtomicBool,
    (echo, grace): (Duration, Duration),
) {
    let first_at = tokio::time::Instant::now();
    loop {
        let second = tokio::time::timeout_at(first_at + grace, signals.next()).await;
        let is_echo = second.as_ref().is_ok_and(|second| *second == exit) && first_at.elapsed() < echo;
        if is_echo {
            continue;
        }
        if second.is_err() && is_heard.load(Ordering::Acquire) {
            signals.next().await;
        }
        return;
    }
}

impl Signals {
    /// Listens in a task of its own: the verb may be blocked writing to a pipe whose reader has stalled.
    fn listen() -> Self {
        let signals = Self { first: Arc::default(), exit: Arc::default(), is_heard: Arc::default() };
        let (first, shared_exit, is_heard) =
            (signals.first.clone(), signals.exit.clone(), signals.is_heard.clone());
        // Registered before the verb starts: an earlier signal would be lost if the process ignores it.
        let mut interruptions = Interruptions::listen();
        tokio::spawn(async move {
            let exit = interruptions.next().await;
            shared_exit.store(exit, Ordering::Release);
            first.notify_one();
            until_exit_is_due(exit, &mut interruptions, &is_heard, (ECHO, GRACE)).await;
            std::process::exit(exit.into());
        });
        signals
    }

    /// Runs `closing` to its end even after a first signal: an orderly close is what that signal asks for.
    async fn hold<T>(&self, closing: impl Future<Output = T>) -> T {
        let was_heard = self.is_heard.swap(true, Ordering::AcqRel);
        let closed = closing.await;
        self.is_heard.store(was_heard, Ordering::Release);
        closed
    }

    /// Waits for the first signal and returns its exit code.
    async fn heard(&self) -> u8 {
        self.first.notified().await;
        self.is_heard.store(true, Ordering::Release);
        self.exit.load(Ordering::Acquire)
    }
}

/// SIGINT and SIGTERM, caught from the moment this is created.
#[cfg(unix)]
struct Interruptions {
    signals: Option<(tokio::signal::unix::Signal, tokio::signal::unix::Signal)>,
}

#[cfg(unix)]
impl Interruptions {
    fn listen() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self { signals: signal(SignalKind::interrupt()).ok().zip(signal(SignalKind::terminate()).ok()) }
    }
}

#[cfg(unix)]
impl SignalSource for Interruptions {
    async fn next(&mut self) -> u8 {
        let Some((interrupt, terminate)) = &mut self.signals else { return std::future::pending().await };
        tokio::select! {
            _ = interrupt.recv() => INTERRUPTED_EXIT,
            _ = terminate.recv() => TERMINATED_EXIT,
        }
    }
}

/// Ctrl-C, which asks us to stop.
#[cfg(not(unix))]
struct Interruptions;

#[cfg(not(unix))]
impl Interruptions {
    fn listen() -> Self {
        Self
    }
}

#[cfg(not(unix))]
impl SignalSource for Interruptions {
    async fn next(&mut self) -> u8 {
        match tokio::signal::ctrl_c().await {
            Ok(()) => INTERRUPTED_EXIT,
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_paragraph_are_one_and_examples_stay_as_they_are() {
        let text = "Examples:\n  atoll a \\\n    b\n  atoll c\nOne thing:\nand another.\n\nA third.";
        let expected = "Examples:\n  atoll a \\\n    b\n  atoll c\n\nOne thing: and another.\n\nA third.";
        assert_eq!(paragraphs(text), expected);
    }

    /// Signals that arrive one right after the other.
    struct ScriptedSignals(Vec<u8>);

    impl SignalSource for ScriptedSignals {
        async fn next(&mut self) -> u8 {
            match self.0.pop() {
                Some(signal) => signal,
                None => std::future::pending().await,
            }
        }
    }

    /// How many of these signals, taken from the last on, are left unread when the process exits at once
    /// after SIGTERM.
    async fn left(signals: &[u8], is_heard: bool, times: (Duration, Duration)) -> usize {
        let mut signals = ScriptedSignals(signals.to_vec());
        until_exit_is_due(TERMINATED_EXIT, &mut signals, &AtomicBool::new(is_heard), times).await;
        signals.0.len()
    }

    #[tokio::test]
    async fn a_signal_repeated_at_once_counts_as_one_and_a_later_one_ends_at_once() {
        let (long, none) = (Duration::from_secs(3600), Duration::ZERO);
        let (echo, other) = (TERMINATED_EXIT, INTERRUPTED_EXIT);
        assert_eq!(left(&[echo, other, echo, echo], true, (long, long)).await, 1, "another one is no echo");
        assert_eq!(left(&[echo, echo], true, (none, long)).await, 1, "one that comes later is no echo");
        assert_eq!(left(&[], false, (long, none)).await, 0, "nobody heard the first in time");
    }

    #[tokio::test]
    async fn closing_a_store_counts_as_handling_the_signal() {
        let signals = Signals { first: Arc::default(), exit: Arc::default(), is_heard: Arc::default() };
        let is_heard = || signals.is_heard.load(Ordering::Acquire);
        assert!(signals.hold(async { is_heard() }).await);
        assert!(!is_heard(), "what comes behind that may hang in a pipe");
    }
}
