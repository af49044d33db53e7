//! Scans: order, completeness, page edges, projections, tokens, and all of it while others write.

use crate::context::{Background, Client, Context, Pulse, Verdict, after, ensure, refused, same};
use atoll_store::{
    Batch, Buffer, ByteRange, Direction, ErrorKind, Projection, ScanEntry, ScanRequest, SortKey, SortRange, Token,
};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Fills a partition with keys that lie close together at every awkward place, each with a value of its own.
async fn fill(client: &Client, partition: &str) -> Verdict<BTreeMap<SortKey, Vec<u8>>> {
    let stems = [&b""[..], b"\0", b"a", b"a\0", b"a\0\0", b"a\xff", b"b", b"\xff", b"\xff\xff"];
    let mut cells = BTreeMap::new();
    for (at, stem) in stems.iter().enumerate() {
        cells.insert(stem.to_vec(), vec![at as u8; at]);
        for digit in 0..3_u8 {
            cells.insert([stem, &b"k"[..], &[digit]].concat(), vec![digit; 10]);
        }
    }
    for (sort, value) in &cells {
        client.put(partition, sort, value).await?;
    }
    Ok(cells)
}

fn ranges() -> Vec<SortRange> {
    let ends = |key: &[u8]| [Bound::Unbounded, Bound::Included(key.to_vec()), Bound::Excluded(key.to_vec())];
    let pairs = ends(b"a").into_iter().flat_map(|from| ends(b"b").map(|to| SortRange { from: from.clone(), to }));
    let others = [
        SortRange::prefix(b"a"),
        SortRange::prefix(b"\xff"),
        SortRange::half_open(*b"b", *b"a"),
        SortRange::half_open(*b"a", *b"a"),
        SortRange { from: Bound::Excluded(b"a".to_vec()), to: Bound::Excluded(b"a".to_vec()) },
        SortRange { from: Bound::Included(b"a".to_vec()), to: Bound::Included(b"a".to_vec()) },
    ];
    pairs.chain(others).collect()
}

fn pairs(entries: Vec<ScanEntry>) -> Vec<(SortKey, Vec<u8>)> {
    entries.into_iter().map(|entry| (entry.sort, entry.value.to_vec())).collect()
}

async fn scan_at_every_page_size(context: &Context<'_>, direction: Direction) -> Verdict {
    let client = context.open().await?;
    let cells = fill(&client, "p").await?;
    client.put("o", "a", "of another partition").await?;
    client.put("p\0", "a", "of another partition").await?;
    for range in ranges() {
        let mut expected: Vec<_> = cells.iter().filter(|(sort, _)| range.contains(sort)).collect();
        if direction == Direction::Backward {
            expected.reverse();
        }
        let expected: Vec<_> = expected.into_iter().map(|(sort, value)| (sort.clone(), value.clone())).collect();
        for limit in [1, 2, 3, 7, cells.len() - 1, cells.len(), cells.len() + 1, usize::MAX] {
            let request = ScanRequest { range: range.clone(), direction, limit, ..ScanRequest::all(*b"p") };
            let found = pairs(client.scan(request).await?);
            same(format!("{direction:?} scan of {range:?}, {limit} a page"), &found, &expected)?;
        }
    }
    let nothing = ScanRequest { direction, ..ScanRequest::all(*b"never-there") };
    same("a scan of a partition that is not there", &client.scan(nothing).await?, &vec![])?;
    let zero = ScanRequest { limit: 0, direction, ..ScanRequest::all(*b"p") };
    refused("a page of 0 entries", client.store.scan(zero).await, ErrorKind::InvalidInput).map(drop)
}

pub(super) async fn a_scan_is_ordered_and_complete_at_every_page_size(context: &Context<'_>) -> Verdict {
    scan_at_every_page_size(context, Direction::Forward).await
}

pub(super) async fn a_backward_scan_is_the_reverse(context: &Context<'_>) -> Verdict {
    scan_at_every_page_size(context, Direction::Backward).await
}

