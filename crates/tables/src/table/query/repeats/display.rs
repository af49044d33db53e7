//! Formats values for error messages.

use crate::lattice::Numbers;
use arrow_array::ArrayRef;
use arrow_array::cast::AsArray;
use arrow_schema::DataType;

/// The value of a row: strings in quotes, bytes in hexadecimal, times as the stored number.
pub(super) fn display_value(column: &ArrayRef, row: u32) -> String {
    let row = row as usize;
    let quoted = |text: &str| format!("{text:?}");
    match column.data_type() {
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Utf8 => quoted(column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => quoted(column.as_string::<i64>().value(row)),
        DataType::Utf8View => quoted(column.as_string_view().value(row)),
        DataType::Binary => hexadecimal(column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => hexadecimal(column.as_binary::<i64>().value(row)),
        DataType::BinaryView => hexadecimal(column.as_binary_view().value(row)),
        DataType::FixedSizeBinary(_) => hexadecimal(column.as_fixed_size_binary().value(row)),
        DataType::Dictionary(..) => column.as_any_dictionary_opt().map_or_else(String::new, |dictionary| {
            let pick = dictionary.normalized_keys().get(row).copied().unwrap_or_default();
            display_value(dictionary.values(), pick as u32)
        }),
        _ => match Numbers::of(&column.slice(row, 1)) {
            Some(Numbers::Signed(values)) => values.first().map(i64::to_string).unwrap_or_default(),
            Some(Numbers::Unsigned(values)) => values.first().map(u64::to_string).unwrap_or_default(),
            Some(Numbers::Float(values)) => values.first().map(f64::to_string).unwrap_or_default(),
            None => "?".to_owned(),
        },
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    const SHOWN_MAX: usize = 16;
    let shown: String = bytes.iter().take(SHOWN_MAX).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > SHOWN_MAX { format!("0x{shown}...") } else { format!("0x{shown}") }
}
