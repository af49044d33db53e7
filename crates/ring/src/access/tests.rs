//! Lists of users: what they grant, and which lists are refused.

use super::*;
use atoll_resp::{COMMANDS, find_place};

/// The SHA-256 of `secret`.
const SECRET: &str = "#2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

fn users(text: &str) -> Users {
    Users::parse(text).unwrap()
}

fn user(rules: &str) -> Arc<User> {
    users(&format!("user ana on {SECRET} {rules}")).get("ana").unwrap().clone()
}

fn may_use(user: &User, command: &str) -> bool {
    user.may_use(find_place(command.as_bytes()).unwrap().into())
}

#[test]
fn who_has_the_password_is_let_in_and_nobody_else() {
    let list = users(&format!("# people\nuser ana on {SECRET} ~* +@all\n\nuser bob off {SECRET}\nuser cy"));
    assert_eq!(list.authenticate(b"ana", b"secret").map(|user| user.name()), Some("ana"));
    for (name, password) in
        [("ana", "Secret"), ("ana", ""), ("bob", "secret"), ("cy", ""), ("default", "secret")]
    {
        assert!(list.authenticate(name.as_bytes(), password.as_bytes()).is_none(), "{name}");
    }
    assert!(list.authenticate(b"\xff", b"secret").is_none());
}

#[test]
fn commands_are_granted_and_taken_in_the_order_of_the_rules() {
    let nobody = user("");
    // Every user may introduce itself and look up the layout of the ring.
    let is_everybodys = |name: &str| may_use(&nobody, name);
    assert!(["ping", "auth", "cluster", "command", "client", "acl", "quit"].into_iter().all(is_everybodys));
    assert!(is_everybodys("at.table"));
    assert!(
        !["get", "set", "flushall", "config", "at.ring", "dbsize", "at.scan"].into_iter().any(is_everybodys)
    );
    let reads = user("+@read -hgetall +APPEND");
    assert!(may_use(&reads, "get") && may_use(&reads, "hget") && may_use(&reads, "append"));
    assert!(!may_use(&reads, "hgetall") && !may_use(&reads, "set") && !may_use(&reads, "config"));
    assert!(may_use(&user("-get +@read"), "get") && !may_use(&user("+@read -@read"), "get"));
    assert!(may_use(&user("allcommands -@dangerous"), "set"));
    assert!(!may_use(&user("allcommands -@dangerous"), "flushall"));
    assert!(COMMANDS.iter().all(|command| may_use(&user("+@all"), command.name)));
    let nothing = user("+@all -@connection -@all");
    assert!(may_use(&nothing, "ping") && !may_use(&nothing, "get"), "a category takes what can be taken");
    // What a single rule takes away is gone, whichever command it is.
    for command in COMMANDS.iter().filter(|command| !may_use(&nobody, command.name)) {
        assert!(!may_use(&user(&format!("+@all -{}", command.name)), command.name), "{}", command.name);
    }
}

#[test]
fn keys_are_those_of_the_patterns() {
    let ana = user("~run:* %R~shared:?");
    assert!(
        ana.may_touch(b"run:7", true) && ana.may_touch(b"run:", false) && !ana.may_touch(b"other", false)
    );
    assert!(ana.may_touch(b"shared:1", false) && !ana.may_touch(b"shared:1", true));
    assert!(!ana.may_touch_all(false));
    let all = user("~a resetkeys %R~*");
    assert!(all.may_touch_all(false) && !all.may_touch_all(true) && !all.may_touch(b"a", true));
    assert!(user("allkeys").may_touch_all(true) && user("%RW~*").may_touch_all(true));
}

#[test]
fn a_list_is_what_its_lines_say_again() {
    let text = format!("user ana on {SECRET} ~run:* %R~* +@read -hgetall\nuser bob off\n");
    let list = users(&text);
    let again: Vec<String> = list.lines().collect();
    assert_eq!(users(&again.join("\n")), list);
    assert_eq!(list.names().collect::<Vec<_>>(), ["ana", "bob"]);
}

#[test]
fn what_is_not_understood_is_refused_with_its_line() {
    let long = format!("user {}", "a".repeat(300));
    let wrong = [
        ("users ana", "begins with"),
        ("user", "name is missing"),
        ("user default on", "token"),
        (long.as_str(), "256"),
        ("user ana on ~*", "no password"),
        ("user ana on nopass", "users without a password"),
        ("user ana on >secret", "sha256sum"),
        ("user ana #12", "64"),
        ("user ana %W~*", "%R~PATTERN"),
        ("user ana %X~*", "not a rule"),
        ("user ana +@nothing", "no category"),
        ("user ana +nothing", "no command"),
        ("user ana +cluster|slots", "parts of commands"),
        ("user ana +@all -info", "every user may use info; it cannot be taken away"),
        ("user ana -CLIENT", "every user may use CLIENT;"),
        ("user ana -wait", "cannot be taken away"),
        ("user ana -at.table", "cannot be taken away"),
        ("user ana reset", "not a supported rule"),
        ("user ana é", "not a supported rule"),
        ("user ana\nuser ana", "twice"),
    ];
    for (text, told) in wrong {
        let (line, what) = Users::parse(&format!("# first\n{text}")).unwrap_err();
        assert_eq!(line, 2 + text.lines().count() - 1, "{text}");
        assert!(what.contains(told), "{text}: {what}");
    }
}

#[test]
fn whatever_a_list_says_it_is_read_or_refused() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let words = [
        "user",
        "ana",
        "on",
        "off",
        SECRET,
        "~*",
        "%R~",
        "+@all",
        "-get",
        "#",
        "+",
        "%",
        "\n",
        "é",
        "\0",
        "resetkeys",
    ];
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..random.usize(..12) {
            text.push_str(words[random.usize(..words.len())]);
            text.push_str(if random.bool() { " " } else { "" });
        }
        if let Ok(list) = Users::parse(&text) {
            let lines: Vec<String> = list.lines().collect();
            assert_eq!(users(&lines.join("\n")), list, "{text:?}, seed {seed}");
        }
    }
    let many: String = (0..=USERS_MAX).map(|number| format!("user u{number}\n")).collect();
    assert_eq!(Users::parse(&many).unwrap_err().0, USERS_MAX + 1);
    let rules = "~a ".repeat(RULES_MAX + 1);
    assert!(Users::parse(&format!("user ana {rules}")).is_err());
    let line = format!("user ana +get{}", " +get".repeat(LINE_BYTES_MAX / 5));
    assert!(line.len() > LINE_BYTES_MAX);
    assert_eq!(
        Users::parse(&format!("\n{line}")).unwrap_err(),
        (2, "a line has at most 65536 bytes".to_owned())
    );
}
