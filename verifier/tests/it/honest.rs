//! Nodes that match their lease.

use std::time::Instant;

use chrono::{DateTime, Utc};
use market::attestation::{FindingCode, Outcome, Verdict};
use market::gpu::Gpu;
use market::verification::{Level, Step};
use verifier::agent::{Transport, TransportError};
use verifier::attest::{countersign, verify_attestation};
use verifier::challenge::Session;
use verifier::jws::{JwsError, Signer};
use verifier::local::LocalBroker;
use verifier::order::{Mode, expected_node, order_for};
use verifier::rules::levels::{Demand, demand};

use crate::stage::*;

#[test]
fn a_good_node_passes_every_check_at_every_level() {
    for level in [Level::Quick, Level::Standard, Level::Deep] {
        let mut broker = broker(opening(2, level, Mode::Simulation), 1);
        let outcome = talk(&mut description(2).node(), &mut broker).expect("a conversation");
        assert_eq!(outcome.verdict, Verdict::Pass);
        let attestation = broker.attestation().expect("an attestation");
        assert_eq!(attestation.verdict, Verdict::Pass);
        // Nobody keeps a history here.
        let kept = |code| code == FindingCode::InventoryHistory;
        for finding in attestation
            .findings
            .iter()
            .filter(|found| !kept(found.code))
        {
            let good = matches!(finding.outcome, Outcome::Met | Outcome::Noted);
            assert!(good, "{finding:?}");
        }
        let told: Vec<_> = attestation
            .findings
            .iter()
            .map(|found| found.code)
            .collect();
        let asked = FindingCode::ALL
            .iter()
            .filter(|code| demand(**code, level) != Demand::No);
        assert!(asked.eq(&told), "{level:?}: {told:?}");
    }
}

#[test]
fn eight_gpus_at_the_sizes_of_the_demo_are_verified_in_a_few_seconds() {
    let gpu = Gpu::parse("H100-SXM").expect("known");
    let expected = expected_node(gpu, 8);
    let order = order_for(expected, 0, Level::Quick, Mode::Simulation);
    let mut opening = opening(8, Level::Quick, Mode::Simulation);
    opening.order = order;
    let mut broker = LocalBroker::new(opening, judging().attestation_id);
    let began = Instant::now();
    let outcome = talk(&mut description(8).node(), &mut broker).expect("a conversation");
    assert_eq!(outcome.verdict, Verdict::Pass);
    // The aim is 5 s without optimisation on an idle machine; the margin is for a busy one.
    assert!(began.elapsed().as_secs() < 30, "{:?}", began.elapsed());
    eprintln!(
        "8 GPUs took {:?}, agent and broker together",
        began.elapsed()
    );
}

/// Passes messages on, and records when the report was sent.
struct Watched {
    broker: LocalBroker,
    reported: Option<DateTime<Utc>>,
}

impl Transport for Watched {
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError> {
        if step == Step::Report {
            self.reported = Some(Utc::now());
        }
        self.broker.send(step, body)
    }

    fn is_private(&self) -> bool {
        self.broker.is_private()
    }
}

/// A node's clock would be ahead by the time between the beginning and the report.
#[test]
fn a_machine_on_its_own_is_judged_by_the_time_at_which_it_reports() {
    let mut watched = Watched {
        broker: LocalBroker::new(
            opening(1, Level::Quick, Mode::Simulation),
            judging().attestation_id,
        ),
        reported: None,
    };
    talk(&mut description(1).node(), &mut watched).expect("a conversation");
    let judged = watched.broker.attestation().map(|it| it.measured_at);
    assert!(watched.reported.is_some() && judged >= watched.reported);
}

