//! What clients asked and were answered, and whether one order explains it.

use std::collections::BTreeMap;

/// A client's request.
#[derive(Clone, Debug)]
pub struct Asked {
    pub at: u64,
    pub is_write: bool,
    pub ended: Option<(u64, Ended)>,
}

/// The outcome of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    Written,
    Read(Vec<u64>),
    Refused,
    Unknown,
}

#[derive(Default)]
pub struct History {
    pub asked: BTreeMap<u64, Asked>,
}

impl History {
    pub fn ask(&mut self, number: u64, at: u64, is_write: bool) {
        self.asked.insert(number, Asked { at, is_write, ended: None });
    }

    pub fn end(&mut self, number: u64, at: u64, ended: Ended) {
        let asked = self.asked.get_mut(&number).expect("somebody asked");
        if asked.ended.is_none() {
            asked.ended = Some((at, ended));
        }
    }

    /// How many requests ended, and how many of them with a definite outcome.
    pub fn definite(&self) -> (usize, usize) {
        let definite = |asked: &&Asked| matches!(&asked.ended, Some((_, Ended::Written | Ended::Read(_))));
        (self.asked.len(), self.asked.values().filter(definite).count())
    }

    pub fn judge(&self) -> Result<(), String> {
        let mut reads: Vec<(u64, u64, u64, &Vec<u64>)> = Vec::new();
        for (&number, asked) in &self.asked {
            if let Some((at, Ended::Read(list))) = &asked.ended {
                reads.push((asked.at, *at, number, list));
            }
        }
        let longest =
            reads.iter().map(|read| read.3).max_by_key(|list| list.len()).cloned().unwrap_or_default();
        let places: BTreeMap<u64, usize> =
            longest.iter().enumerate().map(|(at, &number)| (number, at)).collect();
        if places.len() != longest.len() {
            return Err(format!("a write is there twice: {longest:?}"));
        }
        for (_, _, number, list) in &reads {
            if !longest.starts_with(list) {
                return Err(format!("read {number} saw {list:?}, another {longest:?}"));
            }
        }
        for (&number, asked) in &self.asked {
            self.judge_write(number, asked, &reads, &places)?;
        }
        self.judge_reads(&reads)?;
        self.judge_order(&places)
    }

    fn judge_write(
        &self,
        number: u64,
        asked: &Asked,
        reads: &[(u64, u64, u64, &Vec<u64>)],
        places: &BTreeMap<u64, usize>,
    ) -> Result<(), String> {
        if !asked.is_write {
            return Ok(());
        }
        let place = places.get(&number);
        match &asked.ended {
            Some((_, Ended::Refused)) if place.is_some() => {
                return Err(format!("write {number} was refused and is there"));
            }
            Some((ended, Ended::Written)) => {
                let missing =
                    reads.iter().find(|read| read.0 > *ended && place.is_none_or(|&at| at >= read.3.len()));
                if let Some(read) = missing {
                    return Err(format!(
                        "write {number} ended at {ended}, read {} from {} does not see it",
                        read.2, read.0
                    ));
                }
            }
            _ => {}
        }
        let early = reads.iter().find(|read| read.1 < asked.at && place.is_some_and(|&at| at < read.3.len()));
        match early {
            Some(read) => Err(format!("read {} saw write {number} before it was asked for", read.2)),
            None => Ok(()),
        }
    }

    /// If one read ended before another was asked, the second sees no less.
    fn judge_reads(&self, reads: &[(u64, u64, u64, &Vec<u64>)]) -> Result<(), String> {
        let mut ended: Vec<(u64, usize, u64)> =
            reads.iter().map(|read| (read.1, read.3.len(), read.2)).collect();
        let mut asked: Vec<(u64, usize, u64)> =
            reads.iter().map(|read| (read.0, read.3.len(), read.2)).collect();
        ended.sort_unstable();
        asked.sort_unstable();
        let (mut before, mut most) = (ended.into_iter().peekable(), (0, 0));
        for (at, len, number) in asked {
            while let Some((_, more, other)) = before.next_if(|one| one.0 < at) {
                most = most.max((more, other));
            }
            if len < most.0 {
                return Err(format!("read {number} saw less than read {}, which ended before", most.1));
            }
        }
        Ok(())
    }

    /// If one write ended before another was asked, the first stands first.
    fn judge_order(&self, places: &BTreeMap<u64, usize>) -> Result<(), String> {
        let mut latest_asked = 0;
        let mut in_order: Vec<_> = places.iter().map(|(&number, &at)| (at, number)).collect();
        in_order.sort_unstable();
        for (_, number) in in_order {
            let asked = &self.asked[&number];
            if let Some((ended, Ended::Written)) = &asked.ended
                && *ended < latest_asked
            {
                return Err(format!(
                    "write {number} stands behind one that was asked for later than it ended"
                ));
            }
            latest_asked = latest_asked.max(asked.at);
        }
        Ok(())
    }
}
