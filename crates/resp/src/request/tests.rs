//! Requests: complete, in pieces and damaged.

use super::*;
use crate::fuzz::requests;

fn owned(arguments: &[&[u8]]) -> Vec<Vec<u8>> {
    arguments.iter().map(|argument| argument.to_vec()).collect()
}

#[test]
fn arguments_are_slices_of_what_arrived() {
    let input = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\n*1\r\n$4\r\nPING\r\n";
    let mut parser = RequestParser::new(Limits::default());
    let request = parser.parse(input).unwrap().unwrap();
    assert_eq!((request.len(), request.get(0), request.get(1)), (2, Some(&b"GET"[..]), Some(&b"a\r\nb"[..])));
    assert_eq!(request.get(2), None);
    assert!(request.iter().all(|argument| input.as_ptr_range().contains(&argument.as_ptr())));
    let behind = request.bytes();
    let request = parser.parse(&input[behind..]).unwrap().unwrap();
    assert_eq!((request.get(0), behind + request.bytes()), (Some(&b"PING"[..]), input.len()));
}

#[test]
fn a_line_is_a_request_too() {
    let found = requests(b"PING\r\nset \"a b\" c\n\r\n*1\r\n$1\r\nx\r\n", 100);
    let expected = vec![owned(&[b"PING"]), owned(&[b"set", b"a b", b"c"]), owned(&[]), owned(&[b"x"])];
    assert_eq!(found, (expected, None));
}

#[test]
fn an_array_of_nothing_is_a_request_to_which_nothing_is_answered() {
    for input in ["*0\r\n", "*-1\r\n", "*-10\r\n"] {
        assert_eq!(requests(input.as_bytes(), 100), (vec![owned(&[])], None));
    }
}

#[test]
fn a_whole_request_is_known_as_soon_as_it_is_there_and_no_sooner() {
    let input = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nvalue\r\n";
    let mut parser = RequestParser::new(Limits::default());
    for len in 0..input.len() {
        assert!(parser.parse(&input[..len]).unwrap().is_none(), "after {len} bytes");
        assert!(parser.wants() <= input.len());
    }
    assert_eq!(parser.wants(), input.len());
    assert_eq!(parser.parse(input).unwrap().unwrap().bytes(), input.len());
}

#[test]
fn what_is_wrong_is_told_in_the_words_of_redis() {
    let cases: [(&[u8], &str); 16] = [
        (b"*a\r\n", "Protocol error: invalid multibulk length"),
        (b"*01\r\n", "Protocol error: invalid multibulk length"),
        (b"*41\r\n", "Protocol error: invalid multibulk length"),
        (b"*99999999999999999999\r\n", "Protocol error: invalid multibulk length"),
        (b"*1\r\n$-1\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$x\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n$61\r\n", "Protocol error: invalid bulk length"),
        (b"*1\r\n:1\r\n", "Protocol error: expected '$', got ':'"),
        (b"*1\r\n\n", "Protocol error: expected '$', got '\\n'"),
        (b"*1\r\n$1\r\nab\r\n", "Protocol error: expected CRLF"),
        (b"*1\rx", "Protocol error: expected CRLF"),
        (b"*4\r\n$60\r\n", "Protocol error: request of more than 200 bytes"),
        (b"SET \"a\r\n", "Protocol error: unbalanced quotes in request"),
        (b"", "Protocol error: too big inline request"),
        (b"*", "Protocol error: too big mbulk count string"),
        (b"*1\r\n$", "Protocol error: too big bulk count string"),
    ];
    for (start, expected) in cases {
        let mut input = start.to_vec();
        match expected {
            text if text.contains("too big") => input.resize(start.len() + LINE_BYTES, b'1'),
            text if text.contains("200 bytes") => {
                for _ in 0..3 {
                    input.extend([[b'a'; 60].as_slice(), b"\r\n$60\r\n"].concat());
                }
            }
            _ => {}
        }
        let (found, error) = requests(&input, 1 << 20);
        assert_eq!(
            error.map(|error| error.to_string()).as_deref(),
            Some(expected),
            "{}",
            start.escape_ascii()
        );
        assert!(found.is_empty());
    }
}

