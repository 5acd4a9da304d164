//! What `verifier run` found, as a table for people.

use comfy_table::Table;
use market::attestation::{Attestation, Finding, FindingCode, Outcome, Verdict, Weight};
use market::verification::Step;

/// Prints a result: a row for each check, how long the steps took, the verdict and what it does not prove.
pub(super) fn print_table(attestation: &Attestation) {
    let mut table = Table::new();
    table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
    table.set_header([
        "check", "outcome", "remedy", "measured", "floor", "expected", "unit", "what",
    ]);
    for finding in &attestation.findings {
        table.add_row(row(finding));
    }
    println!("{table}");
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

/// The checks that decided a verdict other than pass, behind it.
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

/// How long the steps took, in their order.
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

fn row(finding: &Finding) -> [String; 8] {
    let number = |value: Option<i64>| value.map(|value| value.to_string()).unwrap_or_default();
    let word = |value: serde_json::Result<serde_json::Value>| {
        value
            .ok()
            .and_then(|v| v.as_str().map(str::to_owned))
            .unwrap_or_default()
    };
    let outcome = word(serde_json::to_value(finding.outcome));
    [
        finding.code.to_string(),
        match finding.weight {
            Weight::Shadow => format!("{outcome} (tried out)"),
            Weight::Must | Weight::May => outcome,
        },
        word(serde_json::to_value(finding.remedy)),
        number(finding.measured),
        number(finding.floor),
        number(finding.expected),
        word(serde_json::to_value(finding.unit)),
        finding.note.clone(),
    ]
}
