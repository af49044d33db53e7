//! An answer on its way into a buffer, which is restored if nothing can be answered.

use crate::{ANSWER_BYTES_MAX, Refusal};
use atoll_resp::{Protocol, ReplyWriter};

/// Writes one answer to the end of a buffer.
pub(crate) struct Answer<'a> {
    target: &'a mut Vec<u8>,
    protocol: Protocol,
    start: usize,
    bytes_max: usize,
}

impl<'a> Answer<'a> {
    pub(crate) fn new(target: &'a mut Vec<u8>, protocol: Protocol) -> Self {
        let start = target.len();
        Self { target, protocol, start, bytes_max: ANSWER_BYTES_MAX }
    }

    /// The same answer, reborrowed.
    pub(crate) fn again(&mut self) -> Answer<'_> {
        Answer { target: self.target, ..*self }
    }

    pub(crate) fn writer(&mut self) -> ReplyWriter<'_> {
        ReplyWriter::new(self.target, self.protocol)
    }

    /// Switches to the protocol version that every client understands.
    pub(crate) fn speak_oldest(&mut self) {
        self.protocol = Protocol::Resp2;
    }

    /// How many bytes were written.
    pub(crate) fn len(&self) -> usize {
        self.target.len() - self.start
    }

    /// What was written after the first `bytes` bytes.
    pub(crate) fn behind(&self, bytes: usize) -> &[u8] {
        self.target.get(self.start + bytes..).unwrap_or_default()
    }

    /// Repeats an answer that was given before.
    pub(crate) fn raw(&mut self, bytes: &[u8]) {
        self.target.extend_from_slice(bytes);
    }

    /// Removes what was written.
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

    /// Checks that `more` bytes still fit into the answer.
    pub(crate) fn check_room(&self, more: u64) -> Result<(), Refusal> {
        let actual = (self.target.len() - self.start) as u64 + more;
        let most = self.bytes_max as u64;
        if actual <= most { Ok(()) } else { Err(Refusal::Limit { what: "an answer", actual, most }) }
    }

    /// Answers a string, unless that makes the answer too long.
    pub(crate) fn string(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        self.check_room(bytes.len() as u64)?;
        self.writer().string(bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_would_be_too_long_is_refused_and_what_was_before_stays() {
        let mut target = b"before".to_vec();
        let mut answer = Answer { bytes_max: 20, ..Answer::new(&mut target, Protocol::Resp2) };
        answer.writer().array(2);
        assert_eq!(answer.string(b"ten bytes!"), Ok(()));
        let refusal = answer.string(b"x").unwrap_err();
        assert_eq!(refusal, Refusal::Limit { what: "an answer", actual: 22, most: 20 });
        answer.refuse(&refusal);
        assert_eq!(target, b"before-LIMIT an answer: 22; allowed are 20\r\n");
    }
}
