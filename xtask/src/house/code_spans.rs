//! Splits Markdown into prose and code, for the rules about links and commands.

/// One line of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Counted from one.
    pub number: usize,
    /// The line, without its line end.
    pub text: &'a str,
    /// The language of the fenced block around it; `None` in prose.
    pub fence: Option<&'a str>,
}

/// The lines of a page, each with the fence around it; the fence markers themselves are left out.
pub fn lines(page: &str) -> Vec<Line<'_>> {
    let mut fence: Option<(&str, &str)> = None;
    let mut lines = Vec::new();
    for (at, text) in page.lines().enumerate() {
        let trimmed = text.trim_start();
        let marks = &trimmed[..trimmed.len() - trimmed.trim_start_matches('`').len()];
        match fence {
            Some((open, _)) if marks.len() >= open.len() && trimmed.trim_end() == marks => fence = None,
            None if marks.len() >= 3 => fence = Some((marks, trimmed[marks.len()..].trim())),
            _ => lines.push(Line { number: at + 1, text, fence: fence.map(|(_, language)| language) }),
        }
    }
    lines
}

/// The `code` spans in a line of prose.
pub fn inline(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// A line of prose without the content of its `code` spans.
pub fn without_inline(text: &str) -> String {
    text.split('`').step_by(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fenced_blocks_are_told_from_prose() {
        let page = "see `a`\n```sh\nrun b\n```\nand `c d` too\n";
        let lines = lines(page);
        assert_eq!(lines.len(), 3);
        assert_eq!((lines[1].number, lines[1].text, lines[1].fence), (3, "run b", Some("sh")));
        assert_eq!(lines[2].fence, None);
        assert_eq!(inline(lines[2].text), ["c d"]);
        assert_eq!(without_inline(lines[2].text), "and  too");
    }

    #[test]
    fn a_longer_fence_holds_a_shorter_one() {
        let page = "````md\n```sh\nrun\n```\n````\nprose\n";
        let fences: Vec<_> = lines(page).iter().map(|line| line.fence.is_some()).collect();
        assert_eq!(fences, [true, true, true, false]);
    }
}
