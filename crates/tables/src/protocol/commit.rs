//! Committing: what a process does, read by read and write by write, until its edit is true or never will be.
//!
//! Invariant: while a write may still be on its way, its fate is open; it is settled once the version that it
//! tried to make is there, made by it or by another, or once the session that it needs is gone.
//! Invariant: an edit that ended as refused or fenced is in no version and never will be.

use super::{Edit, EditError, EditId, Head, Manifest, Proposal, Version};

/// One edit on its way into a version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Commit {
    id: EditId,
    edit: Edit,
    /// The version that a write of unknown outcome tried to make.
    doubt: Option<Version>,
    step: Step,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Read the partition and report a [`View`].
    Look,
    /// Carry out the proposal and report its [`Outcome`].
    Write(Proposal),
    /// Nothing: it is over.
    Ended,
}

/// What one linearizable read of the manifest partition saw.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The head.
    pub head: Head,
    /// The content of its version.
    pub manifest: &'a Manifest,
    /// Whether the process's session cell is still as the process wrote it.
    pub session_stands: bool,
}

/// How a conditional write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was carried out.
    Done,
    /// A condition did not hold.
    Refused,
    /// It may have been carried out, or may yet be.
    Unknown,
}

/// How a commit ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Ended {
    /// The edit made this version.
    Made(Version),
    /// The edit is in no version and never will be.
    Refused(EditError),
    /// The session is gone; the edit is in no version and never will be. What it wrote is lost: start again
    /// with a new session and new objects.
    Fenced,
    /// A write was in doubt for so long that the session ended and a vacuum took the history that would tell:
    /// nobody knows whether the edit is in a version. Blocks may be appended again, under a new session,
    /// because a version knows its blocks by name; what a pack wrote must be left to a vacuum.
    Forgotten,
}

impl Commit {
    /// A wish that was not uttered yet. Its objects have been created.
    #[must_use]
    pub const fn new(id: EditId, edit: Edit) -> Self {
        Self { id, edit, doubt: None, step: Step::Look }
    }

    /// What to do next.
    #[must_use]
    pub const fn step(&self) -> Step {
        self.step
    }

    /// The edit's name.
    #[must_use]
    pub const fn id(&self) -> EditId {
        self.id
    }

    /// The edit.
    #[must_use]
    pub const fn edit(&self) -> &Edit {
        &self.edit
    }

    /// The version whose maker has to be looked up with the next look, if there is a doubt. Its edit cell is
    /// there as long as the session keeps a version below it.
    #[must_use]
    pub const fn doubt(&self) -> Option<Version> {
        self.doubt
    }

    /// Takes in what a look saw.
    ///
    /// `maker` is the id in the edit cell of [`Commit::doubt`]'s version, none if a vacuum took that cell; it
    /// is asked for only if there is a doubt and the head has reached that version. Answers how it ended, if
    /// it did.
    pub fn saw(&mut self, view: View<'_>, maker: impl FnOnce(Version) -> Option<EditId>) -> Option<Ended> {
        if let Some(tried) = self.doubt.filter(|tried| view.head.version >= *tried) {
            match maker(tried) {
                Some(id) if id == self.id => return self.end(Ended::Made(tried)),
                None => return self.end(Ended::Forgotten),
                // Another edit made that version, so no write of ours that is still on its way can meet its
                // condition any more.
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

    /// Takes in how the proposed write ended. Answers how the commit ended, if it did.
    pub fn wrote(&mut self, outcome: Outcome) -> Option<Ended> {
        let Step::Write(proposal) = self.step else { return None };
        match outcome {
            Outcome::Done => return self.end(Ended::Made(proposal.head.version)),
            Outcome::Unknown => self.doubt = Some(proposal.head.version),
            // A write of ours that was in doubt may be what stood in the way: the doubt stays.
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
