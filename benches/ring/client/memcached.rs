//! The protocols of memcached: classic text commands, and quiet meta commands for batches.
//!
//! memcached answers each classic `get` with a write call of its own, however many arrived together; quiet
//! meta commands are its way to batch requests. They are answered only with values and errors, and the
//! no-operation after them confirms that all are done.

use super::protocol::{Malformed, Operation, Parsed, Reply, counted, decimal, line};

/// Writes a classic request.
pub fn write_text(operation: Operation, key: &[u8], value: &[u8], into: &mut Vec<u8>) {
    let verb: &[u8] = match operation {
        Operation::Get => b"get ",
        Operation::Set => b"set ",
        Operation::Append => b"append ",
    };
    into.extend_from_slice(verb);
    into.extend_from_slice(key);
    if operation != Operation::Get {
        into.extend_from_slice(b" 0 0 ");
        write_block(value, b"\r\n", into);
        return;
    }
    into.extend_from_slice(b"\r\n");
}

/// Writes a quiet request.
pub fn write_quiet(operation: Operation, key: &[u8], value: &[u8], into: &mut Vec<u8>) {
    let (verb, flags): (&[u8], &[u8]) = match operation {
        Operation::Get => (b"mg ", b" v q\r\n"),
        Operation::Set => (b"ms ", b" q\r\n"),
        Operation::Append => (b"ms ", b" q MA\r\n"),
    };
    into.extend_from_slice(verb);
    into.extend_from_slice(key);
    if operation == Operation::Get {
        into.extend_from_slice(flags);
        return;
    }
    into.push(b' ');
    write_block(value, flags, into);
}

fn write_block(value: &[u8], behind_length: &[u8], into: &mut Vec<u8>) {
    into.extend_from_slice(itoa::Buffer::new().format(value.len()).as_bytes());
    into.extend_from_slice(behind_length);
    into.extend_from_slice(value);
    into.extend_from_slice(b"\r\n");
}

/// Parses the reply at the beginning of `input`.
pub fn parse(input: &[u8]) -> Parsed<'_> {
    let Some((line, taken)) = line(input)? else { return Ok(None) };
    let reply = match line {
        b"STORED" | b"HD" => Reply::Done,
        b"END" | b"EN" | b"NOT_STORED" | b"NS" | b"NOT_FOUND" | b"NF" => Reply::Nothing,
        b"MN" => Reply::End,
        b"OK" => Reply::Status(line),
        b"ERROR" => Reply::Refused(line),
        _ if line.starts_with(b"SERVER_ERROR") || line.starts_with(b"CLIENT_ERROR") => Reply::Refused(line),
        _ if line.starts_with(b"VERSION ") => Reply::Status(line),
        _ if line.starts_with(b"VALUE ") => return classic_value(input, line, taken),
        _ if line.starts_with(b"VA ") => return meta_value(input, line, taken),
        _ => return Err(Malformed::at(input)),
    };
    Ok(Some((reply, taken)))
}

/// `VALUE key flags length`, the value, and `END`.
fn classic_value<'a>(input: &'a [u8], line: &[u8], taken: usize) -> Parsed<'a> {
    let length = line.rsplit(|&byte| byte == b' ').next().and_then(decimal);
    let length = length.ok_or_else(|| Malformed::at(input))?;
    let Some((value, end)) = counted(input, taken, length)? else { return Ok(None) };
    match input.get(end..end + 5) {
        None => Ok(None),
        Some(b"END\r\n") => Ok(Some((Reply::Value(value), end + 5))),
        Some(_) => Err(Malformed::at(&input[end..])),
    }
}

/// `VA length`, perhaps flags, and the value.
fn meta_value<'a>(input: &'a [u8], line: &[u8], taken: usize) -> Parsed<'a> {
    let length = line[3..].split(|&byte| byte == b' ').next().and_then(decimal);
    let length = length.ok_or_else(|| Malformed::at(input))?;
    Ok(counted(input, taken, length)?.map(|(value, end)| (Reply::Value(value), end)))
}
