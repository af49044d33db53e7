//! Single cells, and the effect of each mutation on them.

use crate::context::{Context, Verdict, same};
use atoll_store::{Batch, Buffer, Cell, ScanRequest, SortRange, WriteOptions};
use std::ops::Bound;

pub(super) async fn values_come_back_as_written(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let options = WriteOptions::default;
    let keys = [&b""[..], b"\0", b"\0\0", b"a", b"a\0", b"\xff", b"\xff\xff", "ä".as_bytes()];
    for (at, key) in keys.into_iter().enumerate() {
        same("a cell never written", &client.get("p", key).await?, &None)?;
        let cell = Cell::new("p", key);
        client.store.delete(cell, options()).await?;
        for value in [vec![], vec![0], vec![at as u8; 63], vec![0xff; 64], vec![at as u8; 4097], vec![7; 70_000]] {
            client.put("p", key, &value).await?;
            same(format!("value of {key:?}"), &client.get("p", key).await?, &Some(value))?;
        }
        client.store.delete(cell, options()).await?;
        same("a deleted cell", &client.get("p", key).await?, &None)?;
        client.store.append(cell, b"", options()).await?;
        same("an empty append to an absent cell", &client.get("p", key).await?, &Some(vec![]))?;
        client.store.append(cell, b"ab", options()).await?;
        client.store.append(cell, b"c", options()).await?;
        same("appended value", &client.get("p", key).await?, &Some(b"abc".to_vec()))?;
    }
    Ok(())
}

pub(super) async fn partitions_do_not_mix(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let cells = [
        (&b"a"[..], &b"bc"[..]),
        (b"ab", b"c"),
        (b"abc", b""),
        (b"a\0", b"b"),
        (b"a", b"\0b"),
        (b"\0", b"\0"),
        (b"\0\0", b""),
        (b"a\xff", b"b"),
        (b"a", b"\xffb"),
    ];
    for (at, (partition, sort)) in cells.into_iter().enumerate() {
        client.put(partition, sort, [at as u8]).await?;
    }
    for (at, (partition, sort)) in cells.into_iter().enumerate() {
        same(format!("cell {partition:?} {sort:?}"), &client.get(partition, sort).await?, &Some(vec![at as u8]))?;
        let mut expected: Vec<_> = cells.iter().filter(|cell| cell.0 == partition).map(|cell| cell.1.to_vec()).collect();
        expected.sort();
        let found = client.scan(ScanRequest::all(partition)).await?;
        let found: Vec<_> = found.into_iter().map(|entry| entry.sort).collect();
        same(format!("sort keys of partition {partition:?}"), &found, &expected)?;
    }
    Ok(())
}

pub(super) async fn mutations_apply_in_their_order(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let bytes = |text: &[u8]| Buffer::copy_from(text);
    client.put("p", "kept", "old").await?;
    let batch = Batch::on(*b"p")
        .put(*b"a", bytes(b"1"))
        .append(*b"a", bytes(b"2"))
        .put(*b"b", bytes(b"gone"))
        .delete_range(SortRange::half_open(*b"b", *b"c"))
        .append(*b"b", bytes(b"new"))
        .put(*b"c", bytes(b"gone"))
        .delete(*b"c")
        .delete(*b"d")
        .put(*b"d", bytes(b"last"))
        .append(*b"kept", bytes(b"er"));
    client.write(batch).await?;
    for (sort, expected) in [("a", Some("12")), ("b", Some("new")), ("c", None), ("d", Some("last")), ("kept", Some("older"))] {
        let expected = expected.map(|text| text.as_bytes().to_vec());
        same(format!("cell {sort} after the batch"), &client.get("p", sort).await?, &expected)?;
    }
    Ok(())
}

pub(super) async fn a_range_of_sort_keys_is_deleted_exactly(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let keys: Vec<Vec<u8>> = [&b""[..], b"a", b"b", b"b\0", b"bb", b"c", b"d"].map(<[u8]>::to_vec).to_vec();
    let ends = |key: &[u8]| [Bound::Included(key.to_vec()), Bound::Excluded(key.to_vec()), Bound::Unbounded];
    for (round, (from, to)) in ends(b"b").into_iter().flat_map(|from| ends(b"c").map(|to| (from.clone(), to))).enumerate() {
        let range = SortRange { from, to };
        let partition = format!("p{round}");
        let filled = keys.iter().fold(Batch::on(partition.as_bytes()), |batch, key| batch.put(key.clone(), Buffer::new()));
        client.write(filled).await?;
        client.write(Batch::on(partition.as_bytes()).delete_range(range.clone())).await?;
        let left = client.scan(ScanRequest::all(partition.as_bytes())).await?;
        let left: Vec<_> = left.into_iter().map(|entry| entry.sort).collect();
        let expected: Vec<_> = keys.iter().filter(|key| !range.contains(key)).cloned().collect();
        same(format!("sort keys left after deleting {range:?}"), &left, &expected)?;
    }
    for nothing in [SortRange::half_open(*b"c", *b"b"), SortRange::half_open(*b"b", *b"b")] {
        let before = client.scan(ScanRequest::all(*b"p0")).await?;
        client.write(Batch::on(*b"p0").delete_range(nothing)).await?;
        same("cells after deleting an empty range", &client.scan(ScanRequest::all(*b"p0")).await?, &before)?;
    }
    Ok(())
}

pub(super) async fn a_deleted_partition_takes_no_other_along(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    for partition in ["p", "pa", "o", "p\0"] {
        for sort in ["", "a", "\u{7f}"] {
            client.put(partition, sort, "x").await?;
        }
    }
    client.store.delete_partition(b"p", WriteOptions::default()).await?;
    client.store.delete_partition(b"never-there", WriteOptions::default()).await?;
    for (partition, expected) in [("p", 0), ("pa", 3), ("o", 3), ("p\0", 3)] {
        let left = client.scan(ScanRequest::all(partition)).await?.len();
        same(format!("cells left in {partition:?}"), &left, &expected)?;
    }
    Ok(())
}
