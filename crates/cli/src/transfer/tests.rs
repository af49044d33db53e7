//! Imports and exports against a memory store: all formats, interruptions, changed sources, bad records.

use crate::Failure;
use crate::output::Output;
use crate::session::Patience;
use crate::text::Encoding;
use crate::transfer::progress_mark::MarkCell;
use crate::transfer::{
    Columns, Export, Format, Import, Input, ProgressReport, TransferError, export, import,
};
use atoll_memory::MemoryStore;
use atoll_store::{Cell, Expectation, PartitionQuery, ScanRequest, Store, WriteOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

type Content = BTreeMap<(Vec<u8>, Vec<u8>), Vec<u8>>;

fn import_of(path: &Path, format: Format) -> Import {
    Import {
        input: Input::File(path.to_path_buf()),
        format,
        columns: Columns {
            partition: Vec::new(),
            sort: Vec::new(),
            value: Vec::new(),
            as_json: false,
            separator: "/".to_owned(),
            delimiter: b',',
        },
        skip_bad: 0,
        restart: false,
        progress: ProgressReport::Never,
        in_flight: 4,
        window_bytes: 2000,
        options: WriteOptions::default(),
    }
}

async fn export_to(store: &MemoryStore, path: &Path, format: Format, encoding: Encoding) {
    let wanted = Export {
        path: Some(path.to_path_buf()),
        format,
        encoding,
        partition: None,
        prefix: Vec::new(),
        replace: false,
        patience: Patience::default(),
    };
    export(store, &wanted, &Output::new(false)).await.unwrap();
}

/// Everything in the store except the marks of imports.
async fn content(store: &MemoryStore) -> Content {
    let mut content = Content::new();
    let page = store
        .partition_keys(PartitionQuery { limit: 1_000_000, ..PartitionQuery::prefix("") })
        .await
        .unwrap();
    assert_eq!(page.resume, None);
    for partition in page.partitions.into_iter().filter(|key| !key.starts_with(b"\0atoll.")) {
        let mut request = ScanRequest::all(partition.clone());
        loop {
            let page = store.scan(request.clone()).await.unwrap();
            for entry in page.entries {
                content.insert((partition.clone(), entry.sort), entry.value.to_vec());
            }
            match page.resume {
                Some(resume) => request.resume = Some(resume),
                None => break,
            }
        }
    }
    content
}

async fn filled(seed: u64, cells: usize) -> MemoryStore {
    let store = MemoryStore::new();
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..cells {
        let mut bytes = |len: std::ops::Range<usize>| -> Vec<u8> {
            let alphabet = [0, b'\n', b'"', b',', b'\\', b'\r', 0xff, b'a', 0xc3, 0xa9, 7];
            (0..random.usize(len)).map(|_| alphabet[random.usize(..alphabet.len())]).collect()
        };
        let (partition, sort, value) = (bytes(1..4), bytes(0..6), bytes(0..40));
        store.put(Cell::new(&partition, &sort), &value, WriteOptions::default()).await.unwrap();
    }
    store
}

#[tokio::test]
async fn every_format_brings_binary_keys_and_values_back_unchanged() {
    let store = filled(21, 800).await;
    let expected = content(&store).await;
    let folder = TempDir::new().unwrap();
    for (name, format, encoding) in [
        ("a.jsonl", Format::Jsonl, Encoding::Text),
        ("a.csv", Format::Csv, Encoding::Escaped),
        ("b.csv", Format::Csv, Encoding::Base64),
        ("a.atoll", Format::Binary, Encoding::Text),
    ] {
        let path = folder.path().join(name);
        export_to(&store, &path, format, encoding).await;
        let target = MemoryStore::new();
        let imported = import(&target, import_of(&path, format)).await.unwrap();
        assert_eq!(imported.records as usize, expected.len(), "{name}");
        assert!(content(&target).await == expected, "{name}");
    }
}

/// Writes a source of `records` records in this format.
async fn source(folder: &TempDir, format: Format, records: usize) -> (std::path::PathBuf, Content) {
    let store = filled(22, records).await;
    let path = folder.path().join(format!("source.{}", format.name()));
    export_to(&store, &path, format, Encoding::Escaped).await;
    (path, content(&store).await)
}

/// Imports until the first mark is written, then drops the import.
async fn interrupt(store: &MemoryStore, path: &Path, format: Format) {
    let mark = MarkCell::of(path);
    let seen = async {
        let is_there = Expectation::Differs(None);
        store.wait(mark.cell(), is_there, Duration::from_secs(60)).await.unwrap();
    };
    tokio::select! {
        biased;
        () = seen => {}
        imported = import(store, import_of(path, format)) => panic!("it ended before the interruption: {imported:?}"),
    }
}

#[tokio::test]
async fn an_interrupted_import_goes_on_where_it_was() {
    for format in [Format::Jsonl, Format::Csv, Format::Binary] {
        let folder = TempDir::new().unwrap();
        let (path, expected) = source(&folder, format, 3000).await;
        let store = MemoryStore::new();
        interrupt(&store, &path, format).await;
        let before = content(&store).await.len();
        assert!(before > 0 && before < expected.len(), "{before} of {}", expected.len());

        let imported = import(&store, import_of(&path, format)).await.unwrap();
        assert!(imported.records_before > 0, "{format:?} started again");
        assert_eq!((imported.records_before + imported.records) as usize, expected.len(), "{format:?}");
        assert!(content(&store).await == expected, "{format:?}");
        let mark = MarkCell::of(&path).read(&store, None).await.unwrap();
        assert_eq!(mark, None, "a finished import leaves no mark");
    }
}

#[tokio::test]
async fn a_source_that_changed_before_the_mark_is_refused_until_restart() {
    let folder = TempDir::new().unwrap();
    let (path, expected) = source(&folder, Format::Jsonl, 2000).await;
    let store = MemoryStore::new();
    interrupt(&store, &path, Format::Jsonl).await;
    let original = std::fs::read(&path).unwrap();
    let before = content(&store).await;
    let mut changed = original.clone();
    changed[15] ^= 1;
    for source in [&changed[..], &original[..100]] {
        std::fs::write(&path, source).unwrap();
        let failure = import(&store, import_of(&path, Format::Jsonl)).await.unwrap_err();
        assert!(matches!(failure, Failure::Transfer(TransferError::Changed { .. })), "{failure:?}");
        assert!(failure.hint().unwrap().contains("--restart"));
        assert!(content(&store).await == before, "a refused import changes nothing");
    }
    std::fs::write(&path, original).unwrap();
    let again = Import { restart: true, ..import_of(&path, Format::Jsonl) };
    let imported = import(&store, again).await.unwrap();
    assert_eq!((imported.records_before, imported.records as usize), (0, expected.len()));
}

#[tokio::test]
async fn an_interrupted_import_is_not_continued_in_another_way() {
    let folder = TempDir::new().unwrap();
    let (path, _) = source(&folder, Format::Csv, 2000).await;
    let store = MemoryStore::new();
    interrupt(&store, &path, Format::Csv).await;
    let mut other = import_of(&path, Format::Csv);
    other.columns.partition = vec!["sort_escaped".to_owned()];
    let failure = import(&store, other).await.unwrap_err();
    assert!(matches!(failure, Failure::Transfer(TransferError::OtherPlan { .. })), "{failure:?}");
}

#[tokio::test]
async fn a_bad_line_ends_the_import_there_and_a_mended_file_goes_on() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cells.jsonl");
    let line = |at: usize| format!("{{\"partition\":\"p\",\"sort\":\"{at:04}\",\"value\":\"v\"}}\n");
    let good: Vec<String> = (0..300).map(line).collect();
    let mut bad = good.clone();
    bad[200] = "{\"partition\":\"p\"\n".to_owned();
    std::fs::write(&path, bad.concat()).unwrap();
    let store = MemoryStore::new();
    let failure = import(&store, import_of(&path, Format::Jsonl)).await.unwrap_err();
    assert!(failure.to_string().contains("cells.jsonl, line 201: not JSON: EOF while parsing"), "{failure}");
    assert_eq!(content(&store).await.len(), 200, "everything before the bad line is in");
    std::fs::write(&path, good.concat()).unwrap();
    let imported = import(&store, import_of(&path, Format::Jsonl)).await.unwrap();
    assert_eq!((imported.records_before, imported.records), (200, 100));
}

