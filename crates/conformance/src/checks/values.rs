//! Values: alignment, byte ranges, many reads at once, immutable values and large ones.

use crate::context::{Client, Context, Verdict, ensure, same};
use atoll_store::{Batch, Buffer, ByteRange, Cell, Projection, Read, ReadOptions, ScanRequest, WriteOptions};
use futures::StreamExt;

fn is_aligned(value: &Buffer) -> bool {
    value.is_empty() || value.as_ptr().addr().is_multiple_of(64)
}

pub(super) async fn values_are_aligned(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let large = Buffer::build(200_000, |bytes| context.random(0).fill(bytes));
    let lengths = [1, 7, 63, 64, 65, 1000, 4096, 65_535, 65_536, 150_000];
    for len in lengths {
        // The written buffer may itself be a slice from the middle of another.
        client.write(Batch::on(*b"p").put(len.to_string(), large.slice(3..3 + len))).await?;
    }
    let reads = lengths.map(|len| Read::new(*b"p", len.to_string())).to_vec();
    let many: Vec<_> = client.store.get_many(reads).collect().await;
    for (at, value) in many {
        let value = value?.unwrap_or_default();
        ensure(is_aligned(&value), || format!("value {at} of get_many is not aligned"))?;
    }
    for len in lengths {
        let value = client.store.get(Cell::new("p", &len.to_string()), ReadOptions::default()).await?;
        let value = value.unwrap_or_default();
        same("a value", value.as_slice(), &large[3..3 + len])?;
        ensure(is_aligned(&value), || format!("a value of {len} bytes does not start on a 64-byte boundary"))?;
    }
    for entry in client.scan(ScanRequest::all(*b"p")).await? {
        ensure(is_aligned(&entry.value), || format!("a scanned value of {} bytes is not aligned", entry.value_bytes))?;
    }
    Ok(())
}

pub(super) async fn byte_ranges_are_exact(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    for len in [0_usize, 1, 100, 100_000] {
        let value: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
        let partition = format!("p{len}");
        client.put(&partition, "a", &value).await?;
        let ends = [0, 1, 2, len / 2, len.saturating_sub(1), len, len + 1, usize::MAX];
        let ranges = ends.into_iter().flat_map(|offset| {
            let offset = offset as u64;
            let lens = ends.map(|len| ByteRange::new(offset, len as u64));
            lens.into_iter().chain([ByteRange { offset, len: None }])
        });
        let ranges: Vec<_> = ranges.collect();
        check_ranges(&client, &partition, &value, &ranges).await?;
    }
    Ok(())
}

async fn check_ranges(client: &Client, partition: &str, value: &[u8], ranges: &[ByteRange]) -> Verdict {
    let reads = ranges.iter().map(|&range| Read { range, ..Read::new(partition, *b"a") }).collect();
    let mut many: Vec<_> = client.store.get_many(reads).collect().await;
    many.sort_by_key(|(at, _)| *at);
    for (&range, (_, from_many)) in ranges.iter().zip(many) {
        let (start, end) = range.within(value.len() as u64);
        let expected = &value[start as usize..end as usize];
        let what = format!("{range:?} of a value of {} bytes", value.len());
        let options = ReadOptions { range, ..ReadOptions::default() };
        let one = client.store.get(Cell::new(partition, "a"), options).await?;
        same(format!("get of {what}"), &one.as_deref(), &Some(expected))?;
        same(format!("get_many of {what}"), &from_many?.as_deref(), &Some(expected))?;
        let request = ScanRequest { projection: Projection::Bytes(range), ..ScanRequest::all(partition) };
        let scanned = client.scan(request).await?;
        let [entry] = scanned.as_slice() else { return Err(crate::context::Stop::Broken("a scan lost its cell".into())) };
        same(format!("scan of {what}"), entry.value.as_slice(), expected)?;
        same("length told by the scan", &entry.value_bytes, &(value.len() as u64))?;
    }
    Ok(())
}

