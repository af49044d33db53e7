//! An answer on its way into a buffer, which is as it was where nothing can be answered.

use crate::{ANSWER_BYTES_MAX, Refusal};
use atoll_resp::{Protocol, ReplyWriter};

/// Where an answer is written.
pub(crate) struct Answer<'a> {
    target: &'a mut Vec<u8>,
    protocol: Protocol,
    start: usize,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(target: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        let start = target.len();
        Self { target, protocol, start }
    }

    /// The same answer, for somebody to write it.
    pub(crate) fn again(&mut self) -> Answer<'_> {
        Answer { target: self.target, protocol: self.protocol, start: self.start }
    }

    pub(crate) fn writer(&mut self) -> ReplyWriter<'_> {
        ReplyWriter::new(self.target, self.protocol)
    }

    /// Takes back what was written.
    pub(crate) fn take_back(&mut self) {
        self.target.truncate(self.start);
        if self.target.capacity() > ANSWER_BYTES_MAX {
            self.target.shrink_to(self.start);
        }
    }

    /// Answers a refusal, and nothing else.
    pub(crate) fn refuse(&mut self, refusal: &Refusal) {
        self.take_back();
        self.writer().error(refusal.word(), &refusal.to_string());
    }

    /// Whether so many bytes more are not too many.
    pub(crate) fn check_room(&self, more: u64) -> Result<(), Refusal> {
        let actual = (self.target.len() - self.start) as u64 + more;
        let most = ANSWER_BYTES_MAX as u64;
        if actual <= most { Ok(()) } else { Err(Refusal::Limit { what: "an answer", actual, most }) }
    }

    /// Answers bytes, unless that makes the answer too long.
    pub(crate) fn string(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.check_room(bytes.len() as u64)?;
        self.writer().string(bytes);
        Ok(())
    }
}
