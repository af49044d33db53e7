//! `atoll ring slurm`: a batch script that runs a ring beside a command, on the nodes of a job.
//!
//! Invariant: the ring of a job ends before the job does, and the next job with the same folder continues
//! with its data.

use super::nodes::check_copies;
use super::{persistence, place, up};
use crate::text::quoted;
use crate::{Failure, Session};
use atoll_ring::{Persistence, SlotStorage};
use atoll_store::Durability;
use clap::Args;
use serde_json::json;
use std::path::{Path, PathBuf};

/// `atoll ring slurm`
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  atoll ring slurm --nodes 3 --store /scratch/me/ring -- srun --overlap ./simulate > job.sh
  atoll ring slurm --store ./ring --sbatch=--time=04:00:00 --sbatch=--partition=long -- ./simulate | sbatch
The folder must be shared by all nodes. The script starts a node of the ring on each node of the job, waits
until all slots are served, and runs the command with ATOLL_STORE set to the ring, so that every program of
Atoll finds it. It stops the ring when the command ends, or a minute before the time limit of the job. The next
job with the same folder and number of nodes continues with its data, even on other hosts, and even if this job
was killed.")]
pub struct Slurm {
    /// Number of nodes of the job, each of which runs a node of the ring
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=4096))]
    nodes: u16,
    /// Number of copies of all data; by default 3, or the number of nodes if that is less
    #[arg(long, value_name = "N")]
    copies: Option<usize>,
    /// Number of event loops of each node, each with slots and ports of its own; best one for each core
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    loops: u16,
    /// Port for clients; the ports 10,000 and 20,000 above it are used as well
    #[arg(long, value_name = "PORT", default_value_t = 7379)]
    port: u16,
    /// File with users to let in as well, and their permissions; all nodes of the job must see it at this
    /// path
    #[arg(long, value_name = "FILE")]
    acl_file: Option<PathBuf>,
    /// Option for sbatch, such as --sbatch=--time=04:00:00
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// Command to run beside the ring, as in a shell
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
}

/// The script; words between percent signs are placeholders.
const SCRIPT: &str = include_str!("slurm.sh");

impl Slurm {
    pub(super) fn run(self, session: &Session) -> Result<(), Failure> {
        let SlotStorage::Folder(folder) = place(false, session)? else {
            return Err(wrong(
                "a ring of a job in memory",
                "name a folder that all nodes share: --store /scratch/me/ring",
            ));
        };
        let path = |path: &Path| {
            let failed = |source| Failure::File { action: "find", place: path.display().to_string(), source };
            let path = std::path::absolute(path).map_err(failed)?;
            // The path is used in a URL as well.
            let text = path.to_str().filter(|text| !text.contains(['%', '&', '#', '\n']));
            text.map(quoted)
                .ok_or_else(|| wrong(format!("{}", path.display()), "name one without %, & and #"))
        };
        if let Some(odd) = self.sbatch.iter().find(|option| !option.starts_with('-') || option.contains('\n'))
        {
            return Err(wrong(
                format!("--sbatch {odd:?}"),
                "write an option as sbatch takes it: --sbatch=--time=04:00:00",
            ));
        }
        self.copies.map_or(Ok(()), |copies| check_copies(copies, self.nodes.into()))?;
        if self.port == 0 || self.port > 45_535 {
            return Err(wrong(format!("--port {}", self.port), "choose one from 1 to 45535"));
        }
        let program = std::env::current_exe().map_err(|source| Failure::File {
            action: "find",
            place: "this program".to_owned(),
            source,
        })?;
        // The next job may run on other hosts, which trust a log written by this one only if it was synced.
        let durability = match session.write_options()?.durability {
            None => Persistence::Always,
            Some(Durability::Buffered | Durability::Flushed | Durability::Synced) => persistence(session)?,
        };
        let options: String = self.sbatch.iter().map(|option| format!("#SBATCH {option}\n")).collect();
        let mut shape = self.copies.map(|copies| format!(" --copies {copies}")).unwrap_or_default();
        if self.loops > 1 {
            shape += &format!(" --loops {}", self.loops);
        }
        let script = SCRIPT
            .replace("%NODES%", &self.nodes.to_string())
            .replace("%OPTIONS%\n", &options)
            .replace("%SHAPE%", &shape)
            .replace("%USERS%", &self.acl_file.as_deref().map(path).transpose()?.unwrap_or_default())
            .replace("%PORT%", &self.port.to_string())
            .replace("%DURABILITY%", up::words(durability))
            .replace("%PROGRAM%", &path(&program)?)
            .replace("%FOLDER%", &path(&folder)?)
            .replace(
                "%COMMAND%",
                &self.command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
            );
        let script = script.trim_end().to_owned();
        session.output.either(|| script.clone(), || json!({ "script": script }))
    }
}

fn wrong(problem: impl Into<String>, hint: &str) -> Failure {
    Failure::Usage { problem: problem.into(), hint: hint.to_owned() }
}
