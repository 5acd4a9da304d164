//! Rules on the conversation itself: whether each step was answered in time, and whether the report belongs
//! to this node and this conversation.

use market::attestation::{Finding, FindingCode, Outcome, Unit};
use market::verification::{Step, Trouble, TroubleKind};

use super::{finding, gpu_words, not_run, number};
use crate::evidence::Evidence;

pub(super) fn steps_in_time(evidence: &Evidence) -> Finding {
    let code = FindingCode::StepTimedOut;
    let samples = evidence
        .times
        .iter()
        .map(|time| number(time.elapsed_ms))
        .collect();
    let late = evidence.times.iter().find(|time| time.is_late());
    let hung = signed_troubles(evidence).find(|trouble| trouble.kind == TroubleKind::TimedOut);
    let answered = |step: &Step| evidence.times.iter().any(|time| time.step == *step);
    let silent = Step::ALL[1..].iter().find(|step| !answered(step));
    let with_times = |base: Finding| Finding {
        unit: Some(Unit::Ms),
        samples,
        ..base
    };
    if let Some(time) = late {
        let note = format!("Step {} was not answered by its deadline.", time.step);
        return Finding {
            measured: Some(number(time.elapsed_ms)),
            floor: Some(number(time.deadline_ms)),
            ..with_times(finding(code, Outcome::Failed, note))
        };
    }
    if let Some(trouble) = hung {
        let note = format!(
            "{} did not end its work of step {} in time.",
            gpu_words(trouble.gpu),
            trouble.step
        );
        return with_times(finding(code, Outcome::Failed, note));
    }
    match silent {
        Some(step) => {
            let note = format!("The node did not answer step {step}.");
            with_times(finding(code, Outcome::NotRun, note))
        }
        None => with_times(finding(
            code,
            Outcome::Met,
            "Every step was answered in time.",
        )),
    }
}

/// The agent's own reasons why it could not go on, where the report is signed by it.
pub(super) fn signed_troubles(evidence: &Evidence) -> impl Iterator<Item = &Trouble> {
    let report = evidence.report.as_ref().filter(|report| report.is_signed());
    report.into_iter().flat_map(|report| &report.troubles)
}

pub(super) fn report_signature(evidence: &Evidence) -> Finding {
    let code = FindingCode::AgentSignature;
    match evidence
        .report
        .as_ref()
        .map(|report| &report.signature_problem)
    {
        None => not_run(code),
        Some(None) => finding(
            code,
            Outcome::Met,
            "The report is signed by the committed key.",
        ),
        Some(Some(problem)) => finding(code, Outcome::Failed, format!("The report: {problem}.")),
    }
}

pub(super) fn report_content(evidence: &Evidence) -> Finding {
    let code = FindingCode::AgentReport;
    match &evidence.report {
        Some(report) if report.signature_problem.is_none() => match &report.content_problem {
            None => finding(
                code,
                Outcome::Met,
                "The report agrees with the conversation.",
            ),
            Some(problem) => finding(code, Outcome::Failed, format!("In the report, {problem}.")),
        },
        _ => not_run(code),
    }
}
