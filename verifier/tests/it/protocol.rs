//! The order of steps: repeated, late, missing or malformed messages, and those from someone else.

use std::time::Duration;

use market::attestation::{FindingCode, Outcome, Verdict};
use market::verification::{
    Commit, Fill, Level, MemoryRoots, Openings, PROTOCOL, ReportSubmission, Roots, Step,
};
use serde::de::DeserializeOwned;
use verifier::agent::{Transport, TransportError};
use verifier::challenge::{Session, StepError, judge_silence};
use verifier::local::LocalBroker;
use verifier::order::Mode;

use crate::stage::*;

pub const MOMENT: Duration = Duration::from_millis(7);

/// Keeps every message and the session after it.
pub struct Recording {
    broker: LocalBroker,
    bodies: Vec<String>,
    sessions: Vec<Session>,
}

impl Transport for Recording {
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError> {
        let answer = self.broker.send(step, body)?;
        self.bodies.push(body.to_owned());
        self.sessions
            .push(self.broker.session().expect("a session").clone());
        Ok(answer)
    }

    fn is_private(&self) -> bool {
        true
    }
}

impl Recording {
    pub fn of_a_good_node() -> Self {
        Self::of_a_node_with(2)
    }

    /// A node with so many GPUs where two are leased.
    pub fn of_a_node_with(gpus: u32) -> Self {
        let broker = broker(opening(2, Level::Quick, Mode::Simulation), 1);
        let mut recording = Self {
            broker,
            bodies: Vec::new(),
            sessions: Vec::new(),
        };
        talk(&mut description(gpus).node(), &mut recording).expect("a conversation");
        recording
    }

    pub fn body<Q: DeserializeOwned>(&self, step: Step) -> Q {
        serde_json::from_str(&self.bodies[usize::from(step.number()) - 1]).expect("a message")
    }

    /// The session after a step.
    pub fn after(&self, step: Step) -> &Session {
        &self.sessions[usize::from(step.number()) - 1]
    }
}

/// Sends a recorded message of a step to a session; gives the answer as JSON, and whether it was a repeat.
fn send(
    recording: &Recording,
    session: &Session,
    step: Step,
) -> Result<(serde_json::Value, bool), StepError> {
    let entropy = [3; 32];
    macro_rules! answer {
        ($answered:expr) => {{
            let answered = $answered?;
            (
                serde_json::to_value(answered.reply).expect("json"),
                answered.replayed,
            )
        }};
    }
    Ok(match step {
        Step::Commit => answer!(session.on_commit_again(&recording.body::<Commit>(step))),
        Step::Roots => answer!(session.on_roots(&recording.body::<Roots>(step), entropy, MOMENT)),
        Step::Fill => answer!(session.on_fill(&recording.body::<Fill>(step), entropy, MOMENT)),
        Step::Memory => {
            answer!(session.on_memory(&recording.body::<MemoryRoots>(step), MOMENT))
        }
        Step::Openings => {
            answer!(session.on_openings(&recording.body::<Openings>(step), entropy, MOMENT))
        }
        Step::Report => {
            let body = recording.body::<ReportSubmission>(step);
            answer!(session.on_report(&body, judging(), MOMENT))
        }
    })
}

#[test]
fn of_all_steps_only_the_awaited_one_is_new_and_only_the_last_one_is_repeated() {
    let recording = Recording::of_a_good_node();
    for done in Step::ALL {
        let session = recording.after(done);
        for step in Step::ALL {
            let answer = send(&recording, session, step);
            if step == done {
                assert!(
                    answer.expect("the same answer again").1,
                    "{step} after {done}"
                );
            } else if step.number() == done.number() + 1 {
                assert!(!answer.expect("a new answer").1, "{step} after {done}");
            } else if done == Step::Report {
                assert!(
                    matches!(answer, Err(StepError::Over)),
                    "{step} after {done}"
                );
            } else {
                let expected =
                    matches!(answer, Err(StepError::OutOfOrder { got, .. }) if got == step);
                assert!(expected, "{step} after {done}: {answer:?}");
            }
        }
    }
}

#[test]
fn a_repeated_message_gets_the_very_same_choices_whatever_the_new_entropy() {
    let recording = Recording::of_a_good_node();
    let after = recording.after(Step::Roots);
    let again = after
        .on_roots(&recording.body(Step::Roots), [200; 32], MOMENT)
        .expect("again");
    let and_again = after
        .on_roots(&recording.body(Step::Roots), [201; 32], MOMENT)
        .expect("again");
    assert_eq!(again.reply, and_again.reply);
    assert_eq!(&again.session, after);
}

