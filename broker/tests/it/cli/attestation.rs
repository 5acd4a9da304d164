//! `broker attestation verify`: offline, with a key or a set of keys.

use chrono::{DateTime, Utc};
use market::attestation::{
    Attestation, Finding, FindingCode, Outcome, Remedy, Unit, Verdict, Weight,
};
use market::ids::{AttestationId, LeaseId, VerificationId};
use market::verification::Level;
use serde_json::json;
use uuid::Uuid;
use verifier::attest::countersign;
use verifier::challenge::{Judging, Opening, judge_silence};
use verifier::jws::Signer;
use verifier::order::{Mode, expected_node, order_for};

use super::Place;

const KID: &str = "the-key-of-the-day";

fn signer() -> Signer {
    Signer::from_seed(&[8; 32])
}

fn attestation(mode: Mode, verdict: Verdict) -> Attestation {
    let gpu = "H100-SXM".parse().expect("a GPU");
    let opening = Opening {
        verification_id: VerificationId::from_uuid(Uuid::from_u128(1)),
        lease_id: LeaseId::from_uuid(Uuid::from_u128(2)),
        mode,
        order: order_for(expected_node(gpu, 8), 0, Level::Standard, mode),
    };
    let judging = Judging {
        attestation_id: AttestationId::from_uuid(Uuid::from_u128(3)),
        now: DateTime::<Utc>::UNIX_EPOCH,
    };
    Attestation {
        verdict,
        ..judge_silence(&opening, judging)
    }
}

