//! The same check again and again, with what was measured: known-good machines so give the figures from which
//! `floors.py` makes floors.

use std::io::Write as _;

use market::attestation::{Attestation, FindingCode};
use market::gpu::Gpu;
use market::verification::{CollectiveRate, Digest, GpuClaim, PairRate, VerificationOrder};
use serde::Serialize;

use super::alone::{Alone, sold_or_ordered, talk_alone};
use super::{OpenGpus, RunArgs, RunError, node, print_error};
use crate::agent::AgentOutcome;
use crate::board::is_switched;
use crate::challenge::Session;
use crate::evidence::Evidence;
use crate::rules::named_gpu;

/// What stands in place of what only one GPU has: the lines are made to be shown.
const LEFT_OUT: &str = "left out";

/// One of several runs: what `verifier run --json` prints, and what was measured.
#[derive(Serialize)]
struct Run {
    /// Its number, from 1.
    run: u32,
    /// The number of runs that were asked for.
    of: u32,
    /// The result, without the ids of the GPUs and the keys of the machine.
    #[serde(flatten)]
    attestation: Attestation,
    measured: Measured,
}

/// The figures by which the rules judge. Units are in their names: `mb_per_s` 1e6 bytes per second, `gflops`
/// 1e9 operations per second, `us` microseconds.
#[derive(Serialize)]
struct Measured {
    /// The driver's version.
    driver: String,
    /// The commit that the agent was built from, where the build said so.
    commit: Option<&'static str>,
    /// The hash of the agent's kernels, as far as it told.
    kernels: Option<Digest>,
    /// Its GPUs, in the driver's order.
    gpus: Vec<GpuFigures>,
    /// Rows, columns and inner dimension of each product of the exact chain.
    exact_chain_product: (u32, u32),
    /// Products of the exact chain that were timed: all but the first.
    exact_chain_products: u32,
    /// The blocks in which memory was hashed. Units: bytes.
    memory_proof_block_bytes: u32,
    /// Whether the rules compare the next two with floors: where a switch joins all GPUs of a node.
    links_have_floors: bool,
    /// Copies from GPU to GPU.
    pairs: Vec<PairRate>,
    /// Collective operations over all of them.
    collectives: Vec<CollectiveRate>,
}

/// The figures of one GPU; absent where a run of this level, or this GPU, has none.
#[derive(Serialize)]
struct GpuFigures {
    /// Its kind, as `broker gpus` names it; none where the catalogue does not know it.
    kind: Option<&'static str>,
    /// The driver's name of it.
    name: String,
    /// Units: MiB.
    memory_mib: u32,
    copy_mb_per_s: Option<i64>,
    read_mb_per_s: Option<i64>,
    triad_mb_per_s: Option<i64>,
    from_host_mb_per_s: Option<i64>,
    to_host_mb_per_s: Option<i64>,
    gemm_16bit_gflops: Option<i64>,
    gemm_fp8_gflops: Option<i64>,
    /// How long it took to hash memory with the tree over it.
    memory_proof_us: Option<u64>,
    /// How much memory that was.
    memory_proof_bytes: Option<u64>,
    /// How long the exact chain took with the trees over its rows.
    exact_chain_us: Option<u64>,
}

/// What the rules compared with floors in a run.
struct Shown<'a> {
    attestation: &'a Attestation,
    evidence: &'a Evidence,
    outcome: Option<&'a AgentOutcome>,
}

