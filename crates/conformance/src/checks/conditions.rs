//! Conditions: when a batch applies, and what a refused batch reports.

use crate::context::{Context, Verdict, conflict, ensure, refused, same};
use atoll_store::{Batch, Buffer, Cell, Conflict, ErrorKind, ReadOptions, ScanRequest, WriteOptions};

fn bytes(text: &str) -> Buffer {
    Buffer::copy_from(text.as_bytes())
}

pub(super) async fn conditions_are_judged_before_mutations(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    client.write(Batch::on(*b"p").if_absent(*b"a").put(*b"a", bytes("1"))).await?;
    let both = Batch::on(*b"p").if_equals(*b"a", bytes("1")).put(*b"a", bytes("2")).if_equals(*b"a", bytes("1"));
    client.write(both).await?;
    let after = Batch::on(*b"p").put(*b"a", bytes("3")).if_equals(*b"a", bytes("3"));
    conflict("a condition that only the batch itself would make true", client.try_write(after).await)?;
    let emptied = Batch::on(*b"p").delete(*b"a").if_absent(*b"a");
    conflict("absence that only the batch itself would bring about", client.try_write(emptied).await)?;
    same("the cell", &client.get("p", "a").await?, &Some(b"2".to_vec()))
}

pub(super) async fn the_first_failed_condition_comes_back_with_its_value(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    client.put("p", "a", "1").await?;
    client.put("p", "b", "2").await?;
    client.put("p", "empty", "").await?;
    let cases = [
        (Batch::on(*b"p").if_equals(*b"a", bytes("1")).if_equals(*b"b", bytes("9")).if_absent(*b"a"), 1, "b", Some("2")),
        (Batch::on(*b"p").if_absent(*b"a").if_equals(*b"b", bytes("9")), 0, "a", Some("1")),
        (Batch::on(*b"p").if_absent(*b"none").if_equals(*b"none", bytes("")), 1, "none", None),
        (Batch::on(*b"p").if_absent(*b"empty"), 0, "empty", Some("")),
        (Batch::on(*b"p").if_equals(*b"a", bytes("")), 0, "a", Some("1")),
        (Batch::on(*b"p").if_equals(*b"a", bytes("12")), 0, "a", Some("1")),
    ];
    for (batch, condition, sort, actual) in cases {
        let found = conflict(format!("{batch:?}"), client.try_write(batch).await)?;
        let actual = actual.map(bytes);
        let expected = Conflict::new(condition, sort.as_bytes().to_vec(), actual.as_ref());
        same("the conflict", &found, &expected)?;
    }
    let large = vec![b'x'; Conflict::ACTUAL_BYTES_MAX + 1];
    client.put("p", "large", &large).await?;
    let found = conflict("a swap of a large value", client.try_write(Batch::on(*b"p").if_absent(*b"large")).await)?;
    same("length told of a large value", &found.actual_bytes, &(large.len() as u64))?;
    let told = found.actual.unwrap_or_default();
    same("the part told of a large value", told.as_slice(), &large[..Conflict::ACTUAL_BYTES_MAX])
}

pub(super) async fn a_refused_batch_changes_nothing(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    client.put("p", "a", "1").await?;
    let before = client.scan(ScanRequest::all(*b"p")).await?;
    let change = Batch::on(*b"p").put(*b"a", bytes("2")).put(*b"b", bytes("3")).delete_range(atoll_store::SortRange::all());
    conflict("a failed condition", client.try_write(change.clone().if_absent(*b"a")).await)?;
    same("cells after a conflict", &client.scan(ScanRequest::all(*b"p")).await?, &before)?;
    let limits = client.store.capabilities().limits;
    let too_long = change.put(vec![b'k'; limits.sort_key_bytes + 1], bytes("x"));
    refused("a key that is too long", client.try_write(too_long).await, ErrorKind::Limit)?;
    same("cells after a limit", &client.scan(ScanRequest::all(*b"p")).await?, &before)
}

pub(super) async fn a_batch_may_only_check(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    client.put("p", "a", "1").await?;
    client.write(Batch::on(*b"p")).await?;
    client.write(Batch::on(*b"q").if_absent(*b"a")).await?;
    client.write(Batch::on(*b"p").if_equals(*b"a", bytes("1")).if_absent(*b"b")).await?;
    conflict("a check that fails", client.try_write(Batch::on(*b"p").if_absent(*b"a")).await)?;
    same("the cell", &client.get("p", "a").await?, &Some(b"1".to_vec()))
}

pub(super) async fn a_created_cell_takes_one_value(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let options = WriteOptions::default;
    for value in [vec![], b"vow".to_vec(), vec![3; Conflict::ACTUAL_BYTES_MAX + 10]] {
        let name = value.len().to_string();
        let cell = Cell::new("p", &name);
        client.store.create(cell, value.clone().into(), options()).await?;
        client.store.create(cell, value.clone().into(), options()).await?;
        let mut other = value.clone();
        other.push(1);
        refused("creating a cell again with another value", client.store.create(cell, other.clone().into(), options()).await, ErrorKind::Conflict)?;
        let Some(last) = other.len().checked_sub(2) else { continue };
        other.pop();
        other[last] ^= 1;
        refused("creating a cell again with its last byte changed", client.store.create(cell, other.clone().into(), options()).await, ErrorKind::Conflict)?;
        same("the created cell", &client.get("p", &name).await?, &Some(value))?;
    }
    Ok(())
}

pub(super) async fn a_read_sees_the_swap_before_it(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let cell = Cell::new("p", "a");
    client.put("p", "a", "0").await?;
    let mut current = b"0".to_vec();
    for round in 1..=20_u8 {
        same("the value before a swap", &client.get("p", "a").await?, &Some(current.clone()))?;
        let next = vec![round; 3];
        client.store.compare_and_swap(cell, Some(&current), &next, WriteOptions::default()).await?;
        let read = client.store.get(cell, ReadOptions::default()).await?;
        same("a read right after a swap", &read, &Some(Buffer::from(next.clone())))?;
        let stale = client.store.compare_and_swap(cell, Some(&current), b"lost", WriteOptions::default()).await;
        let found = conflict("a swap that expects the former value", stale)?;
        same("the value that a late swap is told", &found.actual, &Some(Buffer::from(next.clone())))?;
        current = next;
    }
    Ok(())
}

pub(super) async fn plain_and_conditional_writes_share_one_order(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let cell = Cell::new("p", "a");
    let mut random = context.random(0);
    let mut current: Option<Vec<u8>> = None;
    for round in 0..200_u32 {
        let next = round.to_string().into_bytes();
        if random.bool() {
            client.put("p", "a", &next).await?;
        } else {
            let swap = client.store.compare_and_swap(cell, current.as_deref(), &next, WriteOptions::default()).await;
            ensure(swap.is_ok(), || format!("a swap after write {round} does not see the plain write before it"))?;
        }
        same(format!("value after write {round}"), &client.get("p", "a").await?, &Some(next.clone()))?;
        current = Some(next);
    }
    Ok(())
}
