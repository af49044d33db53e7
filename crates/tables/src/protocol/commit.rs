//! Committing: the steps of a process, read by read and write by write, until its edit is committed or never
//! will be.
//!
//! Invariant: the outcome of a write that may still be in flight is open. It is settled once the version that
//! the write tried to make exists, made by it or by another edit, or once the session that it needs is gone.
//! Invariant: an edit that ended as refused or fenced is in no version and never will be.

use super::{Edit, EditError, EditId, Head, Manifest, Proposal, Version};

/// The state of one edit that is being committed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    id: EditId,
    edit: Edit,
    /// The version that a write with an unknown outcome tried to make.
    doubt: Option<Version>,
    step: Step,
}

/// What the process has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Read the partition and report a [`View`].
    Look,
    /// Carry out the proposal and report its [`Outcome`].
    Write(Proposal),
    /// Nothing: the commit has ended.
    Ended,
}

/// What one linearizable read of the manifest partition saw.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The current head.
    pub head: Head,
    /// The manifest of the head's version.
    pub manifest: &'a Manifest,
    /// Whether the session cell is still as the process wrote it.
    pub session_stands: bool,
}

/// How a conditional write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// All conditions held, and the write was carried out.
    Done,
    /// A condition did not hold, and nothing was written.
    Refused,
    /// The write may have been carried out, or may still be.
    Unknown,
}

/// How a commit ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// The edit made this version.
    Made(Version),
    /// The edit is in no version and never will be.
    Refused(EditError),
    /// The session is gone. The edit is in no version and never will be, and the objects written for it are
    /// lost: start again with a new session and new objects.
    Fenced,
    /// A write was in doubt for so long that the session ended and a vacuum removed the history that would
    /// settle it: whether the edit is in a version cannot be determined. Blocks may be appended again under a
    /// new session, because a version identifies its blocks by name. The objects of a pack must be left to a
    /// vacuum.
    Forgotten,
}

impl Commit {
    /// Begins to commit an edit. Its objects must have been created.
    #[must_use]
    pub const fn new(id: EditId, edit: Edit) -> Self {
        Self { id, edit, doubt: None, step: Step::Look }
    }

    /// What the process has to do next.
    #[must_use]
    pub const fn step(&self) -> Step {
        self.step
    }

    /// The id of the edit.
    #[must_use]
    pub const fn id(&self) -> EditId {
        self.id
    }

    /// The edit.
    #[must_use]
    pub const fn edit(&self) -> &Edit {
        &self.edit
    }

    /// The version whose author the next look must find out, if a write is in doubt. Its edit cell exists as
    /// long as the session holds a version below it.
    #[must_use]
    pub const fn doubt(&self) -> Option<Version> {
        self.doubt
    }

    /// Processes the result of a look. Returns how the commit ended, if it did.
    ///
    /// `maker` returns the id in the edit cell of the version in [`Commit::doubt`], or `None` if a vacuum
    /// removed that cell. It is called only if a write is in doubt and the head has reached that version.
    pub fn saw(&mut self, view: View<'_>, maker: impl FnOnce(Version) -> Option<EditId>) -> Option<Ended> {
        if let Some(tried) = self.doubt.filter(|tried| view.head.version >= *tried) {
            match maker(tried) {
                Some(id) if id == self.id => return self.end(Ended::Made(tried)),
                None => return self.end(Ended::Forgotten),
                // Another edit made that version, so the condition of our write can no longer hold, even if
                // the write is still in flight.
                Some(_) => self.doubt = None,
            }
        }
        if !view.session_stands {
            return self.end(Ended::Fenced);
        }
        match view.manifest.apply(&self.edit) {
            Err(error) => self.end(Ended::Refused(error)),
            Ok(_) => {
                let head = view.head.next(view.manifest.edits_max());
                let proposal = Proposal { base: view.head, head, id: self.id };
                self.step = Step::Write(proposal);
                None
            }
        }
    }

    /// Processes the outcome of the proposed write. Returns how the commit ended, if it did.
    pub fn wrote(&mut self, outcome: Outcome) -> Option<Ended> {
        let Step::Write(proposal) = self.step else { return None };
        match outcome {
            Outcome::Done => return self.end(Ended::Made(proposal.head.version)),
            Outcome::Unknown => self.doubt = Some(proposal.head.version),
            // The refusal may be due to our own earlier write that is in doubt, so the doubt remains.
            Outcome::Refused => {}
        }
        self.step = Step::Look;
        None
    }

    fn end(&mut self, how: Ended) -> Option<Ended> {
        self.step = Step::Ended;
        Some(how)
    }
}
