//! Decides what to do about a folder, given what was observed of it; no I/O.
//!
//! The kernel's lock, where it can be trusted, needs no record: its holder is alive. A lock file counts until
//! its owner is proved dead, and only a process on the same host can prove that.

/// How a folder is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// To read and write: own it, or attach to the owner.
    Write,
    /// To read: attach to the owner, or read the last state on disk. Nothing is written.
    Read,
}

/// What is known of the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// This process holds the kernel's lock.
    Ours,
    /// Another process holds the kernel's lock.
    Taken,
    /// The kernel's lock was not asked for: a reader does not need it, or it cannot be trusted here.
    NotAsked,
}

/// The host of the process that the record names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// This one, since its last start; its process ids can be looked up.
    Here,
    /// This one, before its last start.
    BeforeRestart,
    /// This one, but process ids mean something else there (a container).
    OtherNamespace,
    /// Another one, or one that cannot be told from another one here.
    Other,
}

/// Whether the process that the record names lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// It does, and wrote the record; or it cannot be seen from here.
    Alive,
    /// It does not.
    Dead,
}

/// Whether the lock file was touched lately, by the clock of its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heartbeat {
    /// It was.
    Fresh,
    /// It was not.
    Stale,
}

/// What the record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// There is no record: nobody owns the folder.
    Nobody,
    /// It cannot be read: a process is writing it, or died while writing it.
    Unreadable,
    /// It names a process: its host, whether it lives, and its heartbeat.
    Named(Host, Process, Heartbeat),
}

/// How the owner's socket answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Socket {
    /// It was not tried yet.
    Untried,
    /// It does.
    Answers,
    /// It does not.
    Silent,
}

/// What was observed of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// How it is to be opened.
    pub mode: Mode,
    /// The kernel's lock.
    pub lock: Lock,
    /// The record.
    pub owner: Owner,
    /// The owner's socket.
    pub socket: Socket,
    /// Whether there is time to look again.
    pub has_time: bool,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Own the folder: this process holds the kernel's lock.
    Own,
    /// Create the lock file; there is none.
    Make,
    /// Replace the lock file of a process that is proved dead.
    TakeOver,
    /// Try the owner's socket.
    Connect,
    /// Use the connection.
    Attach,
    /// Open the last committed state for reading.
    ReadOnly,
    /// Look again: an owner is about to begin or to end.
    LookAgain,
    /// Give up, naming the owner.
    Refuse,
}

/// Decides what to do next.
#[must_use]
pub fn decide(seen: Observed) -> Decision {
    if seen.socket == Socket::Answers {
        return Decision::Attach;
    }
    match (seen.mode, seen.lock) {
        (Mode::Read, _) => to_read(seen),
        (Mode::Write, Lock::Ours) => Decision::Own,
        (Mode::Write, Lock::Taken) => beside_owner(seen),
        (Mode::Write, Lock::NotAsked) => by_lock_file(seen),
    }
}

fn to_read(seen: Observed) -> Decision {
    match (seen.owner, seen.socket) {
        (Owner::Named(Host::Here | Host::OtherNamespace, Process::Alive, _), Socket::Untried) => {
            Decision::Connect
        }
        _ => Decision::ReadOnly,
    }
}

/// The kernel says that an owner lives, and the record may lag behind. Or the owner was killed, and a process
/// that it had forked still has its lock and its socket: then nobody answers at that socket.
fn beside_owner(seen: Observed) -> Decision {
    match (seen.owner, seen.socket) {
        (Owner::Named(Host::Here, Process::Dead, _), _) => wait(seen),
        (Owner::Named(..), Socket::Untried) => Decision::Connect,
        _ => wait(seen),
    }
}

fn by_lock_file(seen: Observed) -> Decision {
    match seen.owner {
        Owner::Nobody => Decision::Make,
        Owner::Named(Host::Here, Process::Dead, _) => Decision::TakeOver,
        Owner::Named(Host::BeforeRestart, _, Heartbeat::Stale) => Decision::TakeOver,
        Owner::Named(Host::Here | Host::OtherNamespace, ..) if seen.socket == Socket::Untried => {
            Decision::Connect
        }
        // A lock file appears whole, so an unreadable one is damaged, and its owner cannot be known.
        Owner::Unreadable | Owner::Named(..) => wait(seen),
    }
}