#[test]
fn the_attestation_names_what_measured_and_by_what_it_was_judged() {
    let attestation = verify(&mut description(2).node());
    let agent = attestation.agent.expect("the agent");
    assert_eq!(agent.version, env!("CARGO_PKG_VERSION"));
    let rules = attestation.rules_version.expect("the rules");
    assert!(rules.starts_with("1-"), "{rules}");
    assert_ne!(rules, verifier::floors::Floors::current().version());
    let json = serde_json::to_value(attestation.attested).expect("json");
    assert_eq!(json, "unavailable");
}

#[test]
fn a_document_of_before_it_named_what_measured_is_still_read() {
    // Signed by the code before 739c9c3 (27 November 2026), for a simulated node, with the key of these
    // tests.
    let jws = include_str!("../../fixtures/attestations/before-739c9c3.jws");
    let key = Signer::from_seed(&[77; 32]);
    let old = verify_attestation(jws, &key.public_key()).expect("valid");
    assert_eq!((old.agent, old.kernels), (None, None));
    assert_eq!((old.rules_version, old.attested), (None, None));
    let says = (old.verdict, old.floors_version.as_str(), old.simulated);
    assert_eq!(says, (Verdict::Pass, "2-a11be8d8", true));
}

#[test]
fn the_attestation_is_checked_offline_and_any_change_is_noticed() {
    let attestation = verify(&mut description(2).node());
    let key = Signer::from_seed(&[77; 32]);
    let jws = countersign(&attestation, "key-1", &key).expect("signed");
    let read = verify_attestation(&format!("{jws}\n"), &key.public_key()).expect("valid");
    assert_eq!(read, attestation);

    let other = Signer::from_seed(&[78; 32]);
    let refused = verify_attestation(&jws, &other.public_key());
    assert!(matches!(refused, Err(JwsError::Signature)));
    let at = jws.len() / 2;
    let swapped = if jws.as_bytes()[at] == b'A' { "B" } else { "A" };
    let changed = format!("{}{swapped}{}", &jws[..at], &jws[at + 1..]);
    assert!(verify_attestation(&changed, &key.public_key()).is_err());
}

#[test]
fn what_is_said_of_limits_names_the_simulation_and_the_memory_that_was_filled() {
    let attestation = verify(&mut description(2).node());
    let limits = attestation.what_this_does_not_prove.join("\n");
    assert!(limits.contains("the device was simulated"), "{limits}");
    assert!(limits.contains("of 81559 MiB"), "{limits}");
}

#[test]
fn a_session_survives_being_stored_between_any_two_steps() {
    struct Storing(verifier::local::LocalBroker);
    impl verifier::agent::Transport for Storing {
        fn send(
            &mut self,
            step: market::verification::Step,
            body: &str,
        ) -> Result<String, verifier::agent::TransportError> {
            let answer = self.0.send(step, body)?;
            let session = self.0.session().expect("a session");
            let stored = serde_json::to_string(session).expect("json");
            let loaded: Session = serde_json::from_str(&stored).expect("a session");
            assert_eq!(&loaded, session, "after step {step}");
            Ok(answer)
        }
        fn is_private(&self) -> bool {
            true
        }
    }
    let mut storing = Storing(broker(opening(2, Level::Standard, Mode::Simulation), 1));
    let outcome = talk(&mut description(2).node(), &mut storing).expect("a conversation");
    assert_eq!(outcome.verdict, Verdict::Pass);
}

#[test]
fn two_conversations_share_no_nonce_and_no_root() {
    let mut bodies = Vec::new();
    for seed in [1, 2] {
        let mut broker = broker(opening(2, Level::Quick, Mode::Simulation), seed);
        talk(&mut description(2).node(), &mut broker).expect("a conversation");
        let session = serde_json::to_value(broker.session().expect("a session")).expect("json");
        bodies.push((
            session["nonce"].clone(),
            session["evidence"]["product_roots"].clone(),
        ));
    }
    assert_ne!(bodies[0].0, bodies[1].0);
    assert_ne!(bodies[0].1, bodies[1].1);
    assert_ne!(
        bodies[0].1[0], bodies[0].1[1],
        "each GPU has its own inputs"
    );
}
