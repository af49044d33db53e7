//! The text files of the repository, each read once.

use crate::failure::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Folders with builds, downloads and measurements, never with sources.
const NOT_OURS: &[&str] = &[".git", ".work", "target", "node_modules", "__pycache__"];
/// The name prefix of Python environments: `.venv`, and those for tools.
const ENVIRONMENT: &str = ".venv";

/// Every text file, by its path below the root with forward slashes.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    texts: BTreeMap<String, String>,
    others: BTreeSet<String>,
}

impl Tree {
    /// Reads the repository at `root`.
    pub fn read(root: &Path) -> Result<Self, Failure> {
        let mut tree = Self::default();
        tree.read_folder(root, "")?;
        Ok(tree)
    }

    /// A tree of these files, for tests.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let texts = files.iter().map(|&(path, text)| (path.to_owned(), text.to_owned())).collect();
        Self { texts, others: BTreeSet::new() }
    }

    /// The text files whose path ends with `suffix`.
    pub fn ending<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.all().filter(move |(path, _)| path.ends_with(suffix))
    }

    /// Every text file.
    pub fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.texts.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// The path of every file, whether it is text or not.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.texts.keys().chain(&self.others).map(String::as_str)
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        self.texts.get(path).map(String::as_str)
    }

    /// Whether `path` is a file or a folder with files in it.
    pub fn has(&self, path: &str) -> bool {
        let folder = format!("{path}/");
        path.is_empty()
            || self.texts.contains_key(path)
            || self.others.contains(path)
            || self.texts.range(folder.clone()..).next().is_some_and(|(at, _)| at.starts_with(&folder))
            || self.others.range(folder.clone()..).next().is_some_and(|at| at.starts_with(&folder))
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> Result<(), Failure> {
        let doing = || format!("read {}", folder.display());
        for entry in std::fs::read_dir(folder).map_err(Failure::io(doing()))? {
            let entry = entry.map_err(Failure::io(doing()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
            let kind = entry.file_type().map_err(Failure::io(doing()))?;
            // In a linked Git work tree, `.git` is a file.
            if NOT_OURS.contains(&name.as_str()) || name.starts_with(ENVIRONMENT) {
                continue;
            }
            if kind.is_dir() {
                self.read_folder(&entry.path(), &path)?;
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).map_err(Failure::io(format!("read {path}")))?;
                match String::from_utf8(bytes) {
                    Ok(text) => drop(self.texts.insert(path, text)),
                    Err(_) => drop(self.others.insert(path)),
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_the_folders_that_hold_them_are_there() {
        let tree = Tree::of(&[("docs/guide/README.md", ""), ("README.md", "")]);
        for path in ["README.md", "docs", "docs/guide", "docs/guide/README.md", ""] {
            assert!(tree.has(path), "{path}");
        }
        for path in ["READ", "doc", "docs/guide/README", "docs/internals"] {
            assert!(!tree.has(path), "{path}");
        }
    }
}