const fn wait(seen: Observed) -> Decision {
    if seen.has_time { Decision::LookAgain } else { Decision::Refuse }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn everything() -> Vec<Observed> {
        let mut owners = vec![Owner::Nobody, Owner::Unreadable];
        for host in [Host::Here, Host::BeforeRestart, Host::OtherNamespace, Host::Other] {
            for process in [Process::Alive, Process::Dead] {
                for heartbeat in [Heartbeat::Fresh, Heartbeat::Stale] {
                    owners.push(Owner::Named(host, process, heartbeat));
                }
            }
        }
        let mut all = Vec::new();
        for mode in [Mode::Write, Mode::Read] {
            for lock in [Lock::Ours, Lock::Taken, Lock::NotAsked] {
                for &owner in &owners {
                    for socket in [Socket::Untried, Socket::Answers, Socket::Silent] {
                        for has_time in [true, false] {
                            all.push(Observed { mode, lock, owner, socket, has_time });
                        }
                    }
                }
            }
        }
        all
    }

    fn check(promise: &str, holds: impl Fn(Observed, Decision) -> bool) {
        let all = everything();
        assert_eq!(all.len(), 2 * 3 * 18 * 3 * 2);
        for seen in all {
            let decision = decide(seen);
            assert!(holds(seen, decision), "{promise}: {seen:?} gives {decision:?}");
        }
    }

    #[test]
    fn a_lock_of_another_host_is_never_taken_over() {
        check("another host", |seen, decision| {
            let is_other = matches!(seen.owner, Owner::Named(Host::Other | Host::OtherNamespace, ..));
            let takes = matches!(decision, Decision::Own | Decision::Make | Decision::TakeOver);
            !(is_other && seen.lock != Lock::Ours && takes)
        });
    }

    #[test]
    fn only_a_process_proved_dead_loses_its_lock_file() {
        check("proof", |seen, decision| {
            decision != Decision::TakeOver
                || matches!(
                    seen.owner,
                    Owner::Named(Host::Here, Process::Dead, _)
                        | Owner::Named(Host::BeforeRestart, _, Heartbeat::Stale)
                )
        });
    }

    #[test]
    fn to_read_nothing_is_taken_made_or_waited_for() {
        check("reading", |seen, decision| {
            seen.mode == Mode::Write
                || matches!(decision, Decision::Attach | Decision::Connect | Decision::ReadOnly)
        });
    }

    #[test]
    fn the_kernels_lock_is_enough_to_own_and_needed_where_it_is_asked_for() {
        check("kernel", |seen, decision| {
            let is_writing = seen.mode == Mode::Write && seen.socket != Socket::Answers;
            (decision == Decision::Own) == (is_writing && seen.lock == Lock::Ours)
                && !(seen.lock == Lock::Taken && matches!(decision, Decision::Make | Decision::TakeOver))
        });
    }

    #[test]
    fn every_path_ends_once_the_socket_was_tried_and_time_is_up() {
        check("end", |seen, decision| {
            let is_over = !seen.has_time && seen.socket != Socket::Untried;
            !is_over || !matches!(decision, Decision::LookAgain | Decision::Connect)
        });
    }

    #[test]
    fn an_owner_who_answers_is_attached_to() {
        check("attach", |seen, decision| (decision == Decision::Attach) == (seen.socket == Socket::Answers));
    }

    #[test]
    fn nobody_connects_to_a_process_proved_dead() {
        check("dead socket", |seen, decision| {
            let is_dead = matches!(seen.owner, Owner::Named(Host::Here, Process::Dead, _));
            !(is_dead && decision == Decision::Connect)
        });
    }

    #[test]
    fn a_dead_owner_of_this_host_never_leads_to_a_refusal() {
        check("dead", |seen, decision| {
            let is_dead = matches!(seen.owner, Owner::Named(Host::Here, Process::Dead, _));
            !(is_dead && seen.lock == Lock::NotAsked && decision == Decision::Refuse)
        });
    }
}
