//! The capabilities that a store reports.

use crate::context::{Context, Verdict, ensure, refused, same};
use atoll_store::{Cell, Durability, ErrorKind, Limits, WriteOptions};

pub(super) async fn capabilities_stay_within_the_contract(context: &Context<'_>) -> Verdict {
    let capabilities = context.open().await?.store.capabilities();
    let (limits, most) = (capabilities.limits, Limits::CONTRACT);
    let sizes = [
        ("partition_key_bytes", limits.partition_key_bytes as u64, most.partition_key_bytes as u64),
        ("sort_key_bytes", limits.sort_key_bytes as u64, most.sort_key_bytes as u64),
        ("value_bytes", limits.value_bytes, most.value_bytes),
        ("condition_bytes", limits.condition_bytes as u64, most.condition_bytes as u64),
        ("batch_operations", limits.batch_operations as u64, most.batch_operations as u64),
        ("batch_bytes", limits.batch_bytes as u64, most.batch_bytes as u64),
        ("page_bytes", limits.page_bytes as u64, most.page_bytes as u64),
    ];
    for (name, told, most) in sizes {
        ensure(told <= most, || format!("{name} is told as {told}, the contract allows {most}"))?;
        ensure(told > 0, || format!("{name} is told as 0"))?;
    }
    let classes = &capabilities.durability;
    ensure(classes.is_sorted() && !classes.is_empty(), || format!("classes are not weakest first: {classes:?}"))?;
    ensure(classes.contains(&capabilities.durability_default), || "the default class is not on offer".into())?;
    let counts = [capabilities.waiters_max, capabilities.parallelism_best];
    ensure(!counts.contains(&0), || "waiters or parallelism are told as 0".into())?;
    ensure(!capabilities.request_memory.is_zero(), || "request ids are not remembered".into())
}

pub(super) async fn a_durability_class_is_given_or_refused(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let cell = Cell::new("p", "a");
    let classes = client.store.capabilities().durability;
    for asked in Durability::ALL {
        let value = asked.name();
        let result = client.store.put(cell, value.as_bytes(), WriteOptions::durable(asked)).await;
        if classes.iter().any(|&offered| offered >= asked) {
            let given = result?.durability;
            ensure(given >= asked, || format!("asked for {value}, acknowledged as {}", given.name()))?;
            same("value after the write", &client.get("p", "a").await?, &Some(value.as_bytes().to_vec()))?;
        } else {
            refused(format!("a write of class {value}"), result, ErrorKind::Unsupported)?;
            let is_there = client.get("p", "a").await? == Some(value.as_bytes().to_vec());
            ensure(!is_there, || format!("a refused write of class {value} is there"))?;
        }
    }
    let unnamed = client.store.put(cell, b"default", WriteOptions::default()).await?.durability;
    let default = client.store.capabilities().durability_default;
    ensure(unnamed >= default, || format!("a write that names no class was acknowledged as {}", unnamed.name()))?;
    Ok(client.store.sync().await?)
}
