//! How the house stands: which files of a crate import each other in a circle, which imports between the
//! rooms of the broker point back up, and which phrases a reader has to translate.
//!
//! An edge leads from a file to the file that defines an item that it names, re-exports resolved.

mod modules;
mod words;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;

use modules::Modules;

/// An import of one file from another.
#[derive(Debug)]
pub(crate) struct Edge<'a> {
    from: &'a Path,
    to: &'a Path,
    /// By which names.
    names: &'a BTreeSet<String>,
}

/// The imports of a crate's files.
pub(crate) struct Imports {
    /// Every file, below the folder of the crate's sources.
    files: Vec<PathBuf>,
    /// From which file to which, by their places in `files`, and by which names.
    edges: BTreeMap<(usize, usize), BTreeSet<String>>,
}

impl Imports {
    /// Reads those of the crate whose root file this is.
    ///
    /// Errors: a file cannot be read, or is not Rust.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let modules = Modules::read(root)?;
        let mut edges: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
        for (index, module) in modules.all.iter().enumerate() {
            for path in &module.paths {
                for target in modules.files_of(index, path) {
                    if target != module.file {
                        let names = edges.entry((module.file, target)).or_default();
                        names.extend(path.last().cloned());
                    }
                }
            }
        }
        Ok(Self {
            files: modules.files,
            edges,
        })
    }

    /// The groups of files in which each imports each other, over however many; largest first.
    pub(crate) fn circles(&self) -> Vec<Vec<&Path>> {
        let reach: Vec<BTreeSet<usize>> = (0..self.files.len())
            .map(|from| self.reached(from))
            .collect();
        let mut seen: BTreeSet<usize> = BTreeSet::new();
        let mut circles = Vec::new();
        for from in 0..self.files.len() {
            if seen.contains(&from) {
                continue;
            }
            let both = |to: &usize| reach[*to].contains(&from);
            let circle: Vec<usize> = reach[from].iter().copied().filter(both).collect();
            seen.extend(&circle);
            if circle.len() > 1 {
                circles.push(circle.iter().map(|file| &*self.files[*file]).collect());
            }
        }
        circles.sort_by_key(|circle: &Vec<&Path>| std::cmp::Reverse(circle.len()));
        circles
    }

    fn reached(&self, from: usize) -> BTreeSet<usize> {
        let mut reached = BTreeSet::new();
        let mut open = vec![from];
        while let Some(file) = open.pop() {
            for ((_, to), _) in self.edges.range((file, 0)..(file + 1, 0)) {
                if reached.insert(*to) {
                    open.push(*to);
                }
            }
        }
        reached
    }

    /// The edges between files of which `rank` puts the second above the first, with the names that make
    /// them; a file without a rank has no edges.
    pub(crate) fn upward(&self, rank: impl Fn(&Path) -> Option<usize>) -> Vec<Edge<'_>> {
        let edges = self.edges.iter().map(|((from, to), names)| Edge {
            from: &self.files[*from],
            to: &self.files[*to],
            names,
        });
        edges
            .filter(|edge| {
                rank(edge.from)
                    .zip(rank(edge.to))
                    .is_some_and(|(from, to)| to > from)
            })
            .collect()
    }
}

/// The rooms of the broker, from the bottom up.
const ROOMS: [&str; 8] = [
    "platform", "terminal", "flow", "tenant", "http", "service", "tools", "cli",
];
/// How many files may import each other in a circle.
const LARGEST_CIRCLE: usize = 5;

/// The crates that have files enough to be looked at.
const CRATES: [&str; 8] = [
    "market",
    "pricing",
    "matcher",
    "adapters",
    "store",
    "verifier",
    "simulator",
    "broker",
];

