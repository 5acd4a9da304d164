//! The inputs of a rule, and how answers about single GPUs become one finding.

use market::attestation::{Finding, FindingCode, Outcome, Weight};
use market::gpu::GpuSpec;
use market::verification::{GpuFacts, HostLink, LoggedXid, NodeFacts, VerificationOrder, XidEvent};

use super::{finding, not_run, told, told_by};
use crate::board;
use crate::evidence::{Evidence, ReportEvidence};
use crate::floors::{Calibration, Floor, Floors, Metric};

/// The lease, the evidence on the node, and the floors.
pub(super) struct Seen<'a> {
    pub(super) evidence: &'a Evidence,
    pub(super) order: &'a VerificationOrder,
    pub(super) spec: &'static GpuSpec,
    floors: &'a Floors,
}

/// The state of one GPU.
pub(super) enum Sight {
    /// As it should be.
    Good,
    /// Accepted, with something to watch.
    Odd(String),
    /// Not as it should be.
    Bad(String),
    /// The driver does not report it.
    Unseen,
}

impl<'a> Seen<'a> {
    pub(super) fn new(
        evidence: &'a Evidence,
        order: &'a VerificationOrder,
        floors: &'a Floors,
    ) -> Self {
        Self {
            evidence,
            order,
            spec: order.expected.gpu.spec(),
            floors,
        }
    }

    /// The report, where it is signed by the committed key.
    pub(super) fn report(&self) -> Option<&'a ReportEvidence> {
        self.evidence
            .report
            .as_ref()
            .filter(|report| report.is_signed())
    }

    /// Observations beyond the conversation.
    pub(super) fn facts(&self) -> Option<&'a NodeFacts> {
        self.report()?.facts.as_deref()
    }

    /// The errors (XID) that the driver reported for its GPUs while the agent ran: those that the agent
    /// received, and those only in the kernel's log.
    pub(super) fn xids(&self) -> Vec<XidEvent> {
        let Some(facts) = self.facts() else {
            return Vec::new();
        };
        let mut events = facts.xids.clone().unwrap_or_default();
        for event in events_of(facts, &facts.xids_logged) {
            if !events.contains(&event) {
                events.push(event);
            }
        }
        events
    }

    /// The recovery actions that the driver logged for its GPUs (XID 154), in its words, in the order of the
    /// log while the agent ran.
    pub(super) fn needs(&self) -> Vec<(u32, &'a str)> {
        self.facts()
            .map_or_else(Vec::new, |facts| needs_of(facts, &facts.xids_logged))
    }

    /// As [`Self::needs`], from the kernel's log before.
    pub(super) fn needed_before(&self) -> Vec<(u32, &'a str)> {
        self.facts()
            .map_or_else(Vec::new, |facts| needs_of(facts, &facts.xid_history))
    }

    /// The errors of its GPUs in the kernel's log before.
    pub(super) fn xids_before(&self) -> Vec<XidEvent> {
        let facts = self.facts();
        facts.map_or_else(Vec::new, |facts| events_of(facts, &facts.xid_history))
    }

    /// GPUs that were leased with this node.
    pub(super) const fn gpus(&self) -> usize {
        self.order.expected.gpus as usize
    }

    /// The floor of a figure of the leased GPU, for the kernels that measured; for its host link, in the
    /// node's slots.
    pub(super) fn floor(&self, metric: Metric) -> Option<Floor> {
        let kernels = self.facts().and_then(|facts| facts.kernels.as_ref());
        let floor = self.floors.of(self.order.expected.gpu, metric, kernels)?;
        match self.older_slots().filter(|_| metric == Metric::HostLink) {
            Some(generation) => floor.in_slot(generation),
            None => Some(floor),
        }
    }

    /// Whether a GPU has all of its lanes at the PCI Express generation before its own, as in a slot of that
    /// generation: nothing is broken then.
    pub(super) fn is_in_older_slot(&self, link: HostLink) -> bool {
        let own = self.spec.pcie_gen.as_deref();
        let before = own.and_then(|own| own.parse::<u32>().ok()?.checked_sub(1));
        before == Some(link.generation) && Some(link.width) >= self.spec.pcie_lanes
    }

    /// The generation of the node's slots, where all of its GPUs are in older ones.
    pub(super) fn older_slots(&self) -> Option<u32> {
        let gpus = &self.facts()?.gpus;
        let is_older = |gpu: &GpuFacts| {
            gpu.host_link
                .is_some_and(|link| self.is_in_older_slot(link))
        };
        let all = gpus.iter().all(is_older);
        gpus.first()?
            .host_link
            .map(|link| link.generation)
            .filter(|_| all)
    }

    /// Whether the kernels that measured ran on a known-good card of the leased kind.
    pub(super) fn is_calibrated(&self, metric: Metric) -> bool {
        let floor = self.floor(metric);
        floor.is_some_and(|floor| floor.calibration == Calibration::Calibrated)
    }

    /// The memory that a GPU of the inventory should report: that of its kind, or 15/16 of it where ECC is on
    /// although the kind ships with it off, since the codes take part of the memory (`inv.ecc_mode` warns of
    /// it). Before the report this is unknown, and the lower value applies. Units: MiB.
    pub(super) fn memory_mib(&self, gpu: usize) -> u64 {
        let whole = u64::from(self.order.expected.memory_mib);
        let may_correct = self.facts().is_none_or(|facts| {
            facts
                .gpus
                .get(gpu)
                .is_some_and(|gpu| gpu.ecc_enabled == Some(true))
        });
        match self.spec.ecc_default.as_deref() {
            Some("off") if may_correct => whole / 16 * 15,
            _ => whole,
        }
    }

    /// Whether a switch joins all GPUs of the node at the full rate of their links.
    pub(super) fn is_switched(&self) -> bool {
        board::is_switched(self.spec, self.order.expected.gpus)
    }

    /// Whether NVLink joins all GPUs of the node.
    pub(super) fn has_gpu_links(&self) -> bool {
        board::has_gpu_links(self.spec, self.order.expected.gpus)
    }

    /// A finding from each GPU's state: the worst counts.
    pub(super) fn each_gpu(
        &self,
        code: FindingCode,
        good: &str,
        look: impl Fn(&GpuFacts) -> Sight,
    ) -> Finding {
        let Some(facts) = self.facts().filter(|facts| !facts.gpus.is_empty()) else {
            return not_run(code);
        };
        let (mut odd, mut bad, mut unseen) = (Vec::new(), Vec::new(), Vec::new());
        for (gpu, facts) in facts.gpus.iter().enumerate() {
            match look(facts) {
                Sight::Good => {}
                Sight::Odd(what) => odd.push(format!("GPU {gpu}: {what}")),
                Sight::Bad(what) => bad.push(format!("GPU {gpu}: {what}")),
                Sight::Unseen => unseen.push(gpu.to_string()),
            }
        }
        if !bad.is_empty() {
            return finding(code, Outcome::Failed, format!("{}.", told(&bad)));
        }
        if !unseen.is_empty() {
            let note = format!(
                "The driver does not report it for GPU {}.",
                told_by(", ", &unseen)
            );
            return finding(code, Outcome::NotRun, note);
        }
        match odd.is_empty() {
            true => finding(code, Outcome::Met, good),
            false => finding(code, Outcome::Warned, format!("{}.", told(&odd))),
        }
    }
}

