//! `atoll store check`: reads every byte, and reports what is damaged and to whom it belongs.

use crate::session::Access;
use crate::text::{counted, escape};
use crate::{Failure, Session};
use atoll_open::{CheckReport, Damage, DamagedCells};
use atoll_store::{Store, StoreError};
use atoll_tables::Table;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

pub(super) async fn check(session: &Session) -> Result<(), Failure> {
    let (place, report, store) = match checked(session).await {
        // A store that is too damaged to be opened is a finding of the check as well.
        Err(Failure::Store(StoreError::Corrupt { place, problem })) => {
            let damage = vec![Damage { place: place.clone(), problem, cells: None }];
            (place, CheckReport { damage, ..CheckReport::default() }, None)
        }
        other => {
            let (place, report, store) = other?;
            (place, report, Some(store))
        }
    };
    let (mut whose, mut owners) = (Vec::new(), Owners::new());
    for damage in &report.damage {
        whose.push(match (&damage.cells, &store) {
            (Some(cells), Some(store)) => Some(describe_cells(cells, store, &mut owners).await),
            _ => None,
        });
    }
    if session.output.is_json() {
        session.output.json(&as_json(&report, &whose))?;
    } else {
        for (damage, whose) in report.damage.iter().zip(&whose) {
            let whose = whose.as_ref().map(|whose| format!("; {whose}")).unwrap_or_default();
            session.output.line(format!("damaged: {}: {}{whose}", damage.place, damage.problem))?;
        }
        if let Some(end) = report.left_out {
            session.output.line(format!(
                "left out: {} bytes from offset {} on, at the end of the log, which were never synced",
                end.bytes, end.offset
            ))?;
        }
        let (bytes, cells) = (counted(report.bytes_checked, "byte"), counted(report.cells, "cell"));
        session.output.line(format!("checked {bytes}, {cells}"))?;
    }
    match report.damage.len() {
        0 => Ok(()),
        places => Err(Failure::Damaged { place, places }),
    }
}

async fn checked(session: &Session) -> Result<(String, CheckReport, Arc<dyn Store>), Failure> {
    let opened = session.open(Access::Read).await?;
    let Some(maintenance) = opened.maintenance else {
        let (what, hint) =
            (format!("the check of {}", opened.place), "only stores in folders have bytes to check");
        return Err(StoreError::Unsupported { what, hint }.into());
    };
    Ok((opened.place, maintenance.check().await?, opened.store))
}

fn as_json(report: &CheckReport, whose: &[Option<String>]) -> Value {
    let key = |key: &Option<(Vec<u8>, Vec<u8>)>| match key {
        Some((partition, sort)) => json!({ "partition": escape(partition), "sort": escape(sort) }),
        None => Value::Null,
    };
    let of_damage = |(damage, whose): (&Damage, &Option<String>)| {
        let cells = damage.cells.as_ref();
        json!({
            "place": damage.place,
            "problem": damage.problem,
            "whose": whose,
            "from": cells.map_or(Value::Null, |cells| key(&cells.from)),
            "to": cells.map_or(Value::Null, |cells| key(&cells.to)),
        })
    };
    json!({
        "bytes": report.bytes_checked,
        "cells": report.cells,
        "damage": report.damage.iter().zip(whose).map(of_damage).collect::<Vec<_>>(),
        "left_out": report.left_out.map(|end| json!({ "offset": end.offset, "bytes": end.bytes })),
    })
}

/// Describes damaged cells in the terms of their owner: for a table, which of its rows.
async fn describe_cells(cells: &DamagedCells, store: &Arc<dyn Store>, owners: &mut Owners) -> String {
    let (from, to) = (cells.from.as_ref(), cells.to.as_ref());
    if let (Some(from), Some(to)) = (from, to)
        && from.0 == to.0
    {
        return match (is_reserved(&from.0), from.1 == to.1) {
            (true, _) => describe_owner(&from.0, store, owners).await,
            (false, true) => format!("cell {} {}", escape(&from.0), escape(&from.1)),
            (false, false) => {
                format!(
                    "cells of partition {}, from {} to {}",
                    escape(&from.0),
                    escape(&from.1),
                    escape(&to.1)
                )
            }
        };
    }
    let mut ends = Vec::new();
    for (end, open) in [(from, "the first"), (to, "the last")] {
        ends.push(match end {
            None => open.to_owned(),
            Some((partition, _)) if is_reserved(partition) => describe_owner(partition, store, owners).await,
            Some((partition, sort)) => format!("{} {}", escape(partition), escape(sort)),
        });
    }
    format!("among the cells from {} to {}", ends[0], ends[1])
}

/// Whether a partition belongs to Atoll rather than to the user.
fn is_reserved(partition: &[u8]) -> bool {
    partition.starts_with(b"\0")
}

/// The owners of partitions looked up so far: a long value has many pieces, and each may be damaged.
type Owners = HashMap<Vec<u8>, String>;

async fn describe_owner(partition: &[u8], store: &Arc<dyn Store>, owners: &mut Owners) -> String {
    if let Some(known) = owners.get(partition) {
        return known.clone();
    }
    let owner = match Table::that_has(store, partition).await {
        Ok(Some(belongs)) => belongs.to_string(),
        // The owner may be unknown because its description is damaged.
        _ => "something of a table, or of Atoll itself".to_owned(),
    };
    owners.insert(partition.to_vec(), owner.clone());
    owner
}