/// The files that the words are looked for in: those of the checkout that people write. The list of phrases
/// itself, recorded answers and generated pages are left out.
fn written_by_people(root: &Path) -> Result<Vec<PathBuf>> {
    const LEFT_OUT: [&str; 3] = [
        "docs/accuracy.md",
        "docs/predictions.md",
        "xtask/src/house/words.rs",
    ];
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name();
            let path = folder.join(&name);
            let is_ours = |name: &str| {
                !name.starts_with('.') && !["target", "fixtures", "node_modules"].contains(&name)
            };
            if entry.file_type()?.is_dir() {
                if name.to_str().is_some_and(is_ours) {
                    folders.push(path);
                }
                continue;
            }
            let is_text = path
                .extension()
                .is_some_and(|end| end == "rs" || end == "md");
            if is_text && !LEFT_OUT.iter().any(|file| path == Path::new(file)) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Prints the circles of every crate, the imports of the broker that point back up, and phrases that a
/// reader has to translate.
///
/// Errors: a file cannot be read.
pub(crate) fn print(root: &Path) -> Result<()> {
    for name in CRATES {
        let imports = Imports::read(&root.join(name).join("src/lib.rs"))?;
        let circles = imports.circles();
        let sizes: Vec<String> = circles
            .iter()
            .map(|circle| circle.len().to_string())
            .collect();
        println!("{name}: circles of {} files", none_or(&sizes.join(", ")));
        for circle in circles
            .iter()
            .filter(|circle| circle.len() > LARGEST_CIRCLE)
        {
            let files: Vec<_> = circle
                .iter()
                .map(|file| file.display().to_string())
                .collect();
            println!("  {}: {}", circle.len(), files.join(" "));
        }
        if name == "broker" {
            let upward = imports.upward(room_of);
            println!(
                "broker: {} imports point back up between rooms",
                upward.len()
            );
            for Edge { from, to, names } in upward {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                println!(
                    "  {} → {}: {}",
                    from.display(),
                    to.display(),
                    names.join(", ")
                );
            }
        }
    }
    for words::Hit {
        file,
        line,
        found,
        instead,
    } in words::hits(root, &written_by_people(root)?)?
    {
        println!("{}:{line}: \"{found}\"; better: {instead}", file.display());
    }
    Ok(())
}

fn none_or(text: &str) -> &str {
    if text.is_empty() { "no" } else { text }
}

/// How high the room of a file of the broker lies.
fn room_of(file: &Path) -> Option<usize> {
    let first = file.components().next()?.as_os_str().to_str()?;
    let room = first.trim_end_matches(".rs");
    ROOMS.iter().position(|known| *known == room)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broker() -> Imports {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../broker/src/lib.rs");
        Imports::read(&root).expect("the sources")
    }

    #[test]
    fn few_files_of_the_broker_import_each_other_in_a_circle() {
        let imports = broker();
        assert!(imports.files.len() > 200, "the sources were not read");
        for circle in imports.circles() {
            assert!(circle.len() <= LARGEST_CIRCLE, "{circle:#?}");
        }
    }

    #[test]
    fn no_import_of_the_broker_points_back_up() {
        let imports = broker();
        let known = imports.files.iter().filter(|file| room_of(file).is_some());
        // All but lib.rs.
        assert_eq!(
            known.count() + 1,
            imports.files.len(),
            "a file is in no room"
        );
        let upward = imports.upward(room_of);
        assert!(upward.is_empty(), "{upward:#?}");
    }

    #[test]
    fn no_phrase_has_to_be_translated() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let files = written_by_people(&root).expect("the files");
        assert!(files.len() > 900, "the files were not found");
        let hits = words::hits(&root, &files).expect("read");
        assert!(hits.is_empty(), "{hits:#?}");
    }

    #[test]
    fn the_ten_questions_of_a_maintainer_name_files_that_exist() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let guide = std::fs::read_to_string(root.join("CONTRIBUTING.md")).expect("the guide");
        let (_, answers) = guide.split_once("## Ten questions").expect("the questions");
        let answers = answers.split("\n## ").next().unwrap_or(answers);
        let questions = answers.split("\n### ").skip(1);
        let mut asked = 0;
        for question in questions {
            let (title, answer) = question.split_once('\n').expect("an answer");
            let quoted = answer.split('`').skip(1).step_by(2);
            let paths: Vec<&str> = quoted.filter(|word| word.contains('/')).collect();
            assert!(!paths.is_empty(), "{title}: no file is named");
            for path in paths {
                assert!(root.join(path).exists(), "{title}: there is no {path}");
            }
            asked += 1;
        }
        assert_eq!(asked, 10);
    }

    /// Beside its adapter, its fixtures and its twin: the three lists of providers, the facts of price lists, the
    /// clouds that an aggregator names, an example of an id, and two made-up markets.
    const NAME_PROVIDERS: [&str; 8] = [
        "adapters/src/providers.rs",
        "adapters/src/registry.rs",
        "simulator/src/twins.rs",
        "adapters/src/pricesheet/facts.rs",
        "adapters/src/providers/shadeform/catalog.rs",
        "broker/src/tools/bench/matching/market.rs",
        "broker/src/tools/demo/story.rs",
        "market/src/ids.rs",
    ];

    /// The ids of the providers that have a twin.
    fn providers(root: &Path) -> Vec<String> {
        let twins = std::fs::read_dir(root.join("simulator/src/twins")).expect("the twins");
        let names = twins.map(|twin| twin.expect("a file").file_name());
        let ids = names.filter_map(|name| Some(name.to_str()?.strip_suffix(".rs")?.to_owned()));
        ids.collect()
    }

    /// The code of a file without its comments and its tests.
    fn code(root: &Path, file: &Path) -> String {
        let text = std::fs::read_to_string(root.join(file)).expect("a source");
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines = text.lines().filter(|line| !line.trim().starts_with("//"));
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn a_providers_name_stands_with_its_own_code_and_in_few_lists() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let providers = providers(&root);
        assert!(providers.len() >= 8, "{providers:?}");
        let is_code = |file: &&PathBuf| {
            let path = file.to_str().unwrap_or_default();
            path.contains("/src/")
                && !path.contains("/tests")
                && !path.ends_with("samples.rs")
                && path.ends_with(".rs")
                && !path.starts_with("xtask/")
                && !NAME_PROVIDERS.contains(&path)
        };
        let files = written_by_people(&root).expect("the files");
        let mut named = Vec::new();
        for file in files.iter().filter(is_code) {
            let (path, code) = (file.to_str().unwrap_or_default(), code(&root, file));
            for id in &providers {
                let is_its_own =
                    path.contains(&format!("/{id}.rs")) || path.contains(&format!("/{id}/"));
                let words = [format!("\"{id}\""), format!("::{}", id.to_uppercase())];
                if !is_its_own && words.iter().any(|word| code.contains(word)) {
                    named.push(format!("{path}: {id}"));
                }
            }
        }
        assert!(named.is_empty(), "{named:#?}");
    }

    #[test]
    fn an_adapter_and_its_twin_stay_small() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let lines = |path: PathBuf| {
            let text = std::fs::read_to_string(path).expect("a source");
            text.lines().count()
        };
        for id in providers(&root) {
            let folder = root.join("adapters/src/providers").join(&id);
            let parts = std::fs::read_dir(&folder).expect("the adapter's folder");
            let parts = parts.map(|part| lines(part.expect("a file").path()));
            let adapter = lines(folder.with_extension("rs")) + parts.sum::<usize>();
            let twin = lines(root.join(format!("simulator/src/twins/{id}.rs")));
            // Two families of calls, for machines and for clusters.
            let most = match id.as_str() {
                "shadeform" => (950, 200),
                _ => (900, 160),
            };
            assert!(adapter <= most.0, "the adapter of {id} has {adapter} lines");
            assert!(twin <= most.1, "the twin of {id} has {twin} lines");
        }
    }

    /// A crate whose edges are counted by hand.
    #[test]
    fn an_edge_leads_to_the_file_that_defines_the_item() {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in [
            (
                "lib.rs",
                "mod a; mod b; mod c; #[cfg(test)] mod only_tests;",
            ),
            // Re-exports pass on; a private one inside a function, a macro and a glob count.
            (
                "a.rs",
                "mod deep; pub use deep::Deep; pub fn one() { use crate::c::*; two(); } fn m(_: crate::b::Made) {}",
            ),
            (
                "a/deep.rs",
                "pub struct Deep; fn f() { println!(\"{}\", crate::b::NAME); }",
            ),
            (
                "b.rs",
                "made!(); use crate::a::{self, Deep}; pub const NAME: &str = \"b\"; fn g(_: Deep) { a::one() }",
            ),
            (
                "c.rs",
                "pub fn two() {} #[cfg(test)] mod tests { use crate::b::NAME; }",
            ),
            ("only_tests.rs", "use crate::b::NAME;"),
        ] {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            std::fs::write(path, text).expect("written");
        }
        let imports = Imports::read(&folder.path().join("lib.rs")).expect("read");
        let shown = |file: usize| imports.files[file].display().to_string();
        let edges: Vec<_> = imports
            .edges
            .keys()
            .map(|(from, to)| (shown(*from), shown(*to)))
            .collect();
        let expected = [
            ("a.rs", "b.rs"),
            ("a.rs", "c.rs"),
            ("a/deep.rs", "b.rs"),
            ("b.rs", "a.rs"),
            ("b.rs", "a/deep.rs"),
        ];
        let expected = expected.map(|(from, to)| (from.to_owned(), to.to_owned()));
        assert_eq!(
            edges.iter().collect::<BTreeSet<_>>(),
            expected.iter().collect()
        );
        let circle: Vec<_> = imports.circles().concat();
        assert_eq!(circle, ["a.rs", "a/deep.rs", "b.rs"].map(Path::new));
    }
}
