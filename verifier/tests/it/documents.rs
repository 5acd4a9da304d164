//! What the document of a node says, and what the broker computes for it.

use market::attestation::{FindingCode, Outcome, Verdict};
use market::verification::{Commit, Step};
use verifier::challenge::Session;
use verifier::gang::Apart;

use crate::protocol::{MOMENT, Recording};
use crate::stage::*;

#[test]
fn a_document_names_the_address_that_the_provider_gave_and_not_the_one_that_was_claimed() {
    let recording = Recording::of_a_good_node();
    let named = |session: Session| {
        let report = recording.body(Step::Report);
        let judged = session
            .on_report(&report, judging(), MOMENT)
            .expect("judged");
        let attestation = judged.session.attestation().expect("judged").clone();
        assert_eq!(attestation.verdict, Verdict::Pass);
        attestation.host.expect("it has spoken")
    };
    let session = recording.after(Step::Openings).clone();
    let claimed = recording.body::<Commit>(Step::Commit).host;
    assert_eq!(named(session.clone()), claimed);
    assert_eq!(named(session.known_at("203.0.113.7")), "203.0.113.7");
}

#[test]
fn a_node_that_is_not_measured_with_all_of_its_gang_passes_and_its_document_says_why() {
    let recording = Recording::of_a_good_node();
    let told = |why| {
        let session = recording.after(Step::Openings).clone().apart(why);
        let report = recording.body(Step::Report);
        let judged = session
            .on_report(&report, judging(), MOMENT)
            .expect("judged");
        judged
            .session
            .attestation()
            .expect("an attestation")
            .clone()
    };
    let code = FindingCode::NetworkTogether;
    for (why, word) in [
        (Apart::OtherOrders, "orders of their own"),
        (Apart::TooMany, "more than 128 nodes"),
    ] {
        let attestation = told(Some(why));
        assert_eq!(attestation.verdict, Verdict::Pass);
        assert_eq!(outcome_of(&attestation, code), Outcome::NotRun);
        let note = note_of(&attestation, code);
        assert!(note.contains(word), "{note}");
        let not_proved = attestation.what_this_does_not_prove.join("\n");
        assert!(not_proved.contains(code.as_str()), "{not_proved}");
    }
    let whole = told(None);
    assert!(whole.findings.iter().all(|found| found.code != code));
}

#[test]
fn the_broker_computes_for_no_gpu_beyond_those_leased() {
    let recording = Recording::of_a_node_with(3);
    let judged = recording.after(Step::Report);
    let session = serde_json::to_value(judged).expect("json");
    assert_eq!(
        session["evidence"]["memory"].as_array().map(Vec::len),
        Some(3)
    );
    assert_eq!(
        session["evidence"]["products"].as_array().map(Vec::len),
        Some(2)
    );
    let attestation = judged.attestation().expect("judged");
    let expected = [FindingCode::InventoryCount, FindingCode::InventorySources];
    assert_eq!(failures(attestation), expected);
}
