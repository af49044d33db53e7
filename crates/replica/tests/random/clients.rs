//! Clients of the world: which requests they send to which node, how they take the answers, and whether all
//! of it was right in the end.

use super::{Event, SECOND, SLOT, World, number_of};
use crate::history::Ended;
use atoll_replica::{Input, Ticket};

impl World {
    pub(super) fn request(&mut self, client: u64) {
        self.next_number += 1;
        let number = self.next_number;
        let is_write = self.random.u8(..5) < 3;
        let primary = self.group.table().slot(SLOT).primary;
        let nodes: Vec<_> = self.nodes.keys().copied().collect();
        // Any node that believes it leads, including a former primary.
        let leads: Vec<_> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.is_up && node.replica.leads(SLOT))
            .map(|(&node, _)| node)
            .collect();
        let former = (!leads.is_empty()).then(|| leads[self.random.usize(..leads.len())]);
        let node = match self.random.u8(..10) {
            0 => nodes[self.random.usize(..nodes.len())],
            1..=6 => former.or(primary).unwrap_or(nodes[0]),
            _ => primary.unwrap_or(nodes[0]),
        };
        self.clients.insert(client, number);
        self.history.ask(number, self.now, is_write);
        self.now += 1;
        self.at(SECOND, Event::TimeOut { client, number });
        if self.nodes[&node].paused_until > self.now || !self.nodes[&node].is_up {
            return;
        }
        // Entries are applied in one order whatever their keys are: half of the reads need not wait for
        // writes under way.
        let key = if is_write { 1 } else { self.random.u64(1..=2) };
        let (slot, ticket, keys) = (SLOT, Ticket(number), vec![key]);
        let input = match is_write {
            true => Input::Write {
                slot,
                ticket,
                time_ms: self.now / 1000,
                body: number.to_be_bytes().into(),
                keys,
            },
            false => Input::Read { slot, ticket, keys },
        };
        if self.nodes[&node].incarnation.is_none() {
            return self.end(number, Ended::Refused);
        }
        self.give(node, input);
    }

    pub(super) fn end(&mut self, number: u64, ended: Ended) {
        self.now += 1;
        let name = match &ended {
            Ended::Written => "written",
            Ended::Read(_) => "read",
            Ended::Refused => "refused",
            Ended::Unknown => "unknown",
        };
        self.counts.count(name);
        self.history.end(number, self.now, ended);
        let client = self.clients.iter().find(|(_, waits)| **waits == number).map(|(&client, _)| client);
        if let Some(client) = client {
            self.clients.remove(&client);
            let pause = if name == "refused" { 50_000 } else { self.random.u64(..60_000) };
            self.at(pause, Event::Request { client });
        }
    }

    pub(super) fn time_out(&mut self, client: u64, number: u64) {
        if self.clients.get(&client) == Some(&number) {
            self.end(number, Ended::Unknown);
        }
    }

    pub(super) fn judge(&mut self) -> Result<(), String> {
        self.history.judge()?;
        let configuration = self.group.table().slot(SLOT);
        let is_lost = !self.survives && configuration.in_sync.is_empty();
        let last = self.history.asked.values().rev().skip(10).take(10);
        let served =
            last.filter(|asked| matches!(asked.ended, Some((_, Ended::Written | Ended::Read(_))))).count();
        if served == 0 && !is_lost {
            let last: Vec<_> = self.history.asked.iter().rev().take(12).collect();
            let replica = configuration.primary.map(|primary| &self.nodes[&primary].replica);
            self.trace(|| format!("{last:?}\n{replica:#?}"));
            return Err(format!("when all was calm nobody was served: {configuration:?}"));
        }
        if is_lost {
            self.counts.count("everything lost");
            return Ok(());
        }
        let (asked, definite) = self.history.definite();
        if asked < 300 || definite * 10 < asked * 4 {
            self.counts.count("too little happened");
        }
        let wanted = self.group.options().copies.min(self.nodes.len());
        if configuration.in_sync.len() < wanted {
            for (node, there) in &self.nodes {
                self.trace(|| format!("{node}: {:#?}", there.replica));
            }
            return Err(format!("when all was calm not every copy was in sync: {configuration:?}"));
        }
        let reference: Vec<_> =
            self.nodes[&configuration.primary.unwrap()].applied.iter().map(number_of).collect();
        for node in configuration.in_sync.iter() {
            let applied: Vec<_> = self.nodes[&node].applied.iter().map(number_of).collect();
            let shorter = applied.len().min(reference.len());
            if applied[..shorter] != reference[..shorter] || applied.len() + 5 < reference.len() {
                return Err(format!("{node} has other cells in the end"));
            }
        }
        Ok(())
    }
}
