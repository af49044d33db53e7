//! `atoll completions`: shell completions.

use crate::{Failure, Session};
use clap::{Args, Command};
use clap_complete::{Shell, generate};

/// `atoll completions`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll completions bash > ~/.local/share/bash-completion/completions/atoll
  atoll completions zsh > ~/.zfunc/_atoll
  atoll completions fish > ~/.config/fish/completions/atoll.fish")]
pub struct Completions {
    /// Shell to generate completions for
    shell: Shell,
}

impl Completions {
    /// Runs the verb on the whole command line.
    ///
    /// # Errors
    /// Why the output could not be written.
    pub fn run(self, session: &Session, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        generate(self.shell, &mut command, "atoll", &mut script);
        session.output.bytes(&script)
    }
}