#[tokio::test]
async fn bad_records_are_skipped_up_to_the_number_allowed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cells.jsonl");
    let too_long = format!("{{\"partition\":\"{}\",\"value\":\"\"}}\n", "k".repeat(16385));
    let empty_key = "{\"partition\":\"\",\"value\":\"\"}\n";
    std::fs::write(&path, format!("nonsense\n{too_long}{empty_key}{{\"partition\":\"p\",\"value\":\"\"}}\n"))
        .unwrap();
    let skip = |skip_bad| Import { skip_bad, restart: true, ..import_of(&path, Format::Jsonl) };
    let failure = import(&MemoryStore::new(), skip(2)).await.unwrap_err();
    assert!(failure.to_string().contains("line 3: invalid partition key: it is empty"), "{failure}");
    let imported = import(&MemoryStore::new(), skip(3)).await.unwrap();
    assert_eq!((imported.records, imported.skipped), (1, 3));
}

#[tokio::test]
async fn of_two_records_for_one_cell_the_later_one_wins() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cells.jsonl");
    let line = |at: usize| format!("{{\"partition\":\"p{}\",\"sort\":\"s\",\"value\":\"{at}\"}}\n", at % 3);
    std::fs::write(&path, (0..5000).map(line).collect::<String>()).unwrap();
    let store = MemoryStore::new();
    import(&store, import_of(&path, Format::Jsonl)).await.unwrap();
    let values: Vec<Vec<u8>> = content(&store).await.into_values().collect();
    assert_eq!(values, [b"4998".to_vec(), b"4999".to_vec(), b"4997".to_vec()]);
}

