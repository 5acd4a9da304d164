//! Raw reports of calibrations on real cards (`fixtures/calibration`), compared with the vectors to which the
//! reference is held too. The program that made them left the agent; its reports stay as data.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use market::verification::Word64;
use serde::Deserialize;
use verifier::vectors::{memories, products, streams};

/// What is read of a report.
#[derive(Deserialize)]
struct Report {
    simulated: bool,
    gpus: Vec<Card>,
}

/// A card in a report.
#[derive(Deserialize)]
struct Card {
    vectors: Vec<Played>,
}

/// A vector as a card played it.
#[derive(Deserialize)]
struct Played {
    /// The kind of work with its size.
    name: String,
    /// A kernel, and the way that it went.
    by: String,
    /// The result that it must have.
    wanted: Word64,
    /// The result that came out; none where there are no units for it.
    gave: Option<Word64>,
}

/// The right result of each vector, by the name under which it is reported.
fn wanted() -> BTreeMap<String, Word64> {
    let products = products().iter().map(|product| {
        let (format, inputs) = (product.format.words(), product.inputs);
        let name = format!(
            "product of {format}, {0} x {0}, inner {1}",
            inputs.n, inputs.k
        );
        (name, product.checksum)
    });
    let memories = memories().iter().map(|memory| {
        let (pattern, blocks) = (memory.contents.pattern, memory.blocks);
        let bytes = memory.block_bytes;
        let name = format!("memory {pattern:?}, {blocks} blocks of {bytes} bytes");
        (name, memory.digests)
    });
    let streams = streams().iter().flat_map(|arrays| {
        let results = [
            ("copy", arrays.copied),
            ("sum", arrays.triad),
            ("read", arrays.sum),
        ];
        results.map(|(what, sum)| (format!("{what} of {} vectors", arrays.vectors), sum))
    });
    products.chain(memories).chain(streams).collect()
}

/// Replays a report: how many of its results are those of the vectors as they are now, or the first one that
/// is not. Vectors that were changed since tell nothing.
fn replayed(report: &Report) -> Result<usize, String> {
    let wanted = wanted();
    let mut same = 0;
    for (gpu, shown) in report.gpus.iter().enumerate() {
        for played in &shown.vectors {
            let is_of_now = wanted.get(&played.name) == Some(&played.wanted);
            match played.gave {
                Some(gave) if is_of_now && gave == played.wanted => same += 1,
                Some(gave) if is_of_now => {
                    let Played { name, by, .. } = played;
                    return Err(format!("GPU {gpu}: {name} by {by} gave {gave:?}"));
                }
                _ => {}
            }
        }
    }
    Ok(same)
}

/// What is recorded, by the names of the files.
fn recorded() -> Vec<(PathBuf, Report)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/calibration");
    let files = std::fs::read_dir(&folder).expect("the reports").flatten();
    let files = files.map(|file| file.path());
    let reports = files.filter(|path| path.extension().is_some_and(|kind| kind == "json"));
    let read = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).expect("a file");
        let report = serde_json::from_str(&text).expect("a raw report");
        (path, report)
    };
    reports.map(read).collect()
}

#[test]
fn what_real_cards_gave_is_what_the_reference_gives() {
    let reports = recorded();
    assert!(!reports.is_empty());
    for (file, report) in reports {
        assert!(
            file.with_extension("md").is_file(),
            "{} has no page",
            file.display()
        );
        let file = file.display();
        assert!(!report.simulated, "{file} was not measured on a card");
        let same = replayed(&report).unwrap_or_else(|wrong| panic!("{file}: {wrong}"));
        assert!(same > 0, "{file} has no vector of today");
    }
}

#[test]
fn a_report_with_one_wrong_bit_is_told() {
    for (_, mut report) in recorded() {
        let vectors = report.gpus[0].vectors.len();
        assert_eq!(replayed(&report), Ok(vectors));
        for at in [0, vectors / 2, vectors - 1] {
            let played = &mut report.gpus[0].vectors[at];
            let right = played.gave;
            played.gave = Some(Word64(played.wanted.0 ^ 1));
            let (name, told) = (played.name.clone(), replayed(&report));
            assert!(told.is_err_and(|told| told.contains(&name)), "{name}");
            report.gpus[0].vectors[at].gave = right;
        }
    }
}