/// The recovery actions that the driver logged for the node's GPUs, in its words.
fn needs_of<'a>(facts: &NodeFacts, logged: &'a [LoggedXid]) -> Vec<(u32, &'a str)> {
    let needs = |error: &'a LoggedXid| Some((gpu_of(facts, error)?, error.action.as_deref()?));
    logged.iter().filter_map(needs).collect()
}

/// Errors in the kernel's log as those of the node's GPUs; others belong to another tenant's.
fn events_of(facts: &NodeFacts, logged: &[LoggedXid]) -> Vec<XidEvent> {
    let of = |error: &LoggedXid| {
        Some(XidEvent {
            gpu: Some(gpu_of(facts, error)?),
            xid: error.xid,
        })
    };
    logged.iter().filter_map(of).collect()
}

/// The GPU of the node to which an error in the kernel's log belongs.
fn gpu_of(facts: &NodeFacts, error: &LoggedXid) -> Option<u32> {
    let at = place(&error.bus_id)?;
    let is_there = |gpu: &GpuFacts| gpu.bus_id.as_deref().and_then(place) == Some(at);
    u32::try_from(facts.gpus.iter().position(is_there)?).ok()
}

/// Domain, bus and device of `0000:01:00` or `00000000:01:00.0`.
fn place(bus_id: &str) -> Option<[u32; 3]> {
    let mut parts = bus_id
        .split([':', '.'])
        .map(|hex| u32::from_str_radix(hex, 16));
    let mut next = || parts.next()?.ok();
    Some([next()?, next()?, next()?])
}

/// A check that does not apply to this node: it is reported, and decides nothing.
pub(super) fn not_applicable(code: FindingCode, why: &str) -> Finding {
    finding(code, Outcome::Noted, why)
}

/// A check with an implausible answer: it was not run, and leaves the verdict open also where its weight is
/// `may`.
pub(super) fn unbelievable(code: FindingCode, note: String) -> Finding {
    Finding {
        weight: Weight::Must,
        ..finding(code, Outcome::NotRun, note)
    }
}
