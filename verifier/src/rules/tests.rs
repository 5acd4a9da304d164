mod among_others;
mod cases;
mod changes;
mod extreme;
mod fires;
mod history;
mod host;
mod identity;
mod links;
mod memory;
mod needs;
mod quarantine;
mod recheck;
mod siblings;
mod slots;
mod software;
mod told;
mod verdicts;
mod xids;

use chrono::{DateTime, TimeDelta};
use market::attestation::{Unit, Weight};
use market::fabric::Internode;
use market::gpu::Gpu;
use market::ids::{OfferId, ProviderId};
use market::offer::Tenancy;
use market::verification::{
    DiagnosticEnd, DiagnosticFacts, DiagnosticResult, DiagnosticTest, Digest, Filled, GpuClaim,
    GpuFacts, Inventory, Level, NodeFacts, Step, StorageFacts, StoragePromise, Trouble,
    TroubleKind, Word64,
};

use super::*;
use crate::evidence::{History, Listing, MemoryEvidence, ReportEvidence, StepTime};
use crate::order::{Mode, expected_node, order_for};
use crate::pretend::{self, Kind, SeededRng};

const GPUS: u32 = 8;

fn kind() -> Kind {
    Kind {
        gpu: Gpu::parse("H100-SXM").expect("known"),
        gpus: GPUS,
        vcpus: 208,
        memory_gib: 1_800,
        internode: Internode::InfinibandNdr400,
    }
}

/// The order for a node like the good one.
fn order_at(level: Level) -> VerificationOrder {
    let kind = kind();
    let mut expected = expected_node(kind.gpu, kind.gpus);
    expected.vcpus = Some(kind.vcpus);
    expected.memory_gib = Some(kind.memory_gib);
    expected.tenancy = Some(Tenancy::BareMetal);
    expected.internode = Some(kind.internode);
    expected.storage = Some(StoragePromise {
        read_bytes_per_s: Some(6_000_000_000),
        write_bytes_per_s: Some(3_000_000_000),
    });
    order_for(expected, 0, level, Mode::Real)
}

fn order() -> VerificationOrder {
    order_at(Level::Standard)
}

fn claim(index: u32) -> GpuClaim {
    GpuClaim {
        name: "NVIDIA H100 80GB HBM3".to_owned(),
        uuid: format!("GPU-{index}"),
        memory_mib: 81_559,
        sm_count: Some(132),
    }
}

/// The evidence of a good node.
fn good() -> Evidence {
    let kind = kind();
    let inventory = Inventory {
        driver: "580.65.06".to_owned(),
        vcpus: kind.vcpus,
        memory_gib: kind.memory_gib,
        internode: kind.internode,
        gpus: (0..GPUS).map(claim).collect(),
        nics: Vec::new(),
        ssh_host_keys: Vec::new(),
    };
    let memory = MemoryEvidence {
        bad_words: 0,
        lowest_bad_offset: None,
        root: Digest([0; 32]),
        problem: None,
        unopened: false,
    };
    let filled = Filled {
        allocatable_mib: 80_900,
        filled_bytes: order().memory.pattern_bytes,
    };
    let count = GPUS as usize;
    let mut shown = shown(&kind);
    for gpu in &mut shown.gpus {
        // The integer units' result for the same, too.
        gpu.gemm_16bit_sums = vec![Word64(5)];
        gpu.gemm_16bit_common_sum = Some(Word64(6));
    }
    Evidence {
        inventory: Some(inventory),
        product_roots: vec![Digest([0; 32]); count],
        checksums: vec![vec![Word64(5); order().gemm.iterations as usize]; count],
        products: Some(vec![None; count]),
        filled: Some(vec![filled; count]),
        memory_roots: vec![Digest([0; 32]); count],
        memory: Some(vec![memory; count]),
        report: Some(ReportEvidence {
            digest: Digest([0; 32]),
            signature_problem: None,
            content_problem: None,
            simulated: false,
            copy_mb_per_s: vec![vec![2_990_000, 3_010_000]; count],
            facts: Some(Box::new(shown)),
            troubles: Vec::new(),
        }),
        siblings: Vec::new(),
        pinned: None,
        history: Some(unseen()),
        apart: None,
        known_at: None,
        reported_at: Some(DateTime::UNIX_EPOCH + TimeDelta::seconds(1_790_000_000)),
        times: Step::ALL[1..].iter().map(|step| in_time(*step)).collect(),
    }
}

