//! Raw reports of calibrations on real cards (`fixtures/calibration`), compared with the vectors of the
//! reference, and with their pages.
//!
//! `UPDATE_DOCS=1 cargo test -p verifier --test it recorded` rewrites the pages in `docs/calibration.md`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use market::verification::Word64;
use verifier::calibrate::{Calibration, page};
use verifier::vectors::{Vector, all};

use crate::calibration::{LEAST, one, run};
use crate::machine::Machine;

/// The right result of each vector, by the name under which it is reported.
fn wanted() -> BTreeMap<String, Word64> {
    let played = all().flat_map(|vector| match vector {
        Vector::Product(product) => vec![product.played(String::new(), None)],
        Vector::Memory(memory) => vec![memory.played(String::new(), &[], 0)],
        Vector::Stream(arrays) => {
            let results = [
                ("copy", arrays.copied),
                ("sum", arrays.triad),
                ("read", arrays.sum),
            ];
            let played =
                results.map(|(what, wanted)| arrays.played(what, String::new(), wanted, 0));
            played.into()
        }
    });
    played.map(|played| (played.name, played.wanted)).collect()
}

/// Replays a report: how many of its results match the current vectors, or the first one that does not.
/// Vectors that have changed since are skipped.
fn replayed(report: &Calibration) -> Result<usize, String> {
    let wanted = wanted();
    let mut same = 0;
    for (gpu, shown) in report.gpus.iter().enumerate() {
        for played in &shown.vectors {
            let is_of_now = wanted.get(&played.name) == Some(&played.wanted);
            match played.gave {
                Some(gave) if is_of_now && gave == played.wanted => same += 1,
                Some(gave) if is_of_now => {
                    return Err(format!("GPU {gpu}: {played} gave {gave:?}"));
                }
                _ => {}
            }
        }
    }
    Ok(same)
}

/// As [`replayed`], of the report in a file.
pub fn replay_file(file: &Path) -> Result<usize, String> {
    let text = std::fs::read_to_string(file).expect("a file");
    replayed(&serde_json::from_str(&text).expect("a raw report"))
}

/// The files of the recordings.
fn recorded() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/calibration");
    let files = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let files = files.map(|file| file.path());
    let files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|kind| kind == "json"))
        .collect();
    if files.is_empty() {
        eprintln!("no calibration of a real card is recorded: nothing was looked at");
    }
    files
}

/// A page as `record-calibration.sh` puts it into `docs/calibration.md`: its headings two levels lower,
/// behind its head there.
fn below(head: &str, page: &str) -> String {
    let (_, text) = page.split_once('\n').expect("a head");
    let lines = text.lines().map(|line| match line.starts_with('#') {
        true => format!("##{line}\n"),
        false => format!("{line}\n"),
    });
    format!("{head}\n{}", lines.collect::<String>())
}

#[test]
fn pages_show_what_was_recorded() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/calibration.md");
    let mut text = std::fs::read_to_string(&docs).expect("the pages");
    let before = text.clone();
    let files = recorded();
    let mut names: Vec<_> = files
        .iter()
        .filter_map(|file| file.file_stem()?.to_str())
        .collect();
    names.sort_unstable();
    let marks = text
        .lines()
        .filter_map(|line| line.strip_prefix("<!-- calibration "));
    let mut pages: Vec<_> = marks.filter_map(|mark| mark.strip_suffix(" -->")).collect();
    pages.sort_unstable();
    assert_eq!(
        pages, names,
        "a page without a report, or a report without one"
    );
    for file in &files {
        let report = std::fs::read_to_string(file).expect("a file");
        let report: Calibration = serde_json::from_str(&report).expect("a raw report");
        let name = file.file_stem().and_then(|name| name.to_str());
        let name = name.expect("a name");
        let marks = [
            format!("<!-- calibration {name} -->\n"),
            format!("<!-- end of calibration {name} -->\n"),
        ];
        let places = marks.map(|mark| text.find(&mark).map(|at| (at, at + mark.len())));
        let [Some((_, from)), Some((to, _))] = places else {
            panic!("{name} has no page in docs/calibration.md");
        };
        let head = text[from..to].lines().next().expect("a head").to_owned();
        text.replace_range(from..to, &below(&head, &page(&report)));
    }
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&docs, &text).expect("written");
    } else {
        assert!(
            text == before,
            "run `UPDATE_DOCS=1 cargo test -p verifier --test it recorded` and review the change"
        );
    }
}

#[test]
fn what_real_cards_gave_is_what_the_reference_gives() {
    for file in recorded() {
        let text = std::fs::read_to_string(&file).expect("a file");
        let report: Calibration = serde_json::from_str(&text).expect("a raw report");
        let file = file.display();
        assert!(!report.simulated, "{file} was not measured on a card");
        let same = replayed(&report).unwrap_or_else(|wrong| panic!("{file}: {wrong}"));
        assert!(same > 0, "{file} has no vector of today");
    }
}

#[test]
fn a_report_with_one_wrong_bit_is_told() {
    let done = run(&Machine::new(&one(|_| {})), &LEAST, (0, 0));
    let text = done.text("calibration.json");
    let mut report: Calibration = serde_json::from_str(&text).expect("a raw report");
    let vectors = report.gpus[0].vectors.len();
    assert_eq!(replayed(&report), Ok(vectors));
    for at in [0, vectors / 2, vectors - 1] {
        let played = &mut report.gpus[0].vectors[at];
        let right = played.gave;
        played.gave = Some(Word64(played.wanted.0 ^ 1));
        let (name, told) = (played.to_string(), replayed(&report));
        assert!(told.is_err_and(|told| told.contains(&name)), "{name}");
        report.gpus[0].vectors[at].gave = right;
    }
}
