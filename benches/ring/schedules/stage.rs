//! The ring on its hosts, brought into the state that a schedule prescribes at a moment.

use super::HOSTS;
use super::plan::{Fault, Kind};
use crate::cut::{AtollRing, Cluster, CutError};
use rustix::process::Signal;

/// The ring and its current faults.
pub struct Stage {
    /// The ring.
    pub ring: AtollRing,
    /// Descriptions of nodes that ended by themselves.
    pub crashes: Vec<String>,
    is_cut: [bool; HOSTS],
    is_blocked: [[bool; HOSTS]; HOSTS],
    is_dead: [bool; HOSTS],
    is_paused: [bool; HOSTS],
}

impl Stage {
    /// A stage with a healthy ring.
    pub fn with(ring: AtollRing) -> Self {
        Self {
            ring,
            crashes: Vec::new(),
            is_cut: [false; HOSTS],
            is_blocked: [[false; HOSTS]; HOSTS],
            is_dead: [false; HOSTS],
            is_paused: [false; HOSTS],
        }
    }

    /// Applies exactly these faults.
    pub fn make(&mut self, faults: &[Fault]) -> Result<(), CutError> {
        self.look_for_crashes()?;
        let has =
            |kind: Kind, host: usize| faults.iter().any(|fault| fault.kind == kind && fault.host == host);
        for host in 0..HOSTS {
            self.make_host(host, has(Kind::Kill, host), has(Kind::Pause, host))?;
        }
        for from in 0..HOSTS {
            self.make_cut(from, has(Kind::Cut, from))?;
            for to in (0..HOSTS).filter(|to| *to != from) {
                let one_way = faults.iter().filter(|fault| fault.kind != Kind::Cut);
                let is_blocked = one_way.into_iter().any(|fault| fault.blocks(from, to));
                if is_blocked != self.is_blocked[from][to] {
                    self.ring.hosts().block(from, to, is_blocked)?;
                    self.is_blocked[from][to] = is_blocked;
                }
            }
        }
        Ok(())
    }

    fn make_host(&mut self, host: usize, is_dead: bool, is_paused: bool) -> Result<(), CutError> {
        if is_dead && !self.is_dead[host] {
            self.ring.kill_node(host)?;
            // A process that is started next is not paused.
            self.is_paused[host] = false;
        } else if !is_dead && self.is_dead[host] {
            self.ring.start_node(host)?;
        }
        self.is_dead[host] = is_dead;
        let is_paused = is_paused && !is_dead;
        if is_paused != self.is_paused[host] {
            let signal = if is_paused { Signal::STOP } else { Signal::CONT };
            self.ring.signal_node(host, signal)?;
            self.is_paused[host] = is_paused;
        }
        Ok(())
    }

    fn make_cut(&mut self, host: usize, is_cut: bool) -> Result<(), CutError> {
        if is_cut != self.is_cut[host] {
            if is_cut {
                self.ring.cut(host)?
            } else {
                self.ring.heal(host)?
            }
            self.is_cut[host] = is_cut;
        }
        Ok(())
    }

    /// Records nodes that ended by themselves and starts them again, so that the schedule comes to its end.
    pub fn look_for_crashes(&mut self) -> Result<(), CutError> {
        for (host, how) in self.ring.ended() {
            self.crashes.push(format!("the node of host {host} ended by itself: {how}"));
            self.ring.start_node(host)?;
            self.is_paused[host] = false;
        }
        Ok(())
    }
}