#[test]
fn who_has_not_said_who_they_are_may_send_little() {
    let error = |input: &[u8]| RequestParser::new(Limits::UNAUTHENTICATED).parse(input).err();
    assert_eq!(error(b"*11\r\n"), Some(ProtocolError::UnauthenticatedCount));
    assert_eq!(error(b"*1\r\n$16385\r\n"), Some(ProtocolError::UnauthenticatedLength));
    let hello = b"*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$1\r\nu\r\n$1\r\np\r\n";
    let mut parser = RequestParser::new(Limits::UNAUTHENTICATED);
    assert_eq!(parser.parse(hello).unwrap().map(|request| request.len()), Some(5));
    parser.set_limits(Limits::default());
    assert!(parser.parse(b"*1\r\n$16385\r\n").unwrap().is_none(), "and more then");
}

#[test]
fn what_is_claimed_is_not_allocated() {
    let limits =
        Limits { elements: usize::MAX, string_bytes: usize::MAX / 4, total_bytes: usize::MAX / 2, depth: 1 };
    let mut parser = RequestParser::new(limits);
    assert!(parser.parse(b"*9000000000000000000\r\n$2000000000000000000\r\nab").unwrap().is_none());
    assert!(parser.arguments.capacity() < 100);
}

/// Requests of arbitrary bytes with some typed lines among them, and their expected arguments.
fn stream(random: &mut fastrand::Rng) -> (Vec<u8>, Vec<Vec<Vec<u8>>>) {
    let (mut bytes, mut expected) = (Vec::new(), Vec::new());
    for _ in 0..random.usize(1..12) {
        if random.u8(..) < 40 {
            let words: Vec<Vec<u8>> =
                (0..random.usize(0..4)).map(|_| vec![random.lowercase() as u8; random.usize(1..5)]).collect();
            bytes.extend(words.join(&b' '));
            bytes.extend_from_slice(if random.bool() { b"\r\n" } else { b"\n" });
            expected.push(words);
        } else {
            let arguments: Vec<Vec<u8>> = (0..random.usize(0..6))
                .map(|_| {
                    (0..random.usize(0..30)).map(|_| *random.choice(b"\r\n$*:-0a\0\xff").unwrap()).collect()
                })
                .collect();
            write_request(&mut bytes, &arguments);
            expected.push(arguments);
        }
    }
    (bytes, expected)
}

#[test]
fn requests_come_out_as_they_went_in_however_they_are_cut() {
    for seed in 0..3000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (bytes, expected) = stream(&mut random);
        for piece in [1, 2, 3, 7, random.usize(1..100), bytes.len()] {
            assert_eq!(requests(&bytes, piece), (expected.clone(), None), "seed {seed}, pieces of {piece}");
        }
    }
}

#[test]
fn damaged_requests_end_the_same_way_however_they_are_cut() {
    let (mut wrong, mut right) = (0, 0);
    for seed in 0..3000 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut bytes, _) = stream(&mut random);
        for _ in 0..random.usize(1..4) {
            let at = random.usize(..bytes.len());
            match random.u8(..3) {
                0 => bytes[at] = random.u8(..),
                1 => bytes.insert(at, *random.choice(b"\r\n$*9-").unwrap()),
                _ => drop(bytes.remove(at)),
            }
            if bytes.is_empty() {
                break;
            }
        }
        let whole = requests(&bytes, bytes.len());
        for piece in [1, 2, 5] {
            assert_eq!(requests(&bytes, piece), whole, "seed {seed}, pieces of {piece}");
        }
        *(if whole.1.is_some() { &mut wrong } else { &mut right }) += 1;
    }
    assert!(wrong > 300 && right > 300, "{wrong} were wrong and {right} right");
}
