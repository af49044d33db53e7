//! A node accepts as many clients as configured, whatever the soft limit of open files is.
#![allow(clippy::unwrap_used)]

mod support;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{Client, node};

#[test]
fn as_many_files_may_be_open_as_clients_may_connect() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    if maximum.is_some_and(|most| most < 2_000) {
        println!("SKIPPED [files] the hard limit of open files is below 2,000");
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum }).unwrap();
    let node = node();
    // This process has both ends of each.
    let mut clients: Vec<_> = (0..300).map(|_| Client::connect(node.address())).collect();
    assert!(clients.iter_mut().all(|client| client.say("PING") == "PONG"));
    // A node does not know at its start how many others there will be.
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = 10_000 + (1 << 18);
    assert!(current.is_none_or(|files| files >= maximum.unwrap_or(wanted).min(wanted)), "{current:?}");
}
