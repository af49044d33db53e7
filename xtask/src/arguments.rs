//! Parsing of a verb's words and flags. Anything unknown is an error that lists what the verb knows.

use crate::failure::Failure;
use std::str::FromStr;

/// The words after a verb.
pub struct Arguments {
    usage: String,
    words: Vec<String>,
}

impl Arguments {
    /// Arguments of the verb with this usage line.
    pub fn new(usage: impl Into<String>, words: &[String]) -> Self {
        Self { usage: usage.into(), words: words.to_vec() }
    }

    /// Takes the flag `name`; returns whether it was given.
    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|word| word != name);
        self.words.len() < before
    }

    /// Takes the option `name` and its value: `--name value` or `--name=value`.
    pub fn option<T: FromStr>(&mut self, name: &str) -> Result<Option<T>, Failure> {
        let with_equals = format!("{name}=");
        let Some(at) = self.words.iter().position(|word| word == name || word.starts_with(&with_equals))
        else {
            return Ok(None);
        };
        let word = self.words.remove(at);
        let value = match word.strip_prefix(&with_equals) {
            Some(value) => value.to_owned(),
            None if at < self.words.len() => self.words.remove(at),
            None => return Err(self.wrong(format!("{name} needs a value"))),
        };
        let parsed = value.parse().map_err(|_| self.wrong(format!("{name} cannot be {value:?}")))?;
        Ok(Some(parsed))
    }

    /// Takes the next word that is not a flag.
    pub fn word(&mut self) -> Option<String> {
        let at = self.words.iter().position(|word| !word.starts_with('-'))?;
        Some(self.words.remove(at))
    }

    /// Takes the next word that is not a flag; a missing word is an error that names `what`.
    pub fn required(&mut self, what: &str) -> Result<String, Failure> {
        self.word().ok_or_else(|| self.wrong(format!("{what} is missing")))
    }

    /// Ends the parsing: any argument left over is an error.
    pub fn finish(self) -> Result<(), Failure> {
        match self.words.first() {
            None => Ok(()),
            Some(word) => Err(self.wrong(format!("{word:?} means nothing here"))),
        }
    }

    /// Returns every argument that was not taken, for a program that parses them itself.
    pub fn rest(self) -> Vec<String> {
        self.words
    }

    /// A misuse of this verb, with its usage line.
    pub fn wrong(&self, problem: impl Into<String>) -> Failure {
        Failure::Usage { problem: problem.into(), usage: format!("usage: {}", self.usage) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Arguments {
        Arguments::new("cargo xtask some", &words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn flags_options_and_words_come_in_any_order() {
        let mut arguments = of(&["--quick", "engine", "--json=a.json", "--seed", "7"]);
        assert!(arguments.flag("--quick"));
        assert!(!arguments.flag("--peers"));
        assert_eq!(arguments.option::<u64>("--seed").unwrap(), Some(7));
        assert_eq!(arguments.option::<String>("--json").unwrap().as_deref(), Some("a.json"));
        assert_eq!(arguments.required("NAME").unwrap(), "engine");
        arguments.finish().unwrap();
    }

    #[test]
    fn nonsense_is_refused_with_the_usage() {
        let mut no_number = of(&["--seed", "many"]);
        assert_eq!(no_number.option::<u64>("--seed").unwrap_err().to_string(), "--seed cannot be \"many\"");
        let mut no_value = of(&["--seed"]);
        assert_eq!(no_value.option::<u64>("--seed").unwrap_err().to_string(), "--seed needs a value");
        let failure = of(&["--what"]).finish().unwrap_err();
        assert_eq!(failure.hint().as_deref(), Some("usage: cargo xtask some"));
    }
}
