//! Suggests the name that was probably meant.

/// Longest names that are compared, in bytes: the measure (Jaro and Winkler) is quadratic in the length, and
/// names of a hundred characters are not mistyped.
const NAME_BYTES_MAX: usize = 100;

/// The candidate most similar to `word`, if one is similar enough to be worth asking about.
#[must_use]
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > NAME_BYTES_MAX {
        return None;
    }
    let word = word.to_lowercase();
    candidates
        .into_iter()
        .filter(|candidate| candidate.len() <= NAME_BYTES_MAX)
        .map(|candidate| (strsim::jaro_winkler(&word, &candidate.to_lowercase()), candidate))
        .filter(|(similarity, _)| *similarity >= 0.75)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_word_and_noise_finds_none() {
        let keys = ["engine.memory", "engine.checkpoint", "store"];
        assert_eq!(nearest("engine.memroy", keys), Some("engine.memory"));
        assert_eq!(nearest("Store", keys), Some("store"));
        assert_eq!(nearest("qqqq", keys), None);
        assert_eq!(nearest(&"s".repeat(1 << 20), keys), None);
        assert_eq!(nearest("store", [&*"store".repeat(1 << 18), "stone"]), Some("stone"));
    }
}
