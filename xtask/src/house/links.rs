//! Every relative link in a page leads to a file, every anchor to a heading, every page below `docs` is
//! linked from somewhere, and every picture there is shown somewhere.

use super::code_spans;
use super::{Finding, Tree};
use std::collections::BTreeSet;

/// The endings of pictures.
const PICTURES: &[&str] = &[".svg", ".png", ".jpg", ".jpeg", ".gif", ".webp"];

/// Broken links, pages that no link leads to, and pictures that no page shows.
pub fn findings(tree: &Tree) -> Vec<Finding> {
    let mut found = unlinked(tree);
    found.extend(unshown(tree));
    for (path, text) in tree.ending(".md") {
        for line in code_spans::lines(text).iter().filter(|line| line.fence.is_none()) {
            for target in targets(&code_spans::without_inline(line.text)) {
                if let Some(problem) = problem(tree, path, &target) {
                    let place = format!("{path}:{}", line.number);
                    found.push(Finding::at(place, problem, "mend or remove the link"));
                }
            }
        }
    }
    found
}

/// Pages below `docs` that the README of their folder does not link to.
fn unlinked(tree: &Tree) -> Vec<Finding> {
    let mut found = Vec::new();
    for (path, _) in tree.ending(".md").filter(|(path, _)| path.starts_with("docs/")) {
        let Some((folder, name)) = path.rsplit_once('/') else { continue };
        let index = format!("{folder}/README.md");
        let is_linked = tree.text(&index).is_some_and(|text| text.contains(&format!("]({name}")));
        if name != "README.md" && !is_linked {
            found.push(Finding::at(path, "no link leads to the page", format!("list it in {index}")));
        }
    }
    found
}

/// Pictures below `docs` that no page shows: nobody would see them grow stale.
fn unshown(tree: &Tree) -> Vec<Finding> {
    let mut shown = BTreeSet::new();
    for (page, text) in tree.ending(".md") {
        for line in code_spans::lines(text).iter().filter(|line| line.fence.is_none()) {
            let links = targets(&code_spans::without_inline(line.text));
            shown.extend(links.iter().filter_map(|target| resolve(page, target)));
        }
    }
    let is_picture =
        |path: &&str| path.starts_with("docs/") && PICTURES.iter().any(|ending| path.ends_with(ending));
    let unseen = tree.paths().filter(is_picture).filter(|path| !shown.contains(*path));
    unseen.map(|path| Finding::at(path, "no page shows the picture", "show it, or remove it")).collect()
}

/// The targets of links and images: `](target)`, `[name]: target`, `src="target"`, `href="target"`.
fn targets(line: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for (opening, closing) in [("](", ')'), ("src=\"", '"'), ("href=\"", '"')] {
        for (at, _) in line.match_indices(opening) {
            let rest = &line[at + opening.len()..];
            if let Some(end) = rest.find(closing) {
                targets.push(rest[..end].split_whitespace().next().unwrap_or_default().to_owned());
            }
        }
    }
    if line.starts_with('[')
        && let Some((_, target)) = line.split_once("]: ")
    {
        targets.push(target.split_whitespace().next().unwrap_or_default().to_owned());
    }
    targets
}

fn problem(tree: &Tree, page: &str, target: &str) -> Option<String> {
    let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
    if is_elsewhere {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let Some(resolved) = resolve(page, file) else {
        return Some(format!("the link {target} leaves the repository"));
    };
    if !tree.has(&resolved) {
        return Some(format!("the link {target} leads to {resolved}, which does not exist"));
    }
    let text = tree.text(&resolved).filter(|_| resolved.ends_with(".md"))?;
    let anchor = anchor?;
    let is_there = anchors(text).iter().any(|heading| heading == anchor);
    (!is_there).then(|| format!("the link {target} names a heading that {resolved} does not have"))
}

/// The path that `link` on `page` leads to; `None` if it is above the root.
fn resolve(page: &str, link: &str) -> Option<String> {
    if link.is_empty() {
        return Some(page.to_owned());
    }
    let mut parts: Vec<&str> = match link.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => page.split('/').collect(),
    };
    // Links are relative to the page's folder, not to the page.
    parts.pop();
    for part in link.trim_matches('/').split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// The anchors of a page's headings, as GitHub and other forges generate them.
fn anchors(text: &str) -> Vec<String> {
    let prose = code_spans::lines(text).into_iter().filter(|line| line.fence.is_none());
    let headings = prose.filter_map(|line| {
        line.text.trim_start_matches('#').strip_prefix(' ').filter(|_| line.text.starts_with('#'))
    });
    headings
        .map(|heading| {
            let kept = heading
                .trim()
                .chars()
                .filter(|character| character.is_alphanumeric() || " -_".contains(*character));
            kept.collect::<String>().to_lowercase().replace(' ', "-")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        let index = ("docs/README.md", "[a](a.md) [b](b.md)");
        let tree =
            Tree::of(&[index, ("docs/a.md", text), ("docs/b.md", "# A heading, `here`\n"), ("LICENSE", "")]);
        findings(&tree).len()
    }

    #[test]
    fn links_that_lead_somewhere_are_left_alone() {
        assert_eq!(count("[b](b.md) [b](./b.md#a-heading-here) [top](../LICENSE) [folder](../docs)"), 0);
        assert_eq!(count("[web](https://example.org/nowhere.md) and `[code](nowhere.md)`"), 0);
        assert_eq!(count("```md\n[code](nowhere.md)\n```\n"), 0);
    }

    #[test]
    fn a_page_that_nothing_links_is_found() {
        let found = findings(&Tree::of(&[
            ("docs/guide/README.md", "[a](a.md)"),
            ("docs/guide/a.md", ""),
            ("docs/guide/b.md", ""),
        ]));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].place, "docs/guide/b.md");
    }

    #[test]
    fn a_picture_that_no_page_shows_is_found() {
        let found = findings(&Tree::of(&[
            ("README.md", "![a tube](docs/pictures/a.svg) and `![code](docs/pictures/d.svg)`"),
            ("docs/README.md", "<img src=\"pictures/b.svg\">\n```md\n![code](pictures/e.png)\n```\n"),
            ("docs/pictures/a.svg", ""),
            ("docs/pictures/b.svg", ""),
            ("docs/pictures/c.svg", ""),
            ("docs/pictures/d.svg", ""),
            ("docs/pictures/e.png", ""),
            ("particles.png", ""),
        ]));
        let places: Vec<&str> = found.iter().map(|finding| finding.place.as_str()).collect();
        assert_eq!(places, ["docs/pictures/c.svg", "docs/pictures/d.svg", "docs/pictures/e.png"]);
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        assert_eq!(count("[b](nowhere.md)"), 1);
        assert_eq!(count("[b](b.md#no-such-heading)"), 1);
        assert_eq!(count("![picture](house.svg)"), 1);
        assert_eq!(count("<img src=\"house.svg\">"), 1);
        assert_eq!(count("[name]: ../nowhere.md"), 1);
        assert_eq!(count("[out](../../elsewhere.md)"), 1);
    }
}