pub(super) async fn many_reads_answer_each_question_once(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let mut random = context.random(0);
    for at in 0..100_u32 {
        client.put(format!("p{}", at % 7), at.to_string(), at.to_le_bytes()).await?;
    }
    let asked: Vec<u32> = (0..2000).map(|_| random.u32(0..200)).collect();
    let mut reads: Vec<_> =
        asked.iter().map(|at| Read::new(format!("p{}", at % 7), at.to_string())).collect();
    reads[1000].partition.clear();
    let mut answered = vec![0; reads.len()];
    let mut answers = client.store.get_many(reads);
    while let Some((question, answer)) = answers.next().await {
        let Some(count) = answered.get_mut(question) else {
            return ensure(false, || format!("answer to question {question}, which was not asked"));
        };
        *count += 1;
        if question == 1000 {
            ensure(answer.is_err(), || "a read with an empty partition key is answered".into())?;
            continue;
        }
        let expected = Some(asked[question]).filter(|&at| at < 100).map(|at| at.to_le_bytes().to_vec());
        same(format!("answer {question}"), &answer?.map(|value| value.to_vec()), &expected)?;
    }
    ensure(answered.iter().all(|&count| count == 1), || "not every question was answered exactly once".into())?;
    same("answers to no questions", &client.store.get_many(vec![]).count().await, &0)
}

pub(super) async fn immutable_reads_return_what_was_created(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let options = ReadOptions { immutable: true, ..ReadOptions::default() };
    for len in [0, 10, 1000, 300_000] {
        let (name, value) = (len.to_string(), vec![9; len]);
        let cell = Cell::new("p", &name);
        same("an immutable cell before it is created", &client.store.get(cell, options).await?, &None)?;
        client.store.create(cell, value.clone().into(), WriteOptions::default()).await?;
        for _ in 0..2 {
            let read = client.store.get(cell, options).await?;
            same("an immutable read after create", &read.as_deref(), &Some(value.as_slice()))?;
        }
        let reads = vec![Read { immutable: true, ..Read::new(*b"p", name.as_str()) }];
        let many: Vec<_> = client.store.get_many(reads).collect().await;
        for (_, read) in many {
            same("an immutable read of many", &read?.as_deref(), &Some(value.as_slice()))?;
        }
    }
    Ok(())
}

pub(super) async fn large_values_come_back_whole(context: &Context<'_>) -> Verdict {
    let client = context.open().await?;
    let most = client.store.capabilities().limits.value_bytes as usize;
    let len = context.size.of(3 << 20, 64 << 20).min(most);
    let value = Buffer::build(len, |bytes| context.random(0).fill(bytes));
    client.write(Batch::on(*b"p").put(*b"a", value.clone())).await?;
    let whole = |value: &Buffer| ReadOptions { range: ByteRange::new(0, value.len() as u64), ..ReadOptions::default() };
    let read = client.store.get(Cell::new("p", "a"), ReadOptions::default()).await?;
    ensure(read.as_ref() == Some(&value), || {
        format!("a value of {len} bytes comes back as another, of {:?} bytes", read.map(|read| read.len()))
    })?;
    let read = client.store.get(Cell::new("p", "a"), whole(&value)).await?;
    ensure(read.as_ref() == Some(&value), || format!("the range of all {len} bytes is not the value"))?;
    let tail = Buffer::copy_from(&value[..len / 2]);
    client.write(Batch::on(*b"p").put(*b"a", tail.clone())).await?;
    client.write(Batch::on(*b"p").append(*b"a", value.slice(len / 2..))).await?;
    let read = client.store.get(Cell::new("p", "a"), ReadOptions::default()).await?;
    ensure(read.as_ref() == Some(&value), || format!("{len} bytes written and appended in halves differ"))?;
    let entries = client.scan(ScanRequest::all(*b"p")).await?;
    ensure(entries.len() == 1 && entries[0].value == value, || format!("a scanned value of {len} bytes differs"))
}