#[test]
fn another_message_for_a_finished_step_is_refused() {
    let recording = Recording::of_a_good_node();
    let mut roots: Roots = recording.body(Step::Roots);
    roots.gpus[0].checksums.pop();
    let refused = recording
        .after(Step::Roots)
        .on_roots(&roots, [3; 32], MOMENT);
    assert!(matches!(refused, Err(StepError::Changed(Step::Roots))));

    let mut commit: Commit = recording.body(Step::Commit);
    commit.host = "10.0.0.9".to_owned();
    let refused = recording.after(Step::Commit).on_commit_again(&commit);
    assert!(matches!(refused, Err(StepError::Changed(Step::Commit))));
}

#[test]
fn a_sibling_with_the_same_token_cannot_speak_for_the_node() {
    let recording = Recording::of_a_good_node();
    let mut fill: Fill = recording.body(Step::Fill);
    fill.agent_key = "B".repeat(43).parse().expect("a key");
    let refused = recording.after(Step::Roots).on_fill(&fill, [3; 32], MOMENT);
    assert!(matches!(refused, Err(StepError::WrongKey)));
}

#[test]
fn lists_of_another_length_are_refused() {
    let recording = Recording::of_a_good_node();
    let mut roots: Roots = recording.body(Step::Roots);
    roots.gpus.pop();
    let refused = recording
        .after(Step::Commit)
        .on_roots(&roots, [3; 32], MOMENT);
    assert!(matches!(refused, Err(StepError::Malformed(_))));
    let mut fill: Fill = recording.body(Step::Fill);
    fill.gpus.clear();
    let refused = recording.after(Step::Roots).on_fill(&fill, [3; 32], MOMENT);
    assert!(matches!(refused, Err(StepError::Malformed(_))));
    let mut memory: MemoryRoots = recording.body(Step::Memory);
    memory.roots.pop();
    let refused = recording.after(Step::Fill).on_memory(&memory, MOMENT);
    assert!(matches!(refused, Err(StepError::Malformed(_))));
    let mut openings: Openings = recording.body(Step::Openings);
    openings.gpus.push(openings.gpus[0].clone());
    let refused = recording
        .after(Step::Memory)
        .on_openings(&openings, [3; 32], MOMENT);
    assert!(matches!(refused, Err(StepError::Malformed(_))));
    let mut report: ReportSubmission = recording.body(Step::Report);
    report.blocks.pop();
    let refused = recording
        .after(Step::Openings)
        .on_report(&report, judging(), MOMENT);
    assert!(matches!(refused, Err(StepError::Malformed(_))));
}

/// This many host keys of some length.
fn keys(count: usize) -> Vec<String> {
    vec![format!("ssh-rsa {}", "A".repeat(2_000)); count]
}

#[test]
fn text_that_could_harm_a_terminal_and_absurd_inventories_are_refused() {
    let recording = Recording::of_a_good_node();
    let taken = |change: fn(&mut Roots)| {
        let mut roots: Roots = recording.body(Step::Roots);
        change(&mut roots);
        let session = recording.after(Step::Commit);
        session.on_roots(&roots, [3; 32], MOMENT).map(|_| ())
    };
    assert!(taken(|_| {}).is_ok());
    assert!(taken(|roots| roots.inventory.ssh_host_keys = keys(4)).is_ok());
    let absurd: [fn(&mut Roots); 7] = [
        |roots| roots.inventory.gpus[0].name = "H100\u{1b}[2J".to_owned(),
        // They look like others but differ.
        |roots| roots.inventory.gpus[0].uuid.push('\u{3164}'),
        |roots| roots.inventory.gpus[0].uuid = "GPU-\u{410}".to_owned(),
        // A quotation in notes ends there.
        |roots| roots.inventory.gpus[0].name = "H100` is good. `".to_owned(),
        |roots| roots.inventory.driver.push('\n'),
        |roots| {
            roots.inventory.gpus = vec![roots.inventory.gpus[0].clone(); 65];
            roots.gpus = vec![roots.gpus[0].clone(); 65];
        },
        // Each is short enough, but all of them are kept in one document.
        |roots| roots.inventory.ssh_host_keys = keys(5),
    ];
    for (case, change) in absurd.into_iter().enumerate() {
        let refused = taken(change);
        let is_malformed = matches!(refused, Err(StepError::Malformed(_)));
        assert!(is_malformed, "case {case}: {refused:?}");
    }
}

