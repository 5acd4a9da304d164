//! The findings of `verifier run`, as a table for people.

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use market::attestation::{Attestation, Finding, FindingCode, Outcome, Verdict, Weight};
use market::verification::Step;

/// The greatest width of the table. Units: columns.
const WIDEST: u16 = 100;

/// Prints a result: a row for each check, the time of each step, the verdict and the limits of its proof.
pub(super) fn print_table(attestation: &Attestation) {
    println!("{}", table(&attestation.findings));
    println!("{}", step_times(attestation));
    let pretended = if attestation.simulated {
        " (simulated)"
    } else {
        ""
    };
    println!(
        "{} x {}: {}{}{pretended}",
        attestation.expected.gpus,
        attestation.expected.gpu,
        attestation.verdict,
        decided_by(attestation)
    );
    println!(
        "Nobody countersigned this: the machine judged itself, which proves nothing to others."
    );
    println!("This does not prove:");
    for limit in &attestation.what_this_does_not_prove {
        println!("- {limit}");
    }
}

/// The checks that decided a verdict other than pass, for the text after the verdict.
fn decided_by(attestation: &Attestation) -> String {
    let decides = |found: &&Finding| match attestation.verdict {
        Verdict::Pass => false,
        Verdict::PassWithWarnings => found.counts() && found.outcome == Outcome::Warned,
        Verdict::Fail => found.counts_against(),
        Verdict::Inconclusive => found.leaves_open(),
    };
    let deciding = attestation.findings.iter().filter(decides);
    let codes: Vec<&str> = deciding.map(|found| found.code.as_str()).collect();
    match codes.is_empty() {
        true => String::new(),
        false => format!(" by {}", codes.join(", ")),
    }
}

/// The time of each step, in their order.
fn step_times(attestation: &Attestation) -> String {
    let times = attestation
        .findings
        .iter()
        .find(|finding| finding.code == FindingCode::StepTimedOut);
    let samples = times.map_or(&[][..], |finding| &finding.samples);
    let steps = Step::ALL[1..].iter().zip(samples);
    let words: Vec<String> = steps.map(|(step, ms)| format!("{step} {ms} ms")).collect();
    format!("steps: {}", words.join(", "))
}

/// A row for each check. Only the column of notes is wrapped, between words that are short enough for it;
/// other columns keep their lines.
fn table(findings: &[Finding]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDEST)
        .set_header(["check", "outcome", "figures", "what"]);
    for column in table.column_iter_mut().take(3) {
        column.set_constraint(ColumnConstraint::ContentWidth);
    }
    table.add_rows(findings.iter().map(row));
    table
}

fn row(finding: &Finding) -> [String; 4] {
    let word = |value: serde_json::Result<serde_json::Value>| {
        let value = value.ok();
        value.and_then(|value| Some(value.as_str()?.to_owned()))
    };
    let mut outcome = vec![word(serde_json::to_value(finding.outcome)).unwrap_or_default()];
    outcome.extend((finding.weight == Weight::Shadow).then(|| "(tried out)".to_owned()));
    outcome.extend(word(serde_json::to_value(finding.remedy)).map(|remedy| format!("-> {remedy}")));
    let figures = [
        ("", finding.measured),
        ("floor ", finding.floor),
        ("expected ", finding.expected),
    ];
    let figures = figures.into_iter();
    let mut figures: Vec<String> = figures
        .filter_map(|(what, figure)| Some(format!("{what}{}", figure?)))
        .collect();
    // The first of these values that is present.
    if let (Some(first), Some(unit)) = (
        figures.first_mut(),
        word(serde_json::to_value(finding.unit)),
    ) {
        *first += &format!(" {unit}");
    }
    [
        finding.code.to_string(),
        outcome.join("\n"),
        figures.join("\n"),
        finding.note.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use market::attestation::{Remedy, Unit};

    use super::*;

    fn slow() -> Finding {
        Finding {
            code: FindingCode::MemoryBandwidth,
            outcome: Outcome::Failed,
            weight: Weight::Must,
            remedy: Some(Remedy::Replace),
            unit: Some(Unit::MbPerS),
            measured: Some(1_206_000),
            floor: Some(2_010_000),
            expected: Some(3_350_000),
            samples: vec![],
            note: "word ".repeat(60),
        }
    }

    #[test]
    fn a_row_says_what_helps_and_which_figure_is_which() {
        let [check, outcome, figures, _] = row(&slow());
        assert_eq!(check, "hbm.bw");
        assert_eq!(outcome, "failed\n-> replace");
        assert_eq!(figures, "1206000 mb_per_s\nfloor 2010000\nexpected 3350000");
        let [_, _, unmeasured, _] = row(&Finding {
            measured: None,
            ..slow()
        });
        assert_eq!(unmeasured, "floor 2010000 mb_per_s\nexpected 3350000");
        let bare = row(&Finding {
            outcome: Outcome::NotRun,
            weight: Weight::Shadow,
            remedy: None,
            unit: None,
            measured: None,
            floor: None,
            expected: None,
            ..slow()
        });
        assert_eq!(bare[1..3], ["not_run\n(tried out)", ""]);
    }

    #[test]
    fn a_table_has_a_hundred_columns_at_most_and_loses_no_word() {
        let table = table(&[slow()]).to_string();
        let widest = table.lines().map(|line| line.chars().count()).max();
        assert!(widest <= Some(usize::from(WIDEST)), "{table}");
        assert_eq!(table.matches("word").count(), 60, "{table}");
        assert!(table.contains("1206000 mb_per_s"), "{table}");
    }
}