/// A place with a signed result and the published keys.
fn place(mode: Mode, verdict: Verdict) -> (Place, String) {
    let place = Place::new();
    let jws = countersign(&attestation(mode, verdict), KID, &signer()).expect("signed");
    std::fs::write(place.path().join("result.jws"), &jws).expect("written");
    let x = signer().public_key().to_base64url();
    let key = |kid: &str, purpose: &str, x: &str| json!({ "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "kid": kid, "x": x, "purpose": purpose });
    let other = Signer::from_seed(&[9; 32]).public_key().to_base64url();
    let keys = json!({ "keys": [
        { "kty": "RSA", "n": "AQAB", "e": "AQAB", "kid": KID },
        key("another", "attestation", &other),
        key(KID, "attestation", &x),
    ]});
    std::fs::write(place.path().join("jwks.json"), keys.to_string()).expect("written");
    (place, jws)
}

const VERIFY: [&str; 5] = ["attestation", "verify", "result.jws", "--jwks", "jwks.json"];

#[test]
fn a_result_that_holds_is_told_in_words_and_as_json() {
    let (place, jws) = place(Mode::Real, Verdict::Pass);
    let said = place.broker(VERIFY);
    assert_eq!(said.status, Some(0), "{said:?}");
    for words in [
        "The signature is valid.",
        "pass",
        "8 x H100-SXM",
        "It does not prove:",
    ] {
        assert!(said.stdout.contains(words), "{words}: {said:?}");
    }
    let key = signer().public_key().to_base64url();
    let by_key = [
        "attestation",
        "verify",
        "result.jws",
        "--json",
        "--key",
        &key,
    ];
    let told = place.broker(by_key).json(0);
    assert_eq!(
        (&told["signature_holds"], &told["passed"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(told["attestation"]["verdict"], "pass");
    // The answer of the API does as well.
    let answer = json!({ "id": "att_x", "jws": jws, "verdict": "fail" }).to_string();
    std::fs::write(place.path().join("result.jws"), answer).expect("written");
    assert_eq!(place.broker(VERIFY).status, Some(0));
}

#[test]
fn what_was_found_is_told_with_its_figures_and_whether_it_counts() {
    let (place, _) = place(Mode::Real, Verdict::Fail);
    let mut told = attestation(Mode::Real, Verdict::Fail);
    let figures = |weight, found: &Finding| Finding {
        outcome: Outcome::Failed,
        weight,
        remedy: Some(Remedy::Replace),
        unit: Some(Unit::MbPerS),
        measured: Some(1_273_000),
        floor: Some(1_842_500),
        expected: Some(3_000_000),
        note: "It is slow.".to_owned(),
        ..found.clone()
    };
    for (code, weight) in [
        (FindingCode::MemoryBandwidth, Weight::May),
        (FindingCode::MemoryTriad, Weight::Shadow),
    ] {
        let mut findings = told.findings.iter_mut();
        let found = findings
            .find(|found| found.code == code)
            .expect("a finding");
        *found = figures(weight, found);
    }
    let jws = countersign(&told, KID, &signer()).expect("signed");
    std::fs::write(place.path().join("result.jws"), jws).expect("written");
    let said = place.broker(VERIFY).stdout;
    // Lines are broken between words.
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    let measured = "It is slow. (measured 1273000, floor 1842500, expected 3000000; mb_per_s)";
    for words in [
        format!("hbm.bw: failed, replace. {measured}"),
        format!("hbm.triad: failed, tried out, decides nothing, replace. {measured}"),
    ] {
        assert!(said.contains(&words), "{words}: {said}");
    }
}

#[test]
fn what_the_machine_told_cannot_steer_the_terminal() {
    let (place, _) = place(Mode::Real, Verdict::Pass);
    let mut told = attestation(Mode::Real, Verdict::Pass);
    told.host = Some("10.0.0.1\u{1b}[2J".to_owned());
    let mut unmet = told.findings.iter_mut();
    let unmet = unmet.find(|found| found.outcome == Outcome::NotRun);
    unmet.expect("a finding").note = "GPU \u{1b}]0;passed\u{7}".to_owned();
    let jws = countersign(&told, KID, &signer()).expect("signed");
    std::fs::write(place.path().join("result.jws"), jws).expect("written");
    let said = place.broker(VERIFY);
    assert_eq!(said.status, Some(0), "{said:?}");
    assert!(said.stdout.contains("GPU  ]0;passed"), "{said:?}");
    let steers = |c: char| c.is_control() && c != '\n';
    assert!(!said.stdout.contains(steers), "{said:?}");
}

#[test]
fn a_byte_that_was_changed_anywhere_is_refused() {
    let (place, jws) = place(Mode::Real, Verdict::Pass);
    let places = [2, jws.len() / 2, jws.len() - 4];
    for at in places {
        let mut bytes = jws.clone().into_bytes();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        std::fs::write(place.path().join("result.jws"), bytes).expect("written");
        let said = place.broker(VERIFY);
        assert_eq!(said.status, Some(1), "byte {at}: {said:?}");
        assert!(!said.stdout.contains("valid"), "{said:?}");
        let told = place.broker(VERIFY.into_iter().chain(["--json"])).json(1);
        assert_eq!(
            (&told["signature_holds"], &told["passed"]),
            (&json!(false), &json!(false))
        );
    }
}

#[test]
fn a_failure_and_a_simulation_are_no_pass_though_the_signature_holds() {
    let (failed, _) = place(Mode::Real, Verdict::Fail);
    let said = failed.broker(VERIFY);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(said.stderr.contains("verdict is fail"), "{said:?}");
    let (simulated, _) = place(Mode::Simulation, Verdict::Pass);
    let said = simulated.broker(VERIFY);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(
        said.stdout.contains("SIMULATED") && said.stderr.contains("simulated"),
        "{said:?}"
    );
    let allowed = simulated.broker(VERIFY.into_iter().chain(["--allow-simulated"]));
    assert_eq!(allowed.status, Some(0), "{allowed:?}");
}

#[test]
fn a_key_that_does_not_sign_attestations_does_not_count() {
    let (place, _) = place(Mode::Real, Verdict::Pass);
    let text = std::fs::read_to_string(place.path().join("jwks.json")).expect("read");
    let tokens = text.replace("\"attestation\"", "\"token\"");
    std::fs::write(place.path().join("jwks.json"), tokens).expect("written");
    let said = place.broker(VERIFY);
    assert_eq!(said.status, Some(1), "{said:?}");
    assert!(said.stderr.contains("none of the keys"), "{said:?}");
}

#[test]
fn what_is_no_attestation_or_no_key_is_wrong_input() {
    let (place, _) = place(Mode::Real, Verdict::Pass);
    for words in [
        vec!["attestation", "verify", "result.jws"],
        vec!["attestation", "verify", "missing", "--jwks", "jwks.json"],
        vec![
            "attestation",
            "verify",
            "result.jws",
            "--jwks",
            "result.jws",
        ],
        vec!["attestation", "verify", "jwks.json", "--jwks", "jwks.json"],
        vec!["attestation", "verify", "result.jws", "--key", "short"],
    ] {
        let said = place.broker(words.clone());
        assert_eq!(said.status, Some(2), "{words:?}: {said:?}");
    }
}
