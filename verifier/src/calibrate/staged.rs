//! How faults are staged: by other processes on the same card, by a library before the driver's, by
//! an agent that was changed. The other processes are those by which the agent drives a GPU.

mod guests;
mod patched;
mod shim;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use market::attestation::Attestation;
use market::verification::{GpuClaim, Level, VerificationOrder};

use super::Size;
use super::trials::{Staged, Trial};
use crate::cli::{Against, run_alone};
use crate::deadlines;
use crate::device::Node;
use crate::driver::{NodeIdentity, open_node};
use crate::order::{Mode, expected_node, order_for};
use crate::rules::named_gpu;
use guests::Guests;
use patched::Patch;

/// Where runs take place.
pub struct Stage<'a> {
    /// The agent's own file.
    pub agent: &'a Path,
    /// The node.
    pub identity: NodeIdentity,
    /// What its GPUs claim to be.
    pub claims: Vec<GpuClaim>,
    /// GPUs that were given up and take no part, by their numbers.
    pub left_out: Vec<u32>,
    /// How much is done.
    pub size: Size,
    /// Where the order and the library that lies are written.
    pub folder: PathBuf,
}

impl Stage<'_> {
    /// Makes one more run with the same thing staged. Gives whether it came to its end.
    pub fn add_run(&self, trial: &mut Trial) -> bool {
        let began = Instant::now();
        let ended = self.run(trial.staged, trial.level);
        let elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let why = match ended {
            Ok((attestation, guests_mb_per_s)) => {
                trial.guests_mb_per_s.extend(guests_mb_per_s);
                trial.count(&attestation, elapsed_ms);
                None
            }
            Err(why) => Some(why),
        };
        trial.not_staged = why;
        trial.not_staged.is_none()
    }

    /// The GPUs that take part, with their numbers.
    fn gpus(&self) -> Vec<(u32, &GpuClaim)> {
        let all = (0..).zip(&self.claims);
        all.filter(|(gpu, _)| !self.left_out.contains(gpu))
            .collect()
    }

    /// A run, and how fast those streamed meanwhile who were to. Units: 1e6 bytes per second.
    fn run(&self, staged: Staged, level: Level) -> Result<(Attestation, Vec<u64>), String> {
        let order = self.order(level)?;
        let mut guests_mb_per_s = Vec::new();
        let attestation = match staged {
            Staged::Nothing if self.left_out.is_empty() => self.unmodified(&order, None),
            Staged::Nothing => alone(&mut self.open()?, order),
            Staged::PreloadedShim if !self.left_out.is_empty() => {
                Err("it stands before the agent as anybody starts it, with all GPUs".to_owned())
            }
            Staged::PreloadedShim => self.unmodified(&order, Some(&shim::build(&self.folder)?)),
            Staged::BandwidthHogs => {
                let mut node = self.open()?;
                let hogs = Guests::streaming(self.agent, &self.identity.root, &self.gpus())?;
                let attestation = alone(&mut node, patched::beside_others(order));
                guests_mb_per_s = hogs.rates();
                attestation
            }
            Staged::MemoryHeld => {
                let _holders = Guests::holding(self.agent, &self.identity.root, &self.gpus())?;
                alone(&mut self.open()?, order)
            }
            Staged::OnePosesAsTwo => {
                let mut node =
                    patched::posing(self.open()?, self.agent, &self.identity.root, &self.gpus())?;
                alone(&mut node, patched::for_twice_the_gpus(order))
            }
            Staged::WorkShrunk => {
                let mut node = patched::patched(self.open()?, Patch::HalvesWork);
                alone(&mut node, order)
            }
            Staged::MemoryInvented => {
                let mut node = patched::patched(self.open()?, Patch::InventsMemory);
                alone(&mut node, patched::for_more_memory(order))
            }
        }?;
        Ok((attestation, guests_mb_per_s))
    }

    /// What is ordered of the node: what its level wants, or as much less as the sizes say.
    fn order(&self, level: Level) -> Result<VerificationOrder, String> {
        let gpus = self.gpus();
        let named = gpus.first().and_then(|(_, claim)| named_gpu(claim));
        let gpu = named.ok_or("the catalogue knows no GPU of this name")?;
        // No node has so many.
        let mut expected = expected_node(gpu, gpus.len() as u32);
        let most_mib = u32::try_from(self.size.memory_bytes >> 20).unwrap_or(u32::MAX);
        expected.memory_mib = expected.memory_mib.min(most_mib);
        let mut order = order_for(expected, 0, level, Mode::Real);
        order.gemm.n = order.gemm.n.min(self.size.n);
        order.gemm.k = order.gemm.k.min(self.size.n);
        order.bandwidth.samples = order.bandwidth.samples.min(self.size.samples);
        if !self.size.is_full() {
            // The command is tried out, on whatever plays the GPUs: limits of real ones prove nothing there.
            order.deadlines = deadlines::simulated(level);
        }
        Ok(order)
    }

    fn open(&self) -> Result<Node, String> {
        let node = open_node(self.agent, self.identity.clone()).map_err(|why| why.to_string())?;
        Ok(patched::without(node, &self.left_out))
    }

    /// Starts the agent as anybody would, perhaps with a library before all others.
    fn unmodified(
        &self,
        order: &VerificationOrder,
        preloaded: Option<&Path>,
    ) -> Result<Attestation, String> {
        let path = self.folder.join("order.json");
        let text = serde_json::to_string(order).map_err(|why| why.to_string())?;
        std::fs::write(&path, text).map_err(|why| format!("cannot write an order: {why}"))?;
        let mut command = Command::new(self.agent);
        command.args(["run", "--json", "--order"]).arg(path);
        if let Some(library) = preloaded {
            command.env("LD_PRELOAD", library);
        }
        let output = command.output();
        let output = output.map_err(|why| format!("the agent does not start: {why}"))?;
        serde_json::from_slice(&output.stdout)
            .map_err(|_| String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

fn alone(node: &mut Node, order: VerificationOrder) -> Result<Attestation, String> {
    run_alone(node, Against::Order(Box::new(order))).map_err(|why| why.to_string())
}
