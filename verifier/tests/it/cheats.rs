//! Agents that lie. Each lie must be caught by its own check, even if it disturbs others.

use market::attestation::{Attestation, FindingCode, Outcome, Verdict};
use market::verification::{
    AgentReport, DeviceKind, Digest, GpuClaim, Level, OpenedBlock, ReportSubmission, Step,
    TroubleKind, Word64,
};
use serde_json::{Value, json};
use verifier::agent::{Transport, TransportError};
use verifier::attest::{countersign, verify_attestation};
use verifier::device::{Device, DeviceError, Node, PatternCheck};
use verifier::gemm::{GemmInputs, row_sum};
use verifier::jws::{DocumentType, Header, JwsError, Signer};
use verifier::local::LocalBroker;
use verifier::memory::Contents;
use verifier::order::Mode;
use verifier::probe::{self, memory::ProvedMemory};

use crate::stage::*;

/// The lie of a GPU.
#[derive(Clone, Copy, PartialEq)]
enum Lie {
    /// One entry of the product is off by one, before the commitment.
    WrongEntry,
    /// One iteration gives different bits.
    Unrepeatable,
    /// Memory stays empty, and the count of bad words is zero anyway.
    EmptyMemory,
    /// One word in the last block is wrong and not counted.
    HiddenBadWord,
    /// Less is filled than ordered.
    HalfFilled,
    /// Little memory can be allocated.
    LittleMemory,
    /// No lie, but its process ends before it opens its proof.
    Gone,
}

struct Liar {
    inner: Box<dyn Device>,
    lie: Lie,
    multiplied: u32,
}

impl Device for Liar {
    fn claim(&self) -> GpuClaim {
        self.inner.claim()
    }

    fn multiply(&mut self, inputs: &GemmInputs) -> Result<Word64, DeviceError> {
        self.multiplied += 1;
        let sum = self.inner.multiply(inputs)?;
        let off = self.lie == Lie::Unrepeatable && self.multiplied == 2;
        Ok(if off { Word64(sum.0 ^ 1) } else { sum })
    }

