//! `atoll config`: the options in effect.

use crate::{Failure, Session};
use atoll_options::{Origin, Setting, environment_name};
use clap::Subcommand;
use serde_json::{Value, json};

/// The verbs on options.
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Show every option: its value, where it was set, and its purpose
    #[command(after_help = "Examples:
  atoll config show
  ATOLL_ENGINE_MEMORY=512MiB atoll config show --json
Options are read from ~/.config/atoll/atoll.toml, then ./atoll.toml, then ATOLL_... variables, then flags;
later ones take precedence.")]
    Show,
}

impl Config {
    /// Runs the verb.
    ///
    /// # Errors
    /// Why the output could not be written.
    pub fn run(self, session: &Session) -> Result<(), Failure> {
        let settings = session.settings.all();
        if session.output.is_json() {
            return settings.iter().try_for_each(|setting| session.output.json(&as_json(setting)));
        }
        let lines: Vec<String> = settings
            .iter()
            .map(|setting| format!("{} = {}", setting.field.key, quoted(&setting.text)))
            .collect();
        let width = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        for (line, setting) in lines.iter().zip(settings) {
            session.output.line(format!("{line:width$}  # {}", setting.origin))?;
        }
        Ok(())
    }
}

/// The text as a TOML value; numbers and booleans are not quoted.
fn quoted(text: &str) -> String {
    let is_bare = matches!(text, "true" | "false")
        || (!text.is_empty() && text.len() < 19 && text.bytes().all(|byte| byte.is_ascii_digit()));
    if is_bare { text.to_owned() } else { format!("{text:?}") }
}

fn as_json(setting: &Setting) -> Value {
    let (origin, place) = match &setting.origin {
        Origin::Default => ("default", Value::Null),
        Origin::File { name, line } => ("file", json!({ "name": name, "line": line })),
        Origin::Environment { variable } => ("environment", json!(variable)),
        Origin::Flag { flag } => ("flag", json!(flag)),
    };
    json!({
        "key": setting.field.key,
        "value": setting.text,
        "origin": origin,
        "place": place,
        "default": setting.field.default,
        "variable": environment_name(setting.field.key),
        "help": setting.field.help.trim(),
    })
}