impl Shown<'_> {
    /// What a finding says of a GPU.
    fn sample(&self, code: FindingCode, gpu: usize) -> Option<i64> {
        let mut findings = self.attestation.findings.iter();
        let found = findings.find(|found| found.code == code)?;
        found.samples.get(gpu).copied()
    }

    fn gpu(&self, gpu: usize, claim: &GpuClaim) -> GpuFigures {
        let us = |times: fn(&AgentOutcome) -> &Vec<u64>| times(self.outcome?).get(gpu).copied();
        let filled = self.evidence.filled.iter().flatten().nth(gpu);
        GpuFigures {
            kind: named_gpu(claim).map(Gpu::name),
            name: claim.name.clone(),
            memory_mib: claim.memory_mib,
            copy_mb_per_s: self.sample(FindingCode::MemoryBandwidth, gpu),
            read_mb_per_s: self.sample(FindingCode::MemoryRead, gpu),
            triad_mb_per_s: self.sample(FindingCode::MemoryTriad, gpu),
            from_host_mb_per_s: self.sample(FindingCode::HostLinkIn, gpu),
            to_host_mb_per_s: self.sample(FindingCode::HostLinkOut, gpu),
            gemm_16bit_gflops: self.sample(FindingCode::Gemm16Bit, gpu),
            gemm_fp8_gflops: self.sample(FindingCode::GemmFp8, gpu),
            memory_proof_us: us(|outcome| &outcome.proof_us),
            memory_proof_bytes: filled.map(|filled| filled.filled_bytes),
            exact_chain_us: us(|outcome| &outcome.chain_us),
        }
    }

    fn measured(&self, order: &VerificationOrder) -> Measured {
        let inventory = self.attestation.inventory.as_ref();
        let claims = inventory.map_or(&[][..], |inventory| &inventory.gpus);
        let report = self.evidence.report.as_ref();
        let facts = report.and_then(|report| report.facts.as_deref());
        let gpu = order.expected.gpu;
        Measured {
            driver: inventory.map_or_else(String::new, |inventory| inventory.driver.clone()),
            commit: option_env!("AGENT_COMMIT").filter(|commit| !commit.is_empty()),
            kernels: self.attestation.kernels,
            gpus: (0..).zip(claims).map(|(at, of)| self.gpu(at, of)).collect(),
            exact_chain_product: (order.gemm.n, order.gemm.k),
            exact_chain_products: order.gemm.links - 1,
            memory_proof_block_bytes: order.memory.block_bytes,
            links_have_floors: is_switched(gpu.spec(), order.expected.gpus),
            pairs: facts.and_then(|f| f.pairs.clone()).unwrap_or_default(),
            collectives: facts.map_or_else(Vec::new, |facts| facts.collectives.clone()),
        }
    }
}

impl Run {
    /// The run that a conversation was. One that broke off is judged by what is known of it.
    fn of((run, of): (u32, u32), alone: Alone) -> Self {
        let Alone {
            order,
            broker,
            outcome,
        } = alone;
        let evidence = broker.session().map(Session::evidence).cloned();
        let mut attestation = broker.into_attestation();
        let shown = Shown {
            attestation: &attestation,
            evidence: &evidence.unwrap_or_default(),
            outcome: outcome.as_ref().ok(),
        };
        let measured = shown.measured(&order);
        if let Some(inventory) = &mut attestation.inventory {
            for gpu in &mut inventory.gpus {
                LEFT_OUT.clone_into(&mut gpu.uuid);
            }
            inventory.ssh_host_keys.clear();
        }
        Self {
            run,
            of,
            attestation,
            measured,
        }
    }
}

/// Checks this machine so many times, its GPUs opened again for each, and prints a line for each run. Gives
/// whether all of them passed.
///
/// Errors: [`RunError`] where no run could begin; of a later one the error is printed and counts as a run that
/// did not pass.
pub(super) fn check_repeatedly(
    args: &RunArgs,
    runs: u32,
    open: OpenGpus,
) -> Result<bool, RunError> {
    let mut passed = true;
    for run in 1..=runs {
        let begun = || talk_alone(&mut node(args, open)?, sold_or_ordered(args)?);
        let alone = match begun() {
            Ok(alone) => alone,
            Err(error) if run == 1 => return Err(error),
            Err(error) => {
                print_error(&error);
                return Ok(false);
            }
        };
        if let Err(broke_off) = &alone.outcome {
            print_error(broke_off);
        }
        let done = Run::of((run, runs), alone);
        let line = serde_json::to_string(&done).map_err(RunError::Output)?;
        if let Err(error) = writeln!(std::io::stdout(), "{line}") {
            eprintln!("the runs cannot be printed: {error}");
            return Ok(false);
        }
        passed &= done.attestation.verdict.is_pass();
    }
    Ok(passed)
}
