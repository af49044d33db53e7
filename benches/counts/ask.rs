//! Asks every question once and counts its work on both sides of the contract.

use super::adapter::Counting;
use super::open;
use super::questions::{Counted, Question};
use crate::peers::EngineError;
use atoll_tables::Table;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Asks every question in the file `questions` and writes its costs to `out`.
pub async fn count(folder: &Path, table: &str, questions: &Path, out: &Path) -> Result<(), EngineError> {
    let (store, counters) = Counting::over(open(folder).await?);
    let store = Arc::new(store);
    let table = Table::open(Arc::clone(&store) as Arc<dyn atoll_store::Store>, table).await?;
    let questions: Vec<Question> = serde_json::from_str(&std::fs::read_to_string(questions)?)?;
    let mut counted = Vec::with_capacity(questions.len());
    for question in &questions {
        let query = question.query()?;
        counters.take();
        let started = Instant::now();
        let answer = table.query(&query).await?;
        let milliseconds = started.elapsed().as_secs_f64() * 1e3;
        let of_question = Counted::new(&question.name, &answer.work, counters.take(), &answer.rows)?;
        counted.push(Counted { milliseconds, ..of_question });
    }
    std::fs::write(out, serde_json::to_string(&counted)?)?;
    drop(table);
    atoll_store::Store::close(store.as_ref()).await?;
    Ok(())
}