#[test]
fn a_commitment_of_another_version_or_without_a_key_is_refused() {
    let recording = Recording::of_a_good_node();
    let open = |change: fn(&mut Commit)| {
        let mut commit: Commit = recording.body(Step::Commit);
        change(&mut commit);
        Session::open(opening(2, Level::Quick, Mode::Simulation), commit, [3; 32])
    };
    assert!(open(|_| {}).is_ok());
    let refused = open(|commit| commit.protocol = PROTOCOL + 1);
    assert!(matches!(refused, Err(StepError::Protocol(version)) if version == PROTOCOL + 1));
    let refused = open(|commit| commit.agent_key = "A".repeat(43).parse().expect("text"));
    assert!(matches!(refused, Err(StepError::Malformed(_))));
    // The other nodes' documents name it.
    for host in ["10.0.0.1\nroot", "10.0.0.1) is slow; node 2 (10.0.0.3"] {
        let mut commit: Commit = recording.body(Step::Commit);
        commit.host = host.to_owned();
        let opening = opening(2, Level::Quick, Mode::Simulation);
        let refused = Session::open(opening, commit, [3; 32]);
        assert!(matches!(refused, Err(StepError::Malformed(_))), "{host:?}");
    }
}

#[test]
fn an_order_of_the_other_mode_is_never_given() {
    let recording = Recording::of_a_good_node();
    let mut commit: Commit = recording.body(Step::Commit);
    for (ordered, mode) in [
        (Mode::Simulation, Mode::Real),
        (Mode::Real, Mode::Simulation),
    ] {
        let mut mixed = opening(2, Level::Quick, ordered);
        mixed.mode = mode;
        commit.device_kind = market::verification::DeviceKind::Cuda;
        let refused = Session::open(mixed, commit.clone(), [3; 32]);
        assert!(matches!(refused, Err(StepError::Order(_))), "{mode}");
    }
}

#[test]
fn a_late_step_fails_though_everything_in_it_is_right() {
    for late in &Step::ALL[1..] {
        let late = *late;
        let clock = move |step| Duration::from_millis(if step == late { 60_001 } else { 7 });
        let opening = opening(2, Level::Quick, Mode::Simulation);
        let mut broker = broker_with_clock(opening, 1, clock);
        let outcome = talk(&mut description(2).node(), &mut broker).expect("a conversation");
        assert_eq!(outcome.verdict, Verdict::Fail, "{late}");
        let attestation = broker.attestation().expect("an attestation");
        assert_eq!(failures(attestation), [FindingCode::StepTimedOut]);
        let finding = attestation
            .findings
            .iter()
            .find(|f| f.code == FindingCode::StepTimedOut)
            .expect("it");
        assert_eq!(
            (finding.measured, finding.floor),
            (Some(60_001), Some(60_000))
        );
    }
}

#[test]
fn an_absurdly_late_step_can_still_be_attested() {
    let opening = opening(2, Level::Quick, Mode::Simulation);
    let mut broker = broker_with_clock(opening, 1, |_| Duration::MAX);
    talk(&mut description(2).node(), &mut broker).expect("a conversation");
    let attestation = broker.attestation().expect("an attestation");
    assert_eq!(attestation.verdict, Verdict::Fail);
    assert!(verifier::attest::countersign(attestation, "key-1", &signer()).is_ok());
}

#[test]
fn numbers_that_no_document_can_hold_are_refused() {
    let recording = Recording::of_a_good_node();
    let mut openings: Openings = recording.body(Step::Openings);
    openings.gpus[0].bad_words = u64::MAX;
    let refused = recording
        .after(Step::Memory)
        .on_openings(&openings, [3; 32], MOMENT);
    assert!(
        matches!(refused, Err(StepError::Canonical(_))),
        "{refused:?}"
    );
}

#[test]
fn a_step_on_its_deadline_is_in_time() {
    let opening = opening(2, Level::Quick, Mode::Simulation);
    let mut broker = broker_with_clock(opening, 1, |_| Duration::from_millis(60_000));
    let outcome = talk(&mut description(2).node(), &mut broker).expect("a conversation");
    assert_eq!(outcome.verdict, Verdict::Pass);
}

