//! A client like the stock ones for clusters: a connection to each node; it follows a refusal that names
//! another node.
//!
//! Invariant: a request is sent again only after a redirection, so this client never causes a repeated
//! write.

use super::LocalError;
use crate::client::{Incoming, Speaker, unexpected};
use crate::cut::moved;
use std::collections::HashMap;
use std::net::SocketAddr;

/// After this many redirections the client gives up, as stock clients do.
pub const HOPS_MAX: u32 = 16;

/// The client.
pub struct Follower {
    nodes: Vec<SocketAddr>,
    token: &'static str,
    routes: HashMap<usize, usize>,
    speakers: Vec<Option<Speaker>>,
    /// How many requests were redirected.
    pub followed: u64,
    /// The most redirections of one request.
    pub hops_most: u32,
}

impl Follower {
    /// A client of these nodes, which asks the first one until it is redirected.
    pub fn new(nodes: &[SocketAddr], token: &'static str) -> Self {
        Self {
            nodes: nodes.to_vec(),
            token,
            routes: HashMap::new(),
            speakers: nodes.iter().map(|_| None).collect(),
            followed: 0,
            hops_most: 0,
        }
    }

    /// Sends a request once; an error is what a stock client would report to its user.
    pub fn call(&mut self, slot: usize, words: &[&[u8]]) -> Result<Incoming, String> {
        let mut hops = 0;
        loop {
            let node = self.routes.get(&slot).copied().unwrap_or(0);
            let heard = self.ask(node, words).map_err(|error| crate::phases::with_sources(&error))?;
            let Incoming::Refused(said) = &heard else {
                self.routes.insert(slot, node);
                self.hops_most = self.hops_most.max(hops);
                self.followed += u64::from(hops > 0);
                return Ok(heard);
            };
            let shown = || String::from_utf8_lossy(said).into_owned();
            let to = moved(said).and_then(|(_, address)| self.nodes.iter().position(|one| *one == address));
            let Some(to) = to.filter(|_| hops < HOPS_MAX) else { return Err(shown()) };
            self.routes.insert(slot, to);
            hops += 1;
        }
    }

    fn ask(&mut self, node: usize, words: &[&[u8]]) -> Result<Incoming, LocalError> {
        let mut speaker = match self.speakers[node].take() {
            Some(speaker) => speaker,
            None => {
                let mut speaker = Speaker::connect(self.nodes[node])?;
                let welcome = speaker.say(&[b"AUTH", self.token.as_bytes()])?;
                if welcome != Incoming::Status(b"OK".to_vec()) {
                    return Err(unexpected(&[b"AUTH"], &welcome).into());
                }
                speaker
            }
        };
        let heard = speaker.say(words)?;
        self.speakers[node] = Some(speaker);
        Ok(heard)
    }
}
