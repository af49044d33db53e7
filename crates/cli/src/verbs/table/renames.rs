//! `--rename FROM=TO`: what columns of a file are called otherwise.

use super::parse_pair;

/// What one `--rename` says: a pair, or several with commas between.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Renames(Vec<(String, String)>);

/// A comma may also be a part of a name: it stands between pairs only where all that it parts are pairs.
pub(super) fn parse_renames(text: &str) -> Result<Renames, String> {
    match text.split(',').map(parse_pair).collect::<Result<Vec<_>, _>>() {
        Ok(pairs) => Ok(Renames(pairs)),
        Err(_) => parse_pair(text).map(|pair| Renames(vec![pair])),
    }
}

/// The pairs of all that was typed.
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
