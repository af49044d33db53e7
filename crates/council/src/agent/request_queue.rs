//! A node's requests to the group: proposals, changes and tables, sent in the order in which they came.

use super::{HEARTBEAT_TIMEOUT, Next, Session};
use crate::CouncilError;
use crate::codec::{Answer, Ask};
use crate::peers::{self, NoAnswer};
use atoll_replica::{Change, Decision, Proposal};
use atoll_wire::Client;
use std::sync::mpsc::SyncSender;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long a member may take to decide a change.
pub(super) const CHANGE_TIMEOUT: Duration = Duration::from_secs(8);

/// Most proposals in one message.
const PROPOSALS_MAX: usize = 4_096;

/// Most changes that are under way at a time: each has an answer of its own, and later requests wait for all
/// of them.
const CHANGES_MAX: usize = 64;

/// A request of this node.
#[derive(Debug)]
pub(crate) enum Command {
    Propose(Vec<Proposal>),
    Change(PendingChange),
    Fetch,
}

/// A change, until when its caller waits, and the channel for the decision.
#[derive(Debug)]
pub(crate) struct PendingChange {
    pub(crate) change: Change,
    pub(crate) until: Instant,
    pub(crate) answer: SyncSender<Result<Decision, CouncilError>>,
}

/// The requests of this node, and the one that was taken out but not sent yet.
pub(super) struct RequestQueue {
    commands: mpsc::Receiver<Command>,
    waiting: Option<Command>,
}

impl RequestQueue {
    pub(super) fn new(commands: mpsc::Receiver<Command>) -> Self {
        Self { commands, waiting: None }
    }

    /// The next request; never resolves once no more can come.
    async fn next(&mut self) -> Command {
        match self.waiting.take() {
            Some(command) => command,
            None => match self.commands.recv().await {
                Some(command) => command,
                None => std::future::pending().await,
            },
        }
    }

    /// Passes requests that have already come to `part`, until it hands one back.
    fn take_while(&mut self, mut part: impl FnMut(Command) -> Option<Command>) {
        while self.waiting.is_none()
            && let Ok(command) = self.commands.try_recv()
        {
            self.waiting = part(command);
        }
    }
}

impl Session<'_> {
    /// Sends this node's requests.
    pub(super) async fn send_requests(&self, client: &Client) -> Next {
        let mut requests = self.requests.lock().await;
        loop {
            let answered = match requests.next().await {
                Command::Propose(mut proposals) => {
                    requests.take_while(|command| match command {
                        Command::Propose(more) if proposals.len() < PROPOSALS_MAX => {
                            proposals.extend(more);
                            None
                        }
                        other => Some(other),
                    });
                    peers::ask(client, &Ask::Propose(proposals), HEARTBEAT_TIMEOUT).await
                }
                Command::Change(wanted) => {
                    let mut all = vec![wanted];
                    requests.take_while(|command| match command {
                        Command::Change(wanted) if all.len() < CHANGES_MAX => {
                            all.push(wanted);
                            None
                        }
                        other => Some(other),
                    });
                    change(client, all).await;
                    continue;
                }
                Command::Fetch => {
                    let known = self.known().table.as_ref().map(|table| table.version);
                    let ask = Ask::Watch { known, is_at_once: true };
                    peers::ask(client, &ask, HEARTBEAT_TIMEOUT).await
                }
            };
            match answered {
                Ok(Answer::Yes | Answer::Heard(_)) => {}
                Ok(Answer::Table(update)) if self.take(&update) => {}
                Ok(Answer::NotLeader(Some(leader))) => return Next::Leader(leader),
                _ => return Next::Other,
            }
        }
    }
}

