//! `docs/requirements.md` says no more than the tests do.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Collects the names of all functions in the Rust files of a folder and those below it.
fn collect_functions(folder: &Path, names: &mut HashSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect_functions(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            names.extend(text.split("fn ").skip(1).filter_map(|after| {
                let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
                after[end..]
                    .starts_with('(')
                    .then(|| after[..end].to_owned())
            }));
        }
    }
}

fn functions() -> HashSet<String> {
    let mut names = HashSet::new();
    for entry in std::fs::read_dir(root()).expect("the root") {
        let member = entry.expect("an entry").path();
        if member.join("Cargo.toml").is_file() {
            for folder in ["src", "tests"].map(|folder| member.join(folder)) {
                if folder.is_dir() {
                    collect_functions(&folder, &mut names);
                }
            }
        }
    }
    names
}

/// Id, state and last column of each row.
fn rows() -> Vec<(String, String, String)> {
    let page = std::fs::read_to_string(root().join("docs/requirements.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| S"));
    rows.map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "{line}");
        (
            cells[1].to_owned(),
            cells[3].to_owned(),
            cells[4].to_owned(),
        )
    })
    .collect()
}

#[test]
fn every_row_of_the_requirements_stands_on_the_page_once_and_is_counted() {
    let rows = rows();
    let ids: Vec<_> = rows.iter().map(|(id, ..)| id.as_str()).collect();
    let expected: Vec<_> = (1..=116).map(|n| format!("S{n:02}")).collect();
    assert_eq!(ids, expected);
    let mut counts = BTreeMap::new();
    for (_, state, _) in &rows {
        *counts.entry(state.as_str()).or_insert(0) += 1;
    }
    let known: Vec<_> = counts.keys().copied().collect();
    assert_eq!(known, ["done", "not yet", "partly"]);
    let sentence = format!(
        "{} done, {} partly, {} not yet.",
        counts["done"], counts["partly"], counts["not yet"]
    );
    let page = std::fs::read_to_string(root().join("docs/requirements.md")).expect("the page");
    assert!(page.contains(&sentence), "the page should say: {sentence}");
}

#[test]
fn what_is_called_done_names_tests_that_exist() {
    let functions = functions();
    for (id, state, shown_by) in rows() {
        // Between backquotes stands the name of a test, or a word of the API.
        let quoted: Vec<_> = shown_by.split('`').skip(1).step_by(2).collect();
        let tests: Vec<_> = quoted
            .iter()
            .filter(|name| name.matches('_').count() > 2)
            .collect();
        for name in &tests {
            assert!(
                functions.contains(**name),
                "{id} names `{name}`, which is no function"
            );
        }
        if state == "done" || state == "partly" {
            assert!(!tests.is_empty(), "{id} is {state} and names no test");
        }
        if state != "done" {
            assert!(
                !shown_by.is_empty() || state == "not yet",
                "{id} does not say what is missing"
            );
        }
    }
}
