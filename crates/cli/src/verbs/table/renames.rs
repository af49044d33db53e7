//! `--rename FROM=TO`: other names for the columns of a file.

use super::parse_pair;

/// The value of one `--rename`: a pair, or several separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Renames(Vec<(String, String)>);

/// A name may contain a comma: it separates pairs only if every piece is a pair.
pub(super) fn parse_renames(text: &str) -> Result<Renames, String> {
    match text.split(',').map(parse_pair).collect::<Result<Vec<_>, _>>() {
        Ok(pairs) => Ok(Renames(pairs)),
        Err(_) => parse_pair(text).map(|pair| Renames(vec![pair])),
    }
}

/// The pairs of all flags.
pub(super) fn pairs_of(typed: &[Renames]) -> Vec<(String, String)> {
    typed.iter().flat_map(|Renames(pairs)| pairs).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_stand_between_pairs_and_within_names() {
        let parsed = |text| parse_renames(text).map(|renames| pairs_of(&[renames]));
        let pairs = |pairs: &[(&str, &str)]| {
            Ok(pairs.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect::<Vec<_>>())
        };
        assert_eq!(parsed("id=pid"), pairs(&[("id", "pid")]));
        assert_eq!(parsed("id=pid,n=step"), pairs(&[("id", "pid"), ("n", "step")]));
        assert_eq!(parsed("x,y=pos"), pairs(&[("x,y", "pos")]));
        assert_eq!(parsed("id=a,b"), pairs(&[("id", "a,b")]));
        for wrong in ["", "id", "id=", "=pid", "id,n"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
