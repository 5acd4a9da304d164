//! Shared parts of the scenes: a node, an order, a broker in memory.

use std::time::Duration;

use chrono::{DateTime, Utc};
use market::attestation::{Attestation, FindingCode, Outcome};
use market::gpu::Gpu;
use market::ids::{AttestationId, LeaseId, VerificationId};
use market::verification::{Level, Step};
use uuid::Uuid;
use verifier::agent::{AgentError, AgentOutcome, Transport, converse};
use verifier::challenge::{Judging, Opening};
use verifier::device::Node;
use verifier::jws::Signer;
use verifier::local::LocalBroker;
use verifier::order::{Mode, expected_node, order_for};
use verifier::reference::NodeDescription;

pub fn verification_id() -> VerificationId {
    VerificationId::from_uuid(Uuid::from_u128(0x11))
}

pub fn now() -> DateTime<Utc> {
    "2026-03-04T05:06:07.123456Z".parse().expect("a time")
}

pub fn judging() -> Judging {
    Judging {
        attestation_id: AttestationId::from_uuid(Uuid::from_u128(0x33)),
        now: now(),
    }
}

pub fn signer() -> Signer {
    Signer::from_seed(&[41; 32])
}

pub fn description(gpus: u32) -> NodeDescription {
    let uuids: Vec<String> = (0..gpus).map(|gpu| format!("GPU-0000-{gpu}")).collect();
    let text = serde_json::json!({
        "schema": "simulated-node-1", "node_index": 0, "host": "10.0.0.1", "gpu": "H100-SXM",
        "gpus": gpus, "memory_mib": 81_559, "vcpus": 208, "memory_gib": 1_800, "uuids": uuids,
        "driver": "570.86.15", "memory_speed": 1.0, "internode": "infiniband_ndr400",
        "bad_words": 0,
    });
    NodeDescription::parse(&text.to_string()).expect("a description")
}

pub fn opening(gpus: u32, level: Level, mode: Mode) -> Opening {
    let gpu = Gpu::parse("H100-SXM").expect("known");
    let expected = expected_node(gpu, gpus);
    let mut order = order_for(expected, 0, level, mode);
    // Small enough for many scenes; the sizes of the demo have a test of their own.
    order.memory.pattern_bytes = 64 * 1_024;
    order.memory.block_bytes = 1_024;
    order.gemm.n = 24;
    // A whole row of the tensor units' tile, so that none of their work is padding.
    order.gemm.k = 128;
    order.gemm.links = 3;
    let lease_id = LeaseId::from_uuid(Uuid::from_u128(0x22));
    Opening {
        verification_id: verification_id(),
        lease_id,
        mode,
        order,
    }
}

/// A broker whose entropy follows from `seed` and whose clock shows 7 ms for every step.
pub fn broker(opening: Opening, seed: u8) -> LocalBroker {
    broker_with_clock(opening, seed, |_| Duration::from_millis(7))
}

pub fn broker_with_clock(
    opening: Opening,
    seed: u8,
    clock: impl FnMut(Step) -> Duration + Send + 'static,
) -> LocalBroker {
    let mut drawn = 0_u8;
    let entropy = move || {
        drawn += 1;
        *blake3::hash(&[seed, drawn]).as_bytes()
    };
    LocalBroker::with(opening, judging(), Box::new(entropy), Box::new(clock))
}

pub fn talk(node: &mut Node, transport: &mut dyn Transport) -> Result<AgentOutcome, AgentError> {
    converse(node, verification_id(), &signer(), transport)
}

/// Connects a node of two GPUs to a broker that expects two, and gives the result.
pub fn verify(node: &mut Node) -> Attestation {
    let mut broker = broker(opening(2, Level::Quick, Mode::Simulation), 1);
    talk(node, &mut broker).expect("a conversation");
    broker.attestation().expect("an attestation").clone()
}

pub fn outcome_of(attestation: &Attestation, code: FindingCode) -> Outcome {
    let finding = attestation
        .findings
        .iter()
        .find(|finding| finding.code == code);
    finding
        .unwrap_or_else(|| panic!("no finding {code}"))
        .outcome
}

/// The note of the finding with a code.
pub fn note_of(attestation: &Attestation, code: FindingCode) -> &str {
    let mut findings = attestation.findings.iter();
    let found = findings.find(|found| found.code == code);
    &found.unwrap_or_else(|| panic!("no finding {code}")).note
}

/// The codes that failed, in the order of the findings.
pub fn failures(attestation: &Attestation) -> Vec<FindingCode> {
    let failed = attestation
        .findings
        .iter()
        .filter(|found| found.counts_against());
    failed.map(|finding| finding.code).collect()
}
