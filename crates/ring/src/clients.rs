//! `CLIENT LIST` and `CLIENT INFO`: connections described in one line each.

use crate::access::DEFAULT;
use crate::connection::{Outbox, Session};
use crate::connections::Connections;
use atoll_replica::Moment;
use atoll_resp::{COMMANDS, ClientSelection, Protocol};

/// The selected connections of a loop, one line each.
pub(crate) fn list(connections: &Connections, selection: &ClientSelection, now: Moment) -> String {
    let mut text = String::new();
    for (_, connection) in connections.iter().filter(|(_, one)| selection.shows(one.session.id)) {
        text.push_str(&line(&connection.session, &connection.outbox, now));
        text.push('\n');
    }
    text
}

/// One connection.
pub(crate) fn line(session: &Session, outbox: &Outbox, now: Moment) -> String {
    let seconds = |since: Moment| now.0.saturating_sub(since.0) / 1_000_000;
    let names = session.names();
    let command = session.command.and_then(|place| COMMANDS.get(usize::from(place)));
    format!(
        "id={} addr={} name={} age={} idle={} flags=N db={} sub=0 psub=0 ssub=0 multi=-1 oll={} omem={} cmd={} \
        user={} redir=-1 resp={} lib-name={} lib-ver={}",
        session.id,
        session.peer,
        String::from_utf8_lossy(&names.name),
        seconds(session.began),
        seconds(session.heard),
        session.keyspace,
        outbox.awaited(),
        outbox.unsent_bytes(),
        command.map_or("NULL", |command| command.name),
        session.who.as_ref().map_or(DEFAULT, |who| who.user().name()),
        if session.protocol == Protocol::Resp2 { 2 } else { 3 },
        String::from_utf8_lossy(&names.library),
        String::from_utf8_lossy(&names.version),
    )
}
