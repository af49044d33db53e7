//! The fuzz targets: each takes any bytes and must come back without a panic.
//!
//! A target is a function and a row in [`TARGETS`]. `cargo xtask fuzz NAME` looks for an input that breaks
//! it, and the system tests replay `fuzz/seeds/NAME/` and `fuzz/findings/NAME/` without any fuzzer.
//!
//! Invariant: a target depends on its input alone, so that a finding fails again wherever it is replayed.

use atoll_wire::{Flags, Kind, Limits, encode_frame};

/// Takes any bytes.
pub type Target = fn(&[u8]);

/// Every target, by the name that `cargo xtask fuzz` knows.
pub const TARGETS: &[(&str, Target)] = &[
    ("url", url),
    ("options", options),
    ("import", import),
    ("text", text),
    ("expression", expression),
    ("rows", rows),
    ("wire", wire),
    ("frames", frames),
    ("requests", requests),
    ("replies", replies),
    ("attach", atoll_embedded::attach::check_bytes),
    ("page", atoll_engine::fuzz::page),
    ("superblock", atoll_engine::fuzz::superblock),
    ("records", atoll_engine::fuzz::records),
    ("log", atoll_engine::fuzz::log),
    ("groups", atoll_engine::fuzz::groups),
    ("peer", peer),
    ("greeting", greeting),
    ("ask", ask),
    ("answer", answer),
    ("change", change),
    ("table", table),
    ("snapshot", snapshot),
];

/// A store URL, as a person types it.
fn url(input: &[u8]) {
    // Rejecting a meaningless URL is correct, so the result does not matter.
    let _ = atoll_open::fuzz::url(input);
}

/// Options from a file and from the environment.
fn options(input: &[u8]) {
    let _ = atoll_options::fuzz::options(input);
}

/// A file to import; the first byte chooses the format.
fn import(input: &[u8]) {
    let _ = atoll_cli::fuzz::import(input);
}

/// An escaped, hexadecimal or base64 text of the command line.
fn text(input: &[u8]) {
    let _ = atoll_cli::fuzz::text(input);
}

/// A condition or a box, as a person types it.
fn expression(input: &[u8]) {
    let _ = atoll_tables::expression::fuzz::expression(input);
}

/// A file of rows: CSV, a LAMMPS dump or a NumPy array, as the first byte says.
fn rows(input: &[u8]) {
    let _ = atoll_row_files::fuzz::rows(input);
}

/// Frames of a peer, in pieces of a size that the first byte says.
fn wire(input: &[u8]) {
    let Some((piece, frames)) = input.split_first() else { return };
    let _ = atoll_wire::check_bytes(frames, usize::from(*piece), Limits::default());
}

/// Frames with valid checksums but arbitrary contents, to reach the code behind the checksum.
fn frames(input: &[u8]) {
    let Some((piece, mut rest)) = input.split_first() else { return };
    let mut bytes = Vec::new();
    while let [kind, flags, stream, length, body @ ..] = rest {
        let kinds = [Kind::Request, Kind::Response, Kind::Cancel];
        let flags = Flags { more: flags & 1 > 0, last: flags & 2 > 0 };
        let (body, behind) = body.split_at(usize::from(*length).min(body.len()));
        encode_frame(&mut bytes, kinds[usize::from(*kind) % kinds.len()], flags, u64::from(*stream), body);
        rest = behind;
    }
    let _ = atoll_wire::check_bytes(&bytes, usize::from(*piece), Limits::default());
}

/// Requests in the Redis protocol, in pieces of a size that the first byte gives. Cut in any other way they
/// must parse the same.
fn requests(input: &[u8]) {
    let Some((piece, bytes)) = input.split_first() else { return };
    let found = atoll_resp::fuzz::requests(bytes, usize::from(*piece));
    assert_eq!(found, atoll_resp::fuzz::requests(bytes, bytes.len()), "cut otherwise");
    atoll_resp::fuzz::commands(&found.0);
}

/// Replies in the Redis protocol, cut in the same way.
fn replies(input: &[u8]) {
    let Some((piece, bytes)) = input.split_first() else { return };
    // Compared as text, because NaN is not equal to itself.
    let told = |piece| format!("{:?}", atoll_resp::fuzz::replies(bytes, piece));
    assert_eq!(told(usize::from(*piece)), told(bytes.len()), "cut otherwise");
}

/// A message of another node of a ring.
fn peer(input: &[u8]) {
    let _ = atoll_ring::fuzz::message(input);
}

/// The first frame of another node of a ring; the first byte says whether the ring has a secret.
fn greeting(input: &[u8]) {
    let _ = atoll_ring::fuzz::greeting(input);
}

/// A request to a member of the configuration group.
fn ask(input: &[u8]) {
    let _ = atoll_council::fuzz::ask(input);
}

/// The answer of such a member.
fn answer(input: &[u8]) {
    let _ = atoll_council::fuzz::answer(input);
}

/// Changes of the table as they lie in the log of the group, decided one after the other.
fn change(input: &[u8]) {
    let _ = atoll_council::fuzz::changes(input);
}

/// An update of the table, applied to nothing and to a known table.
fn table(input: &[u8]) {
    let _ = atoll_council::fuzz::update(input);
}

/// The state in a snapshot of the group, which a member goes on from.
fn snapshot(input: &[u8]) {
    let _ = atoll_council::fuzz::snapshot(input);
}