pub(super) async fn a_scan_returns_what_was_projected(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let cells = fill(&client, "p").await?;
    let of = |projection| client.scan(ScanRequest { projection, limit: 4, ..ScanRequest::all(*b"p") });
    let (keys, part) = (of(Projection::KeysOnly).await?, of(Projection::Bytes(ByteRange::new(1, 2))).await?);
    same("entries of a scan of keys", &keys.len(), &cells.len())?;
    same("entries of a scan of bytes", &part.len(), &cells.len())?;
    for ((key, part), (sort, value)) in keys.iter().zip(&part).zip(&cells) {
        let expected = ScanEntry { sort: sort.clone(), value: Buffer::new(), value_bytes: value.len() as u64 };
        same("an entry of a scan of keys", key, &expected)?;
        let (start, end) = ByteRange::new(1, 2).within(value.len() as u64);
        let bytes = Buffer::copy_from(&value[start as usize..end as usize]);
        same("an entry of a scan of bytes", part, &ScanEntry { value: bytes, ..expected })?;
    }
    Ok(())
}

pub(super) async fn pages_are_limited_in_bytes(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let most = client.store.capabilities().limits.page_bytes;
    let sizes = [most / 3, most / 3, most / 3, most + 1, 10, most / 2, most / 2 + 10, 0, most * 2, 5];
    for (at, &size) in sizes.iter().enumerate() {
        client.write(Batch::on(*b"p").put([at as u8], Buffer::build(size, |_| ()))).await?;
    }
    for direction in [Direction::Forward, Direction::Backward] {
        let pages = client.pages(ScanRequest { direction, ..ScanRequest::all(*b"p") }).await?;
        let mut found: Vec<_> = pages.concat().iter().map(|entry| entry.value.len()).collect();
        if direction == Direction::Backward {
            found.reverse();
        }
        same("lengths of scanned values", found.as_slice(), &sizes[..])?;
        for page in pages {
            let bytes: usize = page.iter().map(|entry| entry.sort.len() + entry.value.len()).sum();
            ensure(bytes <= most || page.len() == 1, || {
                format!("a page of {} entries has {bytes} bytes, the limit is {most}", page.len())
            })?;
        }
    }
    let keys = ScanRequest { projection: Projection::KeysOnly, ..ScanRequest::all(*b"p") };
    same("keys of large values", &client.scan(keys).await?.len(), &sizes.len())
}

pub(super) async fn a_foreign_token_is_refused(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    fill(&client, "p").await?;
    fill(&client, "q").await?;
    let request = ScanRequest { limit: 3, ..ScanRequest::all(*b"p") };
    let token = client.store.scan(request.clone()).await?.resume;
    ensure(token.is_some(), || "a page that does not hold everything has no token".into())?;
    let foreign = [
        ("garbage", ScanRequest { resume: Some(Token(b"garbage".to_vec())), ..request.clone() }),
        ("nothing", ScanRequest { resume: Some(Token(vec![])), ..request.clone() }),
        ("another direction", ScanRequest { direction: Direction::Backward, resume: token.clone(), ..request.clone() }),
        ("another partition", ScanRequest { partition: b"q".to_vec(), resume: token.clone(), ..request.clone() }),
        ("another range", ScanRequest { range: SortRange::prefix(b"b"), resume: token.clone(), ..request.clone() }),
    ];
    for (of, request) in foreign {
        let result = client.store.scan(request).await;
        refused(format!("a scan with the token of {of}"), result, ErrorKind::InvalidInput)?;
    }
    let other_limit = ScanRequest { limit: 5, resume: token, ..request };
    same("entries after a change of the page limit", &client.store.scan(other_limit).await?.entries.len(), &5)
}

const STAYING: u32 = 60;

/// Inserts and deletes keys between the ones that stay.
async fn disturb(client: Client, mut random: fastrand::Rng, pulse: Pulse) -> Verdict {
    while pulse.goes_on().await {
        let key = (random.u32(0..STAYING) * 2 + 1).to_be_bytes();
        let batch = Batch::on(*b"p");
        client.write(if random.bool() { batch.put(key, vec![1]) } else { batch.delete(key) }).await?;
    }
    Ok(())
}

fn any_direction(random: &mut fastrand::Rng) -> Direction {
    if random.bool() { Direction::Forward } else { Direction::Backward }
}

