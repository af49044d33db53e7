//! ZIP archives as NumPy writes them: members are stored, and lengths have 64 bits whether they need them or
//! not.

use super::super::Target;
use std::io::{self, Write};

/// The version of the format that knows lengths of 64 bits.
const VERSION: u16 = 45;
/// Names are UTF-8.
const FLAGS: u16 = 1 << 11;
/// The first of January 1980, so that the same rows make the same archive.
const DATE: u16 = 0x21;
/// Says that a value is among the 64-bit numbers behind the name.
const ELSEWHERE: u32 = u32::MAX;

/// An archive that is being written.
pub(super) struct Zip {
    target: Target,
    /// The bytes written so far.
    at: u64,
    members: Vec<Member>,
}

struct Member {
    name: String,
    bytes: u64,
    checksum: u32,
    offset: u64,
}

impl Zip {
    pub(super) fn new(target: Target) -> Self {
        Self { target, at: 0, members: Vec::new() }
    }

    /// Begins a member of this length and checksum, whose bytes are then written.
    pub(super) fn begin(&mut self, name: &str, bytes: u64, checksum: u32) -> io::Result<()> {
        let member = Member { name: name.to_owned(), bytes, checksum, offset: self.at };
        let mut head = 0x0403_4b50_u32.to_le_bytes().to_vec();
        member.describe(&[bytes, bytes], &mut head)?;
        head.extend_from_slice(member.name.as_bytes());
        push_wide(&[bytes, bytes], &mut head);
        self.members.push(member);
        self.write(&head)
    }

    /// Writes bytes of the member.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.target.write_all(bytes)
    }

    /// Writes the directory.
    pub(super) fn finish(mut self) -> io::Result<Target> {
        let (start, count) = (self.at, self.members.len() as u64);
        for member in std::mem::take(&mut self.members) {
            let wide = [member.bytes, member.bytes, member.offset];
            let mut entry = 0x0201_4b50_u32.to_le_bytes().to_vec();
            entry.extend_from_slice(&VERSION.to_le_bytes());
            member.describe(&wide, &mut entry)?;
            // No comment, on no other disk, and no attributes.
            entry.extend_from_slice(&[0; 10]);
            entry.extend_from_slice(&ELSEWHERE.to_le_bytes());
            entry.extend_from_slice(member.name.as_bytes());
            push_wide(&wide, &mut entry);
            self.write(&entry)?;
        }
        let end = self.at;
        let mut tail = 0x0606_4b50_u32.to_le_bytes().to_vec();
        // The length of the rest of this record.
        tail.extend_from_slice(&44_u64.to_le_bytes());
        tail.extend_from_slice(&VERSION.to_le_bytes());
        tail.extend_from_slice(&VERSION.to_le_bytes());
        tail.extend_from_slice(&[0; 8]);
        for number in [count, count, end - start, start] {
            tail.extend_from_slice(&number.to_le_bytes());
        }
        tail.extend_from_slice(&0x0706_4b50_u32.to_le_bytes());
        tail.extend_from_slice(&0_u32.to_le_bytes());
        tail.extend_from_slice(&end.to_le_bytes());
        tail.extend_from_slice(&1_u32.to_le_bytes());
        tail.extend_from_slice(&0x0605_4b50_u32.to_le_bytes());
        tail.extend_from_slice(&[0; 4]);
        tail.extend_from_slice(&[0xff; 12]);
        tail.extend_from_slice(&[0; 2]);
        self.write(&tail)?;
        Ok(self.target)
    }
}

impl Member {
    /// What both heads of a member say: from the version that is needed to the length of the extra field.
    fn describe(&self, wide: &[u64], target: &mut Vec<u8>) -> io::Result<()> {
        let short = |length: usize| {
            u16::try_from(length)
                .map_err(|_| io::Error::other("the name of a column is too long for an archive"))
        };
        let (name, extra) = (short(self.name.len())?, short(4 + 8 * wide.len())?);
        for number in [VERSION, FLAGS, 0, 0, DATE] {
            target.extend_from_slice(&number.to_le_bytes());
        }
        for number in [self.checksum, ELSEWHERE, ELSEWHERE] {
            target.extend_from_slice(&number.to_le_bytes());
        }
        for number in [name, extra] {
            target.extend_from_slice(&number.to_le_bytes());
        }
        Ok(())
    }
}

/// The extra field with numbers of 64 bits.
fn push_wide(numbers: &[u64], target: &mut Vec<u8>) {
    target.extend_from_slice(&1_u16.to_le_bytes());
    target.extend_from_slice(&(8 * numbers.len() as u16).to_le_bytes());
    for number in numbers {
        target.extend_from_slice(&number.to_le_bytes());
    }
}