    fn row_sums(&mut self) -> Result<Vec<Word64>, DeviceError> {
        let mut sums = self.inner.row_sums()?;
        sums[0] = row_sum(0, &self.read_rows(&[0])?[0]);
        Ok(sums)
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<Vec<i32>>, DeviceError> {
        let mut read = self.inner.read_rows(rows)?;
        for (row, values) in rows.iter().zip(&mut read) {
            values[7] += i32::from(*row == 0 && self.lie == Lie::WrongEntry);
        }
        Ok(read)
    }

    fn allocatable_mib(&mut self) -> Result<u32, DeviceError> {
        let all = self.inner.allocatable_mib()?;
        Ok(if self.lie == Lie::LittleMemory {
            all / 2
        } else {
            all
        })
    }

    fn fill(&mut self, contents: &Contents, bytes: u64) -> Result<u64, DeviceError> {
        let bytes = if self.lie == Lie::HalfFilled {
            bytes / 2
        } else {
            bytes
        };
        self.inner.fill(contents, bytes)
    }

    fn compare(&mut self, _: &Contents) -> Result<PatternCheck, DeviceError> {
        Ok(PatternCheck::default())
    }

    fn invert(&mut self, _: &Contents, _: bool) -> Result<PatternCheck, DeviceError> {
        Ok(PatternCheck::default())
    }

    fn digest_blocks(&mut self, block: u32, key: &Digest) -> Result<Vec<Word64>, DeviceError> {
        let mut digests = self.inner.digest_blocks(block, key)?;
        match self.lie {
            Lie::EmptyMemory => digests.fill(Word64(0)),
            Lie::HiddenBadWord => *digests.last_mut().expect("a block") = Word64(5),
            _ => {}
        }
        Ok(digests)
    }

    fn prove(
        &mut self,
        block: u32,
        key: &Digest,
        threads: usize,
    ) -> Result<ProvedMemory, DeviceError> {
        let hashed = probe::memory::hash(self, block, key, threads)?;
        Ok(match self.lie {
            Lie::Gone => ProvedMemory::OnDevice(hashed.root()),
            _ => ProvedMemory::Here(hashed),
        })
    }

    fn open_blocks(&mut self, _: &[u64]) -> Result<Vec<OpenedBlock>, DeviceError> {
        Err(DeviceError {
            gpu: 1,
            kind: TroubleKind::Driver,
            what: "its process is gone".to_owned(),
        })
    }

    fn copy_mb_per_s(&mut self, sample: u32) -> Result<u64, DeviceError> {
        self.inner.copy_mb_per_s(sample)
    }
}

fn with_liar(lie: Lie) -> Node {
    let mut node = description(2).node();
    let inner = node.devices.pop().expect("a second GPU");
    node.devices.push(Box::new(Liar {
        inner,
        lie,
        multiplied: 0,
    }));
    node
}

#[test]
fn every_lying_device_is_caught_by_its_check() {
    for (lie, codes) in [
        (Lie::WrongEntry, vec![FindingCode::SdcExact]),
        (Lie::Unrepeatable, vec![FindingCode::SdcRepeat]),
        (Lie::EmptyMemory, vec![FindingCode::MemoryProof]),
        (Lie::HiddenBadWord, vec![FindingCode::MemoryProof]),
        (
            Lie::HalfFilled,
            vec![FindingCode::MemoryCapacity, FindingCode::MemoryProof],
        ),
        (Lie::LittleMemory, vec![FindingCode::MemoryCapacity]),
    ] {
        let attestation = verify(&mut with_liar(lie));
        assert_eq!(failures(&attestation), codes);
        assert_eq!(attestation.verdict, Verdict::Fail);
        for finding in attestation
            .findings
            .iter()
            .filter(|f| codes.contains(&f.code))
        {
            assert!(
                !finding.note.contains("GPU 0"),
                "the honest GPU is not blamed: {finding:?}"
            );
        }
    }
}

#[test]
fn a_process_that_is_gone_before_it_opens_its_blocks_is_no_lie_and_no_pass() {
    let attestation = verify(&mut with_liar(Lie::Gone));
    assert_eq!(attestation.verdict, Verdict::Fail);
    assert_eq!(failures(&attestation), [FindingCode::AgentTrouble]);
    let proof = note_of(&attestation, FindingCode::MemoryProof);
    assert_eq!(
        proof,
        "The blocks of GPU 1 were not opened: its process was gone."
    );
    assert_eq!(
        outcome_of(&attestation, FindingCode::MemoryProof),
        Outcome::NotRun
    );
}

#[test]
fn in_a_large_memory_the_opened_blocks_alone_catch_an_empty_one() {
    let mut opening = opening(2, Level::Quick, Mode::Simulation);
    // Beyond the size that the broker recomputes as a whole.
    opening.order.memory.pattern_bytes = 17 << 20;
    opening.order.memory.block_bytes = 1 << 20;
    let mut broker = broker(opening, 1);
    talk(&mut with_liar(Lie::EmptyMemory), &mut broker).expect("a conversation");
    let attestation = broker.attestation().expect("an attestation");
    assert_eq!(failures(attestation), [FindingCode::MemoryProof]);
    let proof = attestation
        .findings
        .iter()
        .find(|f| f.code == FindingCode::MemoryProof);
    assert!(
        proof
            .expect("found")
            .note
            .contains("does not hold the pattern")
    );
}

/// Changes messages on their way; the agent's own record of them stays unchanged.
struct Tampering<F>(LocalBroker, F);

impl<F: FnMut(Step, &mut Value)> Transport for Tampering<F> {
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError> {
        let mut message: Value = serde_json::from_str(body).expect("json");
        (self.1)(step, &mut message);
        self.0.send(step, &message.to_string())
    }

