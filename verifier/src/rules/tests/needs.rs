//! A GPU's recovery action, as the driver words it in the kernel's log (XID 154), decides the finding.

use market::attestation::Remedy;
use market::verification::{LoggedXid, XidEvent};

use super::*;

/// The result of a run in which the driver logged these words for GPU 3, and the agent received the error.
fn said(words: &[Option<&str>], also: &[u32]) -> (Outcome, Option<Remedy>, String) {
    let (findings, _) = judged(|e| {
        gpu(e, 3).bus_id = Some("00000000:C1:00.0".to_owned());
        let logged = |words: &Option<&str>| LoggedXid {
            bus_id: "0000:c1:00".to_owned(),
            xid: 154,
            action: words.map(str::to_owned),
        };
        facts(e).xids_logged = words.iter().map(logged).collect();
        let told = [154].iter().chain(also).map(|xid| XidEvent {
            gpu: Some(3),
            xid: *xid,
        });
        facts(e).xids = Some(told.collect());
    });
    let mut findings = findings.into_iter();
    let found = findings.find(|found| found.code == FindingCode::HealthXid);
    let found = found.expect("judged");
    (found.outcome, found.remedy, found.note)
}

#[test]
fn a_gpu_that_needs_a_reset_or_its_node_a_reboot_fails_with_that_remedy() {
    for (words, remedy) in [
        ("0x1 (GPU Reset Required)", Remedy::Reset),
        ("0x4 (Drain and Reset)", Remedy::Reset),
        ("0x2 (Node Reboot Required)", Remedy::Reboot),
        ("0x2 (OS Reboot)", Remedy::Reboot),
    ] {
        let (outcome, told, note) = said(&[Some(words)], &[]);
        assert_eq!((outcome, told), (Outcome::Failed, Some(remedy)), "{words}");
        assert_eq!(
            note,
            format!("The driver reports that GPU 3 needs: {words}.")
        );
    }
}

#[test]
fn of_several_words_the_worst_counts_whatever_was_done_about_it() {
    let reset = Some("0x1 (GPU Reset Required)");
    let (outcome, remedy, _) = said(&[reset, Some("0x0 (None)")], &[]);
    assert_eq!((outcome, remedy), (Outcome::Failed, Some(Remedy::Reset)));
    let (outcome, remedy, _) = said(&[reset, Some("0x2 (Node Reboot Required)")], &[]);
    assert_eq!((outcome, remedy), (Outcome::Failed, Some(Remedy::Reboot)));
    // The error before it says more: such a GPU is not kept.
    let (outcome, remedy, note) = said(&[reset], &[119]);
    assert_eq!((outcome, remedy), (Outcome::Failed, Some(Remedy::Replace)));
    assert_eq!(note, "The driver reported XID 119.");
}

#[test]
fn a_gpu_that_needs_nothing_is_met() {
    let (outcome, remedy, _) = said(&[Some("0x0 (None)")], &[]);
    assert_eq!((outcome, remedy), (Outcome::Met, None));
}

#[test]
fn less_than_a_reset_and_what_has_no_words_warns() {
    for words in [
        &[Some("0x3 (Drain P2P)")][..],
        &[Some("0x9 (New)")],
        &[None],
        &[],
    ] {
        let (outcome, _, note) = said(words, &[]);
        assert_eq!(outcome, Outcome::Warned, "{words:?}");
        assert_eq!(note, "The driver reported XID 154.");
    }
}

#[test]
fn what_a_gpu_needed_before_the_agent_began_warns_unless_it_needs_nothing_since() {
    let before = |words: &[&str]| {
        let (findings, _) = judged(|e| {
            gpu(e, 3).bus_id = Some("00000000:C1:00.0".to_owned());
            let logged = |words: &&str| LoggedXid {
                bus_id: "0000:c1:00".to_owned(),
                xid: 154,
                action: Some((*words).to_owned()),
            };
            facts(e).xid_history = words.iter().map(logged).collect();
        });
        let mut findings = findings.into_iter();
        let found = findings.find(|found| found.code == FindingCode::HealthXid);
        let found = found.expect("judged");
        (found.outcome, found.note)
    };
    let (outcome, note) = before(&["0x0 (None)", "0x1 (GPU Reset Required)"]);
    assert_eq!(outcome, Outcome::Warned);
    let said = "the driver reported that GPU 3 needs: 0x1 (GPU Reset Required).";
    assert!(note.ends_with(said), "{note}");
    // A document must not carry text that a host would like to have signed.
    let (_, note) = before(&[&format!("\u{1b}[1mGPU Reset{}", " and more".repeat(99))]);
    assert!(note.contains("needs: [1mGPU Reset and more"), "{note}");
    assert!(note.len() < 250, "{note}");
    let (outcome, _) = before(&["0x1 (GPU Reset Required)", "0x0 (None)"]);
    assert_eq!(outcome, Outcome::Met);
}