/// Submits changes, all at once: the leader puts the changes that wait there into one entry of the log.
async fn change(client: &Client, all: Vec<PendingChange>) {
    // The callers of overdue changes have stopped waiting: they were told that the outcome is unknown.
    let due = all.into_iter().filter(|wanted| Instant::now() <= wanted.until);
    let mut under_way: JoinSet<()> = due
        .map(|PendingChange { change, answer, .. }| {
            let client = client.clone();
            async move {
                let decided = peers::ask(&client, &Ask::Decide(change), CHANGE_TIMEOUT).await;
                let _ = answer.try_send(decision(decided));
            }
        })
        .collect();
    while under_way.join_next().await.is_some() {}
}

/// The outcome of an operator's change.
fn decision(answer: Result<Answer, NoAnswer>) -> Result<Decision, CouncilError> {
    match answer {
        Ok(Answer::Decision(decision)) => Ok(decision),
        Ok(Answer::NotLeader(_) | Answer::Unsure) => Err(CouncilError::NoLeader),
        Ok(Answer::No) => Err(CouncilError::NotAsked { problem: "not by a node" }),
        Err(NoAnswer::Unreached(_)) => Err(CouncilError::NoLeader),
        _ => Err(CouncilError::Unanswered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::tests::agent;
    use crate::codec::Coded;
    use atoll_replica::{Epoch, NodeId, Slot, Version};
    use atoll_wire::{Connection, Limits, Request};
    use std::net::SocketAddr;
    use std::sync::Mutex;

    async fn next(served: &mut Connection) -> (Ask, Request) {
        let request = served.next().await.unwrap().unwrap();
        (Ask::of_bytes(&request.body).unwrap(), request)
    }

    #[tokio::test]
    async fn changes_are_under_way_together_and_what_is_proposed_waits_for_few_of_them() {
        let (far, near) = tokio::io::duplex(1 << 20);
        let (connected, served) = tokio::join!(
            Client::connect(near, Limits::default(), Vec::new()),
            Connection::accept(far, Limits::default(), |_: &[u8]| Ok(Vec::new()))
        );
        let ((client, _), mut served) = (connected.unwrap(), served.unwrap());
        let (agent, _) = agent(SocketAddr::from(([127, 0, 0, 1], 9)));
        let (tell, commands) = mpsc::channel(1_000);
        let (known, requests) = (Mutex::default(), tokio::sync::Mutex::new(RequestQueue::new(commands)));
        let session = Session { agent: &agent, known: &known, requests: &requests, node: NodeId(1) };
        let (answer, answered) = std::sync::mpsc::sync_channel(1_000);
        for slot in 0..2 * CHANGES_MAX as u32 {
            let change = Change::Recover { slot: Slot(slot), seen: Version(1) };
            let answer = answer.clone();
            let until = Instant::now() + CHANGE_TIMEOUT;
            tell.try_send(Command::Change(PendingChange { change, until, answer })).unwrap();
        }
        let dismiss = Proposal::Dismiss { slot: Slot(0), epoch: Epoch(1), node: NodeId(2) };
        tell.try_send(Command::Propose(vec![dismiss])).unwrap();
        // No change is answered before as many have come as may be under way at a time.
        let serving = async {
            for _ in 0..2 {
                let mut under_way = Vec::new();
                for _ in 0..CHANGES_MAX {
                    let (ask, request) = next(&mut served).await;
                    assert!(matches!(ask, Ask::Decide(Change::Recover { .. })), "{ask:?}");
                    under_way.push(request.responder);
                }
                for responder in under_way {
                    responder.finish(&Answer::Decision(Decision::Changed).to_bytes()).await.unwrap();
                }
            }
            let (ask, _) = next(&mut served).await;
            assert!(matches!(ask, Ask::Propose(proposals) if proposals == [dismiss]));
        };
        tokio::select! {
            () = serving => {}
            _ = session.send_requests(&client) => panic!("there is more to send"),
            () = tokio::time::sleep(Duration::from_secs(5)) => panic!("they are sent one by one"),
        }
        assert_eq!(answered.try_iter().filter(|decided| decided.is_ok()).count(), 2 * CHANGES_MAX);
    }
}