#[test]
fn a_node_that_falls_silent_never_passes_and_its_session_is_over() {
    let recording = Recording::of_a_good_node();
    for last in &Step::ALL[..5] {
        let session = recording.after(*last);
        assert_eq!(session.deadline(), Some(Duration::from_secs(60)));
        let over = session.abandon(judging());
        let attestation = over.attestation().expect("an attestation");
        assert_eq!(
            attestation.verdict,
            Verdict::Inconclusive,
            "silent after {last}"
        );
        assert_eq!(
            outcome_of(attestation, FindingCode::StepTimedOut),
            Outcome::NotRun
        );
        assert!(attestation.simulated);
        assert_eq!((over.awaited(), over.deadline()), (None, None));
        assert!(send(&recording, &over, Step::Report).is_err());
    }
    let judged = recording.after(Step::Report);
    assert_eq!(
        &judged.abandon(judging()),
        judged,
        "a judged node stays judged"
    );
}

#[test]
fn a_node_that_is_silent_past_a_deadline_failed_that_step_and_what_it_proved_stands() {
    let recording = Recording::of_a_good_node();
    let session = recording.after(Step::Openings);
    let found = |silence| {
        let over = session.fell_silent(silence, judging());
        let attestation = over.attestation().expect("an attestation").clone();
        let late = attestation.findings.iter();
        let late = late.filter(|found| found.code == FindingCode::StepTimedOut);
        let late: Vec<_> = late.cloned().collect();
        assert_eq!(late.len(), 1);
        assert_eq!(
            outcome_of(&attestation, FindingCode::SdcExact),
            Outcome::Met
        );
        (attestation.verdict, late[0].outcome, late[0].note.clone())
    };
    let note = "Step report was not answered by its deadline.".to_owned();
    let late = found(Duration::from_millis(60_001));
    assert_eq!(late, (Verdict::Fail, Outcome::Failed, note));
    let note = "The node did not answer step report.".to_owned();
    let in_time = found(Duration::from_millis(60_000));
    assert_eq!(in_time, (Verdict::Inconclusive, Outcome::NotRun, note));
    let judged = recording.after(Step::Report);
    assert_eq!(&judged.fell_silent(Duration::MAX, judging()), judged);
}

#[test]
fn a_node_that_fell_silent_after_it_was_caught_has_failed() {
    let mut description = description(2);
    description.gpus = 1;
    description.uuids.truncate(1);
    let broker = broker(opening(2, Level::Quick, Mode::Simulation), 1);
    let mut recording = Recording {
        broker,
        bodies: Vec::new(),
        sessions: Vec::new(),
    };
    talk(&mut description.node(), &mut recording).expect("a conversation");
    let over = recording.after(Step::Roots).abandon(judging());
    assert_eq!(
        over.attestation().expect("an attestation").verdict,
        Verdict::Fail
    );
}

#[test]
fn a_node_that_never_spoke_is_inconclusive() {
    for mode in [Mode::Real, Mode::Simulation] {
        let attestation = judge_silence(&opening(2, Level::Quick, mode), judging());
        assert_eq!(attestation.verdict, Verdict::Inconclusive);
        assert_eq!((attestation.host, attestation.agent_key), (None, None));
        assert_eq!(attestation.simulated, mode == Mode::Simulation);
        let done = attestation
            .findings
            .iter()
            .filter(|f| f.outcome == Outcome::Met);
        assert_eq!(done.count(), 0);
    }
}

#[test]
fn what_a_report_shows_is_known_before_anything_is_recomputed_or_judged() {
    let recording = Recording::of_a_good_node();
    let report: ReportSubmission = recording.body(Step::Report);
    let before = recording.after(Step::Openings);
    let shown = before.reported(&report).expect("it is awaited");
    let judged = recording.after(Step::Report);
    assert_eq!(shown.shown_gpus(), judged.shown_gpus());
    assert_eq!(
        (shown.attestation(), shown.awaited()),
        (None, Some(Step::Report))
    );
    // A text that cannot be a report is refused before anything is computed for it.
    let mut short: ReportSubmission = recording.body(Step::Report);
    short.blocks.pop();
    let refused = before.reported(&short);
    assert!(matches!(refused, Err(StepError::Malformed(_))));
    let early = recording.after(Step::Roots).reported(&report);
    assert!(
        matches!(early, Err(StepError::OutOfOrder { .. })),
        "{early:?}"
    );
    assert!(matches!(judged.reported(&report), Err(StepError::Over)));
}

#[test]
fn who_was_told_what_to_open_does_not_begin_anew() {
    let recording = Recording::of_a_good_node();
    let may = |step| recording.after(step).may_begin_anew();
    assert_eq!(
        Step::ALL.map(may),
        [true, false, false, false, false, false]
    );
}