pub(super) async fn scans_under_writes_are_ordered_complete_and_free_of_duplicates(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    for key in 0..STAYING {
        client.put("p", (key * 2).to_be_bytes(), "stays").await?;
    }
    for direction in [Direction::Forward, Direction::Backward] {
        for inserts in [true, false] {
            is_whole(scan_beside_writes(&client, direction, inserts).await?, direction)?;
        }
    }
    let randoms = [1, 2].map(|salt| context.random(salt));
    let writing = Background::start(randoms, |random, pulse| Box::pin(disturb(client.clone(), random, pulse)));
    let mut random = context.random(0);
    let scanning = client.clone();
    let look = move || {
        let (direction, client) = (any_direction(&mut random), scanning.clone());
        let request = ScanRequest { direction, limit: random.usize(1..20), ..ScanRequest::all(*b"p") };
        async move { is_whole(client.scan(request).await?, direction) }
    };
    writing.watch(context.size.of(2_000, 150_000), look).await
}

/// Scans in pages of three, and inserts a key after each page, or deletes the inserted ones.
async fn scan_beside_writes(client: &Client, direction: Direction, inserts: bool) -> Verdict<Vec<ScanEntry>> {
    let mut request = ScanRequest { direction, limit: 3, ..ScanRequest::all(*b"p") };
    let mut found = Vec::new();
    loop {
        let page = client.store.scan(request.clone()).await?;
        let behind = page.entries.iter().filter_map(|entry| entry.sort.last_chunk().copied().map(u32::from_be_bytes));
        for key in behind.take(2) {
            let batch = Batch::on(*b"p");
            client.write(match inserts {
                true if page.entries.len() > 1 => batch.put((key | 1).to_be_bytes(), vec![1]),
                _ => batch.delete((key | 1).to_be_bytes()),
            }).await?;
        }
        found.extend(page.entries);
        match page.resume {
            None => return Ok(found),
            token => request.resume = token,
        }
    }
}

fn is_whole(entries: Vec<ScanEntry>, direction: Direction) -> Verdict {
    let mut found: Vec<_> = entries.into_iter().map(|entry| entry.sort).collect();
    if direction == Direction::Backward {
        found.reverse();
    }
    let edge = found.windows(2).find(|pair| pair[0] >= pair[1]);
    ensure(edge.is_none(), || format!("{direction:?} scan: out of order or twice: {edge:?}"))?;
    let missing = (0..STAYING).map(|key| (key * 2).to_be_bytes().to_vec()).find(|key| found.binary_search(key).is_err());
    ensure(missing.is_none(), || format!("{direction:?} scan: a key that was there throughout is missing: {missing:?}"))
}

const TOGETHER: u8 = 12;

/// Writes one value into all cells at once, then another, and so on.
async fn rewrite(client: Client, writer: u32, pulse: Pulse) -> Verdict {
    let mut round = 0_u32;
    while pulse.goes_on().await {
        round += 1;
        let value = [writer.to_be_bytes(), round.to_be_bytes()].concat();
        client.write((0..TOGETHER).fold(Batch::on(*b"p"), |batch, key| batch.put([key], value.as_slice()))).await?;
    }
    Ok(())
}

fn is_atomic(page: &[ScanEntry]) -> Verdict {
    let torn = page.iter().find(|entry| entry.value != page[0].value);
    ensure(torn.is_none(), || format!("a page shows a batch in part: {page:?}"))
}

pub(super) async fn each_page_is_atomic(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    client.write((0..TOGETHER).fold(Batch::on(*b"p"), |batch, key| batch.put([key], vec![0; 8]))).await?;
    for turns in 0..20_u8 {
        let all = (0..TOGETHER).fold(Batch::on(*b"p"), |batch, key| batch.put([key], vec![turns; 8]));
        let request = ScanRequest { limit: TOGETHER.into(), ..ScanRequest::all(*b"p") };
        let (page, written) = futures::join!(client.store.scan(request), after(turns.into(), client.write(all)));
        written?;
        is_atomic(&page?.entries)?;
    }
    let writing = Background::start([1, 2], |writer, pulse| Box::pin(rewrite(client.clone(), writer, pulse)));
    let mut random = context.random(0);
    let scanning = client.clone();
    let look = move || {
        let (direction, client) = (any_direction(&mut random), scanning.clone());
        let limit = random.usize(2..=TOGETHER.into());
        let request = ScanRequest { direction, limit, ..ScanRequest::all(*b"p") };
        async move {
            client.pages(request).await?.iter().try_for_each(|page| is_atomic(page))
        }
    };
    writing.watch(context.size.of(2_000, 150_000), look).await
}
