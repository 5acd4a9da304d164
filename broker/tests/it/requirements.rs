//! `docs/requirements.md` claims no more than the tests check.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

/// The numbers of rows that were retired or folded into others.
const GONE: [u32; 12] = [26, 37, 42, 52, 59, 72, 95, 102, 103, 105, 107, 116];

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The text of each test: the lines right above it, and its body.
type Tests = HashMap<String, String>;

/// Whether a line makes the function below it a test: `#[test]`, `#[tokio::test(…)]` and the like.
fn is_test_attribute(line: &str) -> bool {
    let attribute = line.trim_start().strip_prefix("#[").unwrap_or_default();
    let path = attribute.split(['(', ']']).next().unwrap_or_default();
    path.rsplit("::").next() == Some("test")
}

/// The name of the function whose signature begins in this line.
fn function_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = line.strip_prefix("async ").unwrap_or(line);
    Some(line.strip_prefix("fn ")?.split_once('(')?.0)
}

/// The tests of one file.
fn collect_tests_of(text: &str, tests: &mut Tests) {
    let lines: Vec<_> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let belongs = |line: &&&str| line.trim_start().starts_with(['#', '/']);
        let above: Vec<_> = lines[..at].iter().rev().take_while(belongs).collect();
        if above.iter().any(|line| is_test_attribute(line)) {
            let end = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            let body = lines[at..].iter().take_while(|line| **line != end);
            let text = above.into_iter().chain(body).copied().collect::<Vec<_>>();
            tests.insert(name.to_owned(), text.join("\n"));
        }
    }
}

/// Collects the tests in the Rust files of a folder and those below it.
fn collect_tests(folder: &Path, tests: &mut Tests) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect_tests(&path, tests);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("UTF-8");
            collect_tests_of(&text, tests);
        }
    }
}

fn tests() -> Tests {
    let mut tests = Tests::new();
    let members = [root().to_owned(), root().join("verifier")];
    let entries = |of: &PathBuf| std::fs::read_dir(of).expect("a folder");
    for entry in members.iter().flat_map(entries) {
        let member = entry.expect("an entry").path();
        if member.join("Cargo.toml").is_file() {
            for folder in ["src", "tests"].map(|folder| member.join(folder)) {
                if folder.is_dir() {
                    collect_tests(&folder, &mut tests);
                }
            }
        }
    }
    tests
}

/// Id, state and last column of each row.
fn rows() -> Vec<(String, String, String)> {
    let page = std::fs::read_to_string(root().join("docs/requirements.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| S"));
    rows.map(|line| {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 6, "{line}");
        assert!(!cells[2].is_empty(), "a row without a title: {line}");
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
    let stands = (1..=124).filter(|n| !GONE.contains(n));
    let expected: Vec<_> = stands.map(|n| format!("S{n:02}")).collect();
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

/// Whether a text contains an id: `S01`, not within a longer word.
fn says(text: &str, id: &str) -> bool {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .any(|word| word == id)
}

#[test]
fn a_test_is_known_by_its_attribute_and_carries_the_ids_around_it() {
    let mut tests = Tests::new();
    let text = "fn helper() {\n}\n\n// S07\n#[tokio::test]\nasync fn one() {\n    // S08\n}\n\
                // S09\nfn two() {\n}\n";
    collect_tests_of(text, &mut tests);
    assert_eq!(tests.keys().collect::<Vec<_>>(), ["one"]);
    assert!(says(&tests["one"], "S07") && says(&tests["one"], "S08"));
    assert!(!says(&tests["one"], "S09") && !says("RS256", "S25"));
}

#[test]
fn what_is_called_done_names_tests_that_exist_and_say_what_they_are_for() {
    let known = tests();
    for (id, state, shown_by) in rows() {
        // Between backquotes stands the name of a test, or a word of the API.
        let quoted: Vec<_> = shown_by.split('`').skip(1).step_by(2).collect();
        let tests: Vec<_> = quoted
            .iter()
            .filter(|name| name.matches('_').count() > 2)
            .collect();
        for name in &tests {
            let text = known.get(**name);
            let text = text.unwrap_or_else(|| panic!("{id} names `{name}`, which is no test"));
            assert!(
                state != "done" || says(text, &id),
                "{id} is done by `{name}`, which does not say `// {id}`"
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