/// A step that was answered in time, also one that runs `deep`'s patterns for their full time.
fn in_time(step: Step) -> StepTime {
    let (elapsed_ms, deadline_ms) = match step {
        Step::Fill => (1_210_000, 1_300_000),
        _ => (10, 60_000),
    };
    StepTime {
        step,
        elapsed_ms,
        deadline_ms,
    }
}

/// The facts of a good node with the vendor's diagnostic and storage with a promised rate.
fn shown(kind: &Kind) -> NodeFacts {
    let passed = DiagnosticTest {
        name: "Inforom".to_owned(),
        result: DiagnosticResult::Passed,
        gpu: None,
        detail: None,
    };
    let mut shown = pretend::node(kind, &mut SeededRng::new(b"good"));
    shown.host.clock_ms = Some(1_790_000_000_000);
    NodeFacts {
        diagnostic: Some(DiagnosticFacts {
            ended: DiagnosticEnd::Done,
            why: None,
            tests: vec![passed; 3],
        }),
        storage: Some(StorageFacts {
            direct: true,
            bytes: 8 << 30,
            read_mb_per_s: 5_500,
            write_mb_per_s: 2_800,
        }),
        ..shown
    }
}

/// The node's listing.
fn listing() -> Listing {
    Listing {
        provider: ProviderId::parse("lambda").expect("a provider"),
        offer: OfferId::of_identity(&["lambda", "gpu_8x"]),
        of_peers: false,
    }
}

/// None of its GPUs was seen in another lease.
fn unseen() -> History {
    History {
        listing: listing(),
        seen: Vec::new(),
    }
}

/// The findings after a change, and the verdict.
fn judged(change: impl FnOnce(&mut Evidence)) -> (Vec<Finding>, Verdict) {
    let mut evidence = good();
    change(&mut evidence);
    let findings = findings(&evidence, &order(), false);
    let verdict = verdict(&findings);
    (findings, verdict)
}

/// The findings that are neither met nor noted after a change, with their outcomes, and the verdict.
fn after(change: impl FnOnce(&mut Evidence)) -> (Vec<(FindingCode, Outcome)>, Verdict) {
    let (findings, verdict) = judged(change);
    let unmet = findings
        .iter()
        .filter(|finding| !matches!(finding.outcome, Outcome::Met | Outcome::Noted));
    let unmet = unmet.map(|finding| (finding.code, finding.outcome));
    (unmet.collect(), verdict)
}

fn claims(evidence: &mut Evidence) -> &mut Vec<GpuClaim> {
    &mut evidence.inventory.as_mut().expect("an inventory").gpus
}

fn memory(evidence: &mut Evidence) -> &mut Vec<MemoryEvidence> {
    evidence.memory.as_mut().expect("memory")
}

fn report(evidence: &mut Evidence) -> &mut ReportEvidence {
    evidence.report.as_mut().expect("a report")
}

fn facts(evidence: &mut Evidence) -> &mut NodeFacts {
    report(evidence).facts.as_mut().expect("facts")
}

fn gpu(evidence: &mut Evidence, index: usize) -> &mut GpuFacts {
    &mut facts(evidence).gpus[index]
}

fn stop(evidence: &mut Evidence, kind: TroubleKind) {
    report(evidence).troubles = vec![Trouble {
        gpu: Some(3),
        step: Step::Fill,
        kind,
        detail: "the driver's words".to_owned(),
    }];
}

/// The checks of some level; those of a gang are separate.
fn of_one_node() -> Vec<FindingCode> {
    let codes = FindingCode::ALL.iter().copied();
    codes
        .filter(|code| levels::demand(*code, Level::Deep) != levels::Demand::No)
        .collect()
}