    fn is_private(&self) -> bool {
        true
    }
}

fn tampered(change: impl FnMut(Step, &mut Value)) -> Attestation {
    let broker = broker(opening(2, Level::Quick, Mode::Simulation), 1);
    let mut tampering = Tampering(broker, change);
    talk(&mut description(2).node(), &mut tampering).expect("a conversation");
    tampering.0.attestation().expect("an attestation").clone()
}

#[track_caller]
fn assert_caught(attestation: &Attestation, code: FindingCode, word: &str) {
    assert_eq!(attestation.verdict, Verdict::Fail);
    let finding = attestation
        .findings
        .iter()
        .find(|f| f.code == code)
        .expect("found");
    assert_eq!(finding.outcome, Outcome::Failed, "{finding:?}");
    assert!(finding.note.contains(word), "{finding:?}");
}

#[test]
fn a_row_changed_after_the_commitment_is_caught() {
    let attestation = tampered(|step, message| {
        if step == Step::Openings {
            message["gpus"][1]["rows"][0]["values"][3] = 999.into();
        }
    });
    assert_caught(
        &attestation,
        FindingCode::SdcExact,
        "not in the committed tree",
    );
}

#[test]
fn an_element_of_the_check_vector_changed_is_caught() {
    let attestation = tampered(|step, message| {
        if step == Step::Openings {
            message["gpus"][0]["product"][5] = "0000000000000001".into();
        }
    });
    assert_caught(
        &attestation,
        FindingCode::SdcExact,
        "row 5 of the first product is wrong",
    );
}

#[test]
fn blocks_other_than_the_chosen_ones_are_caught() {
    let attestation = tampered(|step, message| {
        if step == Step::Report {
            let blocks = message["blocks"][0].as_array_mut().expect("blocks");
            blocks.truncate(3);
        }
    });
    assert_caught(&attestation, FindingCode::MemoryProof, "other blocks");
}

#[test]
fn a_block_that_is_not_in_the_committed_tree_is_caught() {
    let attestation = tampered(|step, message| {
        if step == Step::Report {
            message["blocks"][1][0]["path"][0] = "0".repeat(64).into();
        }
    });
    assert_caught(
        &attestation,
        FindingCode::MemoryProof,
        "not in the committed tree",
    );
}

#[test]
fn a_block_beside_others_than_in_the_committed_tree_is_caught() {
    for beside in [json!(vec!["0000000000000007"; 15]), json!([])] {
        let attestation = tampered(|step, message| {
            if step == Step::Report {
                message["blocks"][0][0]["beside"] = beside.clone();
            }
        });
        assert_caught(
            &attestation,
            FindingCode::MemoryProof,
            "not in the committed tree",
        );
    }
}

#[test]
fn anything_said_differently_in_the_report_is_caught() {
    let attestation = tampered(|step, message| {
        if step == Step::Roots {
            message["inventory"]["vcpus"] = 1.into();
        }
    });
    assert_caught(&attestation, FindingCode::AgentReport, "differs");
    assert_eq!(failures(&attestation), [FindingCode::AgentReport]);
}

/// Takes the honest report apart, changes it, and signs it again with a chosen key.
fn resigned(
    message: &mut Value,
    signer: &Signer,
    change: impl FnOnce(&mut Header, &mut AgentReport),
) {
    let submission: ReportSubmission = serde_json::from_value(message.clone()).expect("a report");
    let honest = crate::stage::signer().public_key();
    let (mut header, mut report) = honest
        .verify::<AgentReport>(&submission.report, &[DocumentType::Report])
        .expect("an honest report");
    change(&mut header, &mut report);
    message["report"] = signer.sign(&header, &report).expect("signed").into();
}

#[test]
fn a_forged_signature_fails_and_its_bandwidth_does_not_count() {
    let attestation = tampered(|step, message| {
        if step == Step::Report {
            resigned(message, &Signer::from_seed(&[99; 32]), |_, _| {});
        }
    });
    assert_caught(&attestation, FindingCode::AgentSignature, "signature");
    assert_eq!(
        outcome_of(&attestation, FindingCode::MemoryBandwidth),
        Outcome::NotRun
    );
    assert_eq!(
        outcome_of(&attestation, FindingCode::AgentReport),
        Outcome::NotRun
    );
}

#[test]
fn a_stale_nonce_a_foreign_transcript_and_a_retouched_claim_are_caught() {
    type Change = fn(&mut Header, &mut AgentReport);
    let stale = Digest([8; 32]);
    assert_ne!(stale.0, [0; 32]);
    let changes: [(Change, &str); 9] = [
        (
            |header, report| {
                header.nonce = Some(Digest([8; 32]));
                report.nonce = Digest([8; 32]);
            },
            "the nonce",
        ),
        (|header, _| header.nonce = None, "different conversations"),
        (
            |_, report| report.transcript = Digest([8; 32]),
            "the transcript",
        ),
        (
            |_, report| report.gpus[0].checksums[0].0 ^= 1,
            "the checksums",
        ),
        (|_, report| report.gpus[0].bad_words = 4, "the bad words"),
        (
            |_, report| report.gpus[1].allocatable_mib += 1,
            "the memory that could be allocated",
        ),
        (
            |_, report| report.inventory.gpus[0].uuid = "GPU-x".to_owned(),
            "the inventory",
        ),
        (|_, report| drop(report.gpus.pop()), "the number of GPUs"),
        (
            |_, report| drop(report.facts.as_mut().expect("facts").gpus.pop()),
            "that were observed",
        ),
    ];
    for (change, word) in changes {
        let attestation = tampered(|step, message| {
            if step == Step::Report {
                resigned(message, &signer(), change);
            }
        });
        assert_caught(&attestation, FindingCode::AgentReport, word);
    }
}

#[test]
fn the_report_of_an_earlier_conversation_is_caught() {
    let mut earlier = String::new();
    tampered(|step, message| {
        if step == Step::Report {
            earlier = message["report"].as_str().expect("a JWS").to_owned();
        }
    });
    // The same node, the same agent key, another nonce.
    let broker = broker(opening(2, Level::Quick, Mode::Simulation), 2);
    let mut replaying = Tampering(broker, |step, message: &mut Value| {
        if step == Step::Report {
            message["report"] = earlier.clone().into();
        }
    });
    talk(&mut description(2).node(), &mut replaying).expect("a conversation");
    let attestation = replaying.0.attestation().expect("an attestation");
    assert_caught(attestation, FindingCode::AgentReport, "the nonce");
}

#[test]
fn a_reference_device_is_refused_where_hardware_is_real() {
    let mut broker = broker(opening(2, Level::Quick, Mode::Real), 1);
    let refused = talk(&mut description(2).node(), &mut broker).expect_err("a refusal");
    assert!(
        refused.to_string().contains("reference device"),
        "{refused}"
    );
    assert!(broker.session().is_none());
}

/// A reference device that calls itself real, with a broker that accepts only real hardware.
fn disguised(admits_simulation: bool) -> Node {
    let mut node = description(2).node();
    node.kind = DeviceKind::Cuda;
    node.simulated = admits_simulation;
    node
}

fn small_real_order() -> verifier::challenge::Opening {
    opening(2, Level::Quick, Mode::Real)
}

#[test]
fn a_report_that_admits_simulation_fails_where_hardware_is_real_and_stays_simulated() {
    let mut broker = broker(small_real_order(), 1);
    talk(&mut disguised(true), &mut broker).expect("a conversation");
    let attestation = broker.attestation().expect("an attestation");
    assert_caught(attestation, FindingCode::AgentReport, "simulated device");
    assert!(attestation.simulated);
    assert!(!attestation.proves_real_hardware());
}

#[test]
fn nothing_that_comes_out_of_simulation_mode_can_pass_as_real() {
    for admits in [true, false] {
        let mut broker = broker(opening(2, Level::Quick, Mode::Simulation), 1);
        talk(&mut disguised(admits), &mut broker).expect("a conversation");
        let attestation = broker.attestation().expect("an attestation").clone();
        assert!(attestation.simulated, "whatever the agent calls itself");
        assert!(!attestation.proves_real_hardware());
        assert_eq!(
            outcome_of(&attestation, FindingCode::DeviceSimulated),
            Outcome::Noted
        );

        let key = Signer::from_seed(&[77; 32]);
        let jws = countersign(&attestation, "key-1", &key).expect("signed");
        let read = verify_attestation(&jws, &key.public_key()).expect("valid");
        assert!(read.simulated);
    }
}

#[test]
fn a_simulated_attestation_signed_as_a_real_one_is_refused() {
    let attestation = verify(&mut description(2).node());
    let key = Signer::from_seed(&[77; 32]);
    let header = Header::new(DocumentType::Attestation, attestation.verification_id, None);
    let jws = key.sign(&header, &attestation).expect("signed");
    let refused = verify_attestation(&jws, &key.public_key());
    assert!(matches!(refused, Err(JwsError::Header(_))), "{refused:?}");

    let mut retouched = attestation.clone();
    retouched.simulated = false;
    let header = Header::new(
        DocumentType::SimulatedAttestation,
        attestation.verification_id,
        None,
    );
    let jws = key.sign(&header, &retouched).expect("signed");
    assert!(verify_attestation(&jws, &key.public_key()).is_err());
}
