//! The Redis protocol, version 2, as far as the bench needs it: replies have no arrays.

use super::protocol::{Malformed, Operation, Parsed, Reply, counted, decimal, line};

/// Writes a request.
pub fn write(operation: Operation, key: &[u8], value: &[u8], into: &mut Vec<u8>) {
    match operation {
        Operation::Get => into.extend_from_slice(b"*2\r\n$3\r\nGET\r\n"),
        Operation::Set => into.extend_from_slice(b"*3\r\n$3\r\nSET\r\n"),
        Operation::Append => into.extend_from_slice(b"*3\r\n$6\r\nAPPEND\r\n"),
    }
    write_argument(key, into);
    if operation != Operation::Get {
        write_argument(value, into);
    }
}

fn write_argument(argument: &[u8], into: &mut Vec<u8>) {
    into.push(b'$');
    into.extend_from_slice(itoa::Buffer::new().format(argument.len()).as_bytes());
    into.extend_from_slice(b"\r\n");
    into.extend_from_slice(argument);
    into.extend_from_slice(b"\r\n");
}

/// Parses the reply at the beginning of `input`.
pub fn parse(input: &[u8]) -> Parsed<'_> {
    let Some((line, taken)) = line(input)? else { return Ok(None) };
    let Some((&kind, rest)) = line.split_first() else { return Err(Malformed::at(input)) };
    let reply = match kind {
        b'+' if rest == b"OK" => Reply::Done,
        b'+' => Reply::Status(rest),
        b'-' => Reply::Refused(rest),
        b':' => Reply::Number(number(rest).ok_or_else(|| Malformed::at(input))?),
        b'$' if rest == b"-1" => Reply::Nothing,
        b'$' => {
            let length = decimal(rest).ok_or_else(|| Malformed::at(input))?;
            let value = counted(input, taken, length)?;
            return Ok(value.map(|(value, end)| (Reply::Value(value), end)));
        }
        _ => return Err(Malformed::at(input)),
    };
    Ok(Some((reply, taken)))
}

fn number(text: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let number = i64::try_from(decimal(digits)?).ok()?;
    Some(if is_negative { -number } else { number })
}

/// The command at the beginning of `input` and its length, for the servers of tests.
#[cfg(test)]
pub fn parse_command(input: &[u8]) -> Option<(Vec<Vec<u8>>, usize)> {
    let (first, mut taken) = line(input).unwrap()?;
    let mut words = Vec::new();
    for _ in 0..decimal(&first[1..]).unwrap() {
        let (length, begins) = line(&input[taken..]).unwrap()?;
        let (word, end) = counted(input, taken + begins, decimal(&length[1..]).unwrap()).unwrap()?;
        words.push(word.to_vec());
        taken = end;
    }
    Some((words, taken))
}
