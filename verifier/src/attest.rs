//! From evidence to a countersigned attestation, and back: the check that anyone can do offline.

use market::attestation::{Attestation, Attested, Finding};
use market::verification::{Commit, DeviceKind, PROTOCOL, VerificationOrder};

use crate::challenge::{Judging, Opening};
use crate::evidence::Evidence;
use crate::floors::Floors;
use crate::jws::{DocumentType, Header, JwsError, PublicKey, Signer};
use crate::order::Mode;
use crate::rules;

/// Judges what is known of a node.
///
/// It is simulated when the mode is, when the device is, or when the report states it. None of the three can
/// lead to an attestation of real hardware.
#[must_use]
pub fn attest(
    opening: &Opening,
    commit: Option<&Commit>,
    evidence: &Evidence,
    judging: Judging,
) -> Attestation {
    let simulated = opening.mode == Mode::Simulation
        || commit.is_some_and(|commit| commit.device_kind == DeviceKind::Reference)
        || evidence
            .report
            .as_ref()
            .is_some_and(|report| report.simulated);
    let mut findings = rules::findings(evidence, &opening.order, simulated);
    findings.extend(evidence.apart.clone());
    Attestation {
        id: judging.attestation_id,
        protocol: PROTOCOL,
        verification_id: opening.verification_id,
        lease_id: opening.lease_id,
        node_index: opening.order.node_index,
        host: commit.map(|commit| evidence.known_at.as_ref().unwrap_or(&commit.host).clone()),
        expected: opening.order.expected.clone(),
        inventory: evidence.inventory.clone(),
        level: opening.order.level,
        recheck: opening.order.recheck,
        verdict: rules::verdict(&findings),
        simulated,
        device_kind: commit.map(|commit| commit.device_kind),
        agent_key: commit.map(|commit| commit.agent_key.clone()),
        agent_report_digest: evidence.report.as_ref().map(|report| report.digest),
        agent: commit.map(|commit| commit.agent.clone()),
        kernels: evidence.kernels(),
        floors_version: Floors::current().version().to_owned(),
        rules_version: Some(rules::version().to_owned()),
        attested: Some(Attested::Unavailable),
        what_this_does_not_prove: rules::not_proved(&opening.order, &findings, simulated),
        findings: presentable(findings),
        measured_at: judging.now,
    }
}

/// The most samples of a finding in a document: the first ones.
const MOST_SAMPLES: usize = 256;

/// The longest note of a finding in a document. Units: characters.
const LONGEST_NOTE: usize = 2_048;

/// Limits findings to the size of a document: a node chooses how much it shows, and a document is read only
/// up to [`crate::jws::LONGEST_JWS`].
fn presentable(mut findings: Vec<Finding>) -> Vec<Finding> {
    for found in &mut findings {
        found.samples.truncate(MOST_SAMPLES);
        if let Some((end, _)) = found.note.char_indices().nth(LONGEST_NOTE) {
            found.note.truncate(end);
            found.note.push('…');
        }
    }
    findings
}

/// A node's attestation after its gang was measured: the same with `found` added.
#[must_use]
pub fn attest_together(
    alone: &Attestation,
    order: &VerificationOrder,
    found: Vec<Finding>,
    judging: Judging,
) -> Attestation {
    let mut findings = alone.findings.clone();
    findings.extend(found);
    Attestation {
        id: judging.attestation_id,
        verdict: rules::verdict(&findings),
        what_this_does_not_prove: rules::not_proved(order, &findings, alone.simulated),
        findings: presentable(findings),
        measured_at: judging.now,
        ..alone.clone()
    }
}

/// The document type under which an attestation must be signed.
const fn document_type(attestation: &Attestation) -> DocumentType {
    if attestation.simulated {
        DocumentType::SimulatedAttestation
    } else {
        DocumentType::Attestation
    }
}

/// Signs an attestation as the broker.
///
/// `key_id` names one of the broker's published keys. A simulated attestation has another document type, so
/// its header alone tells it from a real one.
/// Errors: [`JwsError::Canonical`], which an attestation made by [`attest`] does not cause.
pub fn countersign(
    attestation: &Attestation,
    key_id: &str,
    signer: &Signer,
) -> Result<String, JwsError> {
    let typ = document_type(attestation);
    let mut header = Header::new(typ, attestation.verification_id, None);
    header.kid = Some(key_id.to_owned());
    signer.sign(&header, attestation)
}

/// Checks a countersigned attestation against the broker's public key. Needs no network.
///
/// Callers check [`Attestation::proves_real_hardware`], not only the verdict.
/// Errors: [`JwsError`] when signature, form or type is invalid.
pub fn verify_attestation(jws: &str, public_key: &PublicKey) -> Result<Attestation, JwsError> {
    let accepted = [
        DocumentType::Attestation,
        DocumentType::SimulatedAttestation,
    ];
    let (header, attestation) = public_key.verify::<Attestation>(jws.trim(), &accepted)?;
    if header.typ != document_type(&attestation) {
        return Err(JwsError::Header(
            "a simulated attestation is signed as a real one, or reverse",
        ));
    }
    if header.verification_id != attestation.verification_id {
        return Err(JwsError::Header(
            "header and attestation name different verifications",
        ));
    }
    Ok(attestation)
}