#[tokio::test]
async fn an_export_never_replaces_a_file_unasked_and_never_leaves_half_of_one() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("cells.jsonl");
    std::fs::write(&path, "precious").unwrap();
    let wanted = Export {
        path: Some(path.clone()),
        format: Format::Jsonl,
        encoding: Encoding::Text,
        partition: None,
        prefix: Vec::new(),
        replace: false,
        patience: Patience::default(),
    };
    let store = filled(23, 10).await;
    let failure = export(&store, &wanted, &Output::new(false)).await.unwrap_err();
    assert!(matches!(failure, Failure::Exists { .. }));
    store.close().await.unwrap();
    let forced = Export { replace: true, ..wanted };
    assert!(export(&store, &forced, &Output::new(false)).await.is_err(), "a closed store cannot be exported");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn lines_are_counted_the_same_after_an_interruption() {
    for line_end in ["\n", "\r\n"] {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("cells.csv");
        let rows = |bad: usize| -> String {
            (0..1000)
                .map(|at| format!("p,{at},{}{line_end}", if at == bad { "v,v" } else { "\"v\nv\"" }))
                .collect()
        };
        let text = format!("partition,sort,value{line_end}{}", rows(900));
        std::fs::write(&path, &text).unwrap();
        let whole = import(&MemoryStore::new(), import_of(&path, Format::Csv)).await.unwrap_err().to_string();
        // Two lines for each row before the bad one, one for the header.
        assert!(whole.contains("cells.csv, line 1802: 4 fields"), "{whole}");
        let store = MemoryStore::new();
        interrupt(&store, &path, Format::Csv).await;
        let resumed = import(&store, import_of(&path, Format::Csv)).await.unwrap_err().to_string();
        assert_eq!(resumed, whole, "line end {line_end:?}");
    }
}

/// A small source in one of the four variants of [`crate::fuzz::import`], as a seed for mutations.
async fn fuzz_start(choice: u8, folder: &TempDir) -> Vec<u8> {
    let store = filled(u64::from(choice), 20).await;
    let (format, encoding) = [
        (Format::Jsonl, Encoding::Text),
        (Format::Binary, Encoding::Text),
        (Format::Csv, Encoding::Escaped),
        (Format::Csv, Encoding::Base64),
    ][usize::from(choice)];
    let path = folder.path().join(choice.to_string());
    export_to(&store, &path, format, encoding).await;
    let mut bytes = std::fs::read(path).unwrap();
    if choice == 3 {
        bytes.splice(..bytes.iter().position(|&byte| byte == b'\n').unwrap(), *b"a,b,c");
    }
    [vec![choice], bytes].concat()
}

#[tokio::test]
async fn mutated_sources_never_panic_a_reader() {
    let seed = 77;
    let mut random = fastrand::Rng::with_seed(seed);
    let folder = TempDir::new().unwrap();
    let mut accepted = [0; 4];
    for choice in 0..4_u8 {
        let start = fuzz_start(choice, &folder).await;
        assert!(crate::fuzz::import(&start), "format {choice}: the start itself must be read");
        for round in 0..3000 {
            let mut bytes = start.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(1..bytes.len());
                let interesting = [0, b'"', b',', b'\n', b'\r', b'\\', b'{', b'}', 0xff, 0x80];
                match random.u8(..4) {
                    0 => bytes[at] ^= 1 << random.u8(..8),
                    1 => bytes[at] = interesting[random.usize(..interesting.len())],
                    2 => bytes.insert(at, interesting[random.usize(..interesting.len())]),
                    _ => bytes.truncate(at + 1),
                }
            }
            let caught = std::panic::catch_unwind(|| crate::fuzz::import(&bytes));
            let read =
                caught.unwrap_or_else(|_| panic!("seed {seed}, format {choice}, round {round}: {bytes:?}"));
            accepted[usize::from(choice)] += usize::from(read);
        }
    }
    assert!(accepted.iter().all(|&count| count > 100), "the readers gave up at once: {accepted:?}");
}
