//! The rule on the results of the vendor's own diagnostic.

use market::attestation::{Finding, FindingCode, Outcome, Unit};
use market::verification::{DiagnosticEnd, DiagnosticResult, DiagnosticTest};

use super::seen::{Seen, not_applicable};
use super::{finding, not_run, number};
use crate::plain::plain;

/// A test in words: its name, its GPU, and its reason.
fn words(test: &DiagnosticTest) -> String {
    let gpu = test.gpu.map(|gpu| format!(" on GPU {gpu}"));
    let why = test
        .detail
        .as_deref()
        .map(|why| format!(" ({})", plain(why)));
    let name = plain(&test.name);
    format!(
        "{name}{}{}",
        gpu.unwrap_or_default(),
        why.unwrap_or_default()
    )
}

pub(super) fn diagnostic(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HealthDiagnostic;
    let Some(facts) = seen.facts() else {
        return not_run(code);
    };
    let Some(said) = &facts.diagnostic else {
        return not_applicable(code, "The node has no dcgmi, or there was no time for it.");
    };
    let why = || plain(said.why.as_deref().unwrap_or("it gives no reason"));
    match said.ended {
        DiagnosticEnd::Done => {}
        DiagnosticEnd::TimedOut => {
            let note = "The vendor's diagnostic (dcgmi) did not end in time.";
            return finding(code, Outcome::Warned, note);
        }
        DiagnosticEnd::Unreadable => {
            let note = format!("The vendor's diagnostic (dcgmi) cannot be read: {}.", why());
            return finding(code, Outcome::Warned, note);
        }
    }
    let of = |result: DiagnosticResult| -> Vec<&DiagnosticTest> {
        let tests = said.tests.iter();
        tests.filter(|test| test.result == result).collect()
    };
    let (failed, warned) = (of(DiagnosticResult::Failed), of(DiagnosticResult::Warned));
    let passed = of(DiagnosticResult::Passed);
    let told = |outcome, tests: &[&DiagnosticTest]| {
        let more = match tests.len() {
            0 | 1 => String::new(),
            tests => format!("; and {} more", tests - 1),
        };
        let first = tests.first().map_or_else(String::new, |test| words(test));
        let note = format!("The vendor's diagnostic (dcgmi): {first}{more}.");
        finding(code, outcome, note)
    };
    let found = if !failed.is_empty() {
        told(Outcome::Failed, &failed)
    } else if !warned.is_empty() {
        told(Outcome::Warned, &warned)
    } else if passed.is_empty() {
        let note = "The vendor's diagnostic (dcgmi) skipped every test.";
        finding(code, Outcome::Warned, note)
    } else {
        let note = "The vendor's diagnostic (dcgmi) found nothing.";
        finding(code, Outcome::Met, note)
    };
    Finding {
        unit: Some(Unit::Events),
        measured: Some(number(failed.len() as u64)),
        floor: Some(0),
        ..found
    }
}
