//! Why a folder cannot take the next state of a store.

use atoll_store::StoreError;

/// Why a backup is refused. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BackupRefusal {
    #[error("it is the store itself")]
    Itself,
    #[error("process {pid} on {host} has it open")]
    InUse { host: String, pid: u32 },
    #[error("it holds other files")]
    OtherFiles,
    #[error("it is a store, not a backup")]
    NoBackup,
    #[error("a newer release wrote its mark")]
    UnknownMark,
    #[error("it is a backup of another store")]
    OtherStore,
    #[error("something was written to it since the last backup")]
    Touched,
    #[error("the snapshot of its last state was deleted there")]
    StateGone,
    #[error(
        "the store does not know the state that it holds (commit {sequence}): the snapshot \"{name}\" is gone"
    )]
    StateUnknown { name: String, sequence: u64 },
}

impl BackupRefusal {
    /// The refusal of the folder called `place`.
    pub(crate) fn at(&self, place: &str) -> StoreError {
        StoreError::InvalidInput {
            what: "folder of the backup",
            problem: format!("{place}: {self}"),
            hint: self.hint(),
        }
    }

    fn hint(&self) -> &'static str {
        match self {
            Self::Itself | Self::OtherFiles | Self::NoBackup => {
                "name a folder that does not exist yet, or that of an earlier backup"
            }
            Self::InUse { .. } => "end that process first, or name another folder",
            Self::UnknownMark => "use the release that wrote it, or a later one",
            Self::OtherStore => "name another folder; with --full this one is replaced",
            Self::Touched | Self::StateGone => {
                "copy it with `atoll store copy` if it is needed; with --full it is replaced"
            }
            Self::StateUnknown { .. } => {
                "the store was restored from something older, or the snapshot was deleted; with --full everything is copied again"
            }
        }
    }
}
