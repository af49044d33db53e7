//! Pages of one partition.

use crate::request;
use crate::store::Shared;
use atoll_resp::Value;
use atoll_store::{Buffer, ScanEntry, ScanPage, ScanRequest, StoreError};

/// One page. It is one command and so shows one moment.
pub(crate) async fn page(shared: &Shared, request: ScanRequest) -> Result<ScanPage, StoreError> {
    let last = request.check(&shared.limits)?;
    let written = request::range(&request, last.as_deref());
    let answer = shared.nodes.read("scan", &request.partition, &written).await?;
    let Value::Array(parts) = answer else { return Err(shared.nodes.odd("scan")) };
    let Ok([Value::Integer(more), Value::Array(values)]) = <[Value; 2]>::try_from(parts) else {
        return Err(shared.nodes.odd("scan"));
    };
    let mut entries = Vec::with_capacity(values.len() / 3);
    let mut values = values.into_iter();
    while let (Some(sort), Some(value), Some(length)) = (values.next(), values.next(), values.next()) {
        let (Value::String(sort), Value::Integer(length)) = (sort, length) else {
            return Err(shared.nodes.odd("scan"));
        };
        let value = match value {
            Value::String(bytes) => Buffer::from(bytes),
            _ => Buffer::copy_from(&[]),
        };
        entries.push(ScanEntry { sort, value, value_bytes: length.unsigned_abs() });
    }
    let last = entries.last().filter(|_| more != 0);
    let resume = last.map(|last| request.token_after(&last.sort));
    Ok(ScanPage { entries, resume })
}
