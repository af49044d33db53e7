//! Listings of partition keys, splits, places and the clock.

use crate::context::{Client, Context, Verdict, ensure, refused, same};
use atoll_store::{ErrorKind, PartitionKey, PartitionQuery, Place, Split, Token, WriteOptions};

async fn list(client: &Client, mut query: PartitionQuery) -> Verdict<Vec<PartitionKey>> {
    let mut found = Vec::new();
    for _ in 0..10_000 {
        let page = client.store.partition_keys(query.clone()).await?;
        ensure(page.partitions.len() <= query.limit, || {
            format!("a page limited to {} keys has {}", query.limit, page.partitions.len())
        })?;
        found.extend(page.partitions);
        match page.resume {
            None => return Ok(found),
            token => query.resume = token,
        }
    }
    crate::context::broken("a listing does not come to an end")
}

/// Fills partitions, deletes all cells of some of them again, and returns those that are left.
async fn fill(client: &Client) -> Verdict<Vec<PartitionKey>> {
    let mut names: Vec<Vec<u8>> = (0..40_u8).map(|at| vec![b'a' + at % 3, at]).collect();
    names.extend([&b"a"[..], b"aa", b"\0", b"\xff", b"\xff\xff"].map(<[u8]>::to_vec));
    for name in &names {
        client.put(name, "", "").await?;
        client.put(name, "b", "x").await?;
    }
    for gone in [&b"gone"[..], b"agone", b"\xffgone"] {
        client.put(gone, "a", "x").await?;
        client.store.delete(atoll_store::Cell::new(gone, "a"), WriteOptions::default()).await?;
    }
    client.put("a-deleted-whole", "a", "x").await?;
    client.store.delete_partition(b"a-deleted-whole", WriteOptions::default()).await?;
    names.sort();
    Ok(names)
}

pub(super) async fn partition_keys_are_listed_once_and_only_with_cells(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    same("partition keys of an empty store", &list(&client, PartitionQuery::prefix(*b"")).await?, &vec![])?;
    let names = fill(&client).await?;
    for prefix in [&b""[..], b"a", b"aa", b"b", b"\xff", b"none"] {
        for limit in [1, 7, 1000] {
            let mut found = list(&client, PartitionQuery { limit, ..PartitionQuery::prefix(prefix) }).await?;
            found.sort();
            let expected: Vec<_> = names.iter().filter(|name| name.starts_with(prefix)).cloned().collect();
            same(format!("partition keys with prefix {prefix:?}, {limit} a page"), &found, &expected)?;
        }
    }
    let zero = PartitionQuery { limit: 0, ..PartitionQuery::prefix(*b"") };
    refused("a listing of 0 keys a page", client.store.partition_keys(zero).await, ErrorKind::InvalidInput)?;
    let garbage = PartitionQuery { resume: Some(Token(b"garbage".to_vec())), ..PartitionQuery::prefix(*b"") };
    let result = client.store.partition_keys(garbage).await;
    refused("a listing with a token that is garbage", result, ErrorKind::InvalidInput).map(drop)
}

pub(super) async fn splits_divide_the_store(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let names = fill(&client).await?;
    for readers in [1, 2, 5, 100] {
        let splits = client.store.splits(readers).await?;
        ensure(!splits.is_empty(), || format!("no splits for {readers} readers"))?;
        let mut found = Vec::new();
        for split in splits {
            found.extend(list(&client, PartitionQuery { split: Some(split), limit: 3, ..PartitionQuery::prefix(*b"") }).await?);
        }
        found.sort();
        same(format!("partition keys of all splits for {readers} readers"), &found, &names)?;
    }
    refused("splits for no readers", client.store.splits(0).await, ErrorKind::InvalidInput)?;
    let garbage = Split { token: Token(b"garbage".to_vec()), place: Place::Here };
    let query = PartitionQuery { split: Some(garbage), ..PartitionQuery::prefix(*b"") };
    refused("a split that is garbage", client.store.partition_keys(query).await, ErrorKind::InvalidInput).map(drop)
}

pub(super) async fn places_and_clock_answer(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    client.store.place(b"p").await?;
    refused("the place of an empty partition key", client.store.place(b"").await, ErrorKind::InvalidInput)?;
    let mut last = client.store.now().await?;
    for _ in 0..100 {
        let now = client.store.now().await?;
        ensure(now >= last, || format!("the clock fell from {last:?} to {now:?}"))?;
        last = now;
    }
    context.pass(&client, std::time::Duration::from_millis(2)).await;
    let now = client.store.now().await?;
    ensure(now > last, || format!("the clock stands still at {now:?}"))
}
