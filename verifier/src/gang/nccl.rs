//! Whether the GPUs of all nodes of a gang sum up by NCCL, and in which rounds: the first node makes what
//! they find each other by, then all join. The process that made it must be one of those that join, and so
//! it is handed on only where it leads to that node (`nccl_id`).

use market::verification::{Measure, NcclId, NcclPart, NcclSum, Shown};

use super::nccl_id::leads_to_one_of;
use super::{CallRefused, Gang, judge};

/// The least that is summed, however slow the links. Units: bytes.
const LEAST_BYTES: u64 = 1 << 20;
/// Payloads are multiples of this. Units: bytes.
const UNIT_BYTES: u64 = 16;
/// The slowest link carries a payload in one second divided by this: with what an algorithm moves more
/// than once, all repeats together end within a round.
const OF_A_SECOND: u64 = 2;

/// Which nodes of a gang have NCCL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Library {
    /// None of them, or no agent that says so, or a gang that was begun before it was asked.
    Nowhere,
    /// Some, but not this one.
    Missing(usize),
    /// All, but this one another than the first.
    Unlike(usize),
    /// All the same, but this one brings another number of GPUs than was sold.
    Unsold(usize),
    /// All of them the same.
    Everywhere(u32),
}

/// A version as its maker writes it.
pub(crate) fn version_words(version: u32) -> String {
    // Source: NCCL documentation, ncclGetVersion: NCCL_VERSION, whose first form ended with 2.8.
    let unit = match version {
        0..10_000 => 10,
        _ => 100,
    };
    let (major, minor) = (version / 100 / unit, version / 100 % unit);
    format!("{major}.{minor}.{}", version % 100)
}

/// Refuses what no node brings.
pub(super) fn check_part(part: Option<NcclPart>) -> Result<(), CallRefused> {
    let fits =
        |part: NcclPart| (1..1_000_000).contains(&part.version) && (1..=64).contains(&part.gpus);
    match part.is_none_or(fits) {
        true => Ok(()),
        false => Err(CallRefused::Malformed(
            "a node brings 1 to 64 GPUs and a version of NCCL",
        )),
    }
}

impl Gang {
    /// Which nodes have NCCL. It joins no nodes whose versions differ in whatever part.
    pub(super) fn nccl(&self) -> Library {
        let of = |node: usize| self.seen[node].nccl.map(|part| part.version);
        let nodes = 0..self.seen.len();
        if self.work.nccl_bytes == 0 || nodes.clone().all(|node| of(node).is_none()) {
            return Library::Nowhere;
        }
        if let Some(node) = nodes.clone().find(|node| of(*node).is_none()) {
            return Library::Missing(node);
        }
        if let Some(node) = nodes.clone().find(|node| of(*node) != of(0)) {
            return Library::Unlike(node);
        }
        let gpus = |node: usize| self.seen[node].nccl.map(|part| part.gpus);
        let is_unsold = |node: &usize| self.gpus_sold.is_some() && gpus(*node) != self.gpus_sold;
        match (nodes.into_iter().find(is_unsold), of(0)) {
            (Some(node), _) => Library::Unsold(node),
            (None, Some(version)) => Library::Everywhere(version),
            (None, None) => Library::Nowhere,
        }
    }

    /// How many rounds that takes.
    pub(super) fn nccl_rounds(&self) -> u32 {
        match self.nccl() {
            Library::Everywhere(_) => 2,
            Library::Nowhere | Library::Missing(_) | Library::Unlike(_) | Library::Unsold(_) => 0,
        }
    }

    /// The round in which the first node makes what the GPUs find each other by; in the next one all sum.
    pub(super) fn nccl_round(&self) -> u32 {
        self.ring_round() + 1
    }

    /// How many GPUs all nodes bring.
    pub(super) fn ranks(&self) -> u32 {
        self.parts().map(|part| part.gpus).sum()
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = NcclPart> {
        self.seen.iter().filter_map(|seen| seen.nccl)
    }

    /// Whether a round before could not be done: those that follow would only be waited for.
    pub(super) fn failed_before_nccl(&self) -> bool {
        let before = self.nccl_round() as usize;
        let shown = self
            .seen
            .iter()
            .flat_map(|seen| seen.shown.iter().take(before));
        shown
            .flatten()
            .any(|shown| matches!(shown, Shown::Failed { .. }))
    }

    /// Whether a node has something to do in a round of these.
    pub(super) fn is_busy_with_nccl(&self, node: usize, round: u32) -> bool {
        match round == self.nccl_round() {
            true => node == 0 && !self.failed_before_nccl(),
            false => self.nccl_id().is_some(),
        }
    }

    /// What all find each other by.
    fn nccl_id(&self) -> Option<NcclId> {
        self.shown_id().filter(|id| self.leads_to_the_first(id))
    }

    /// Whether the first node would lead the others elsewhere than to itself.
    pub(super) fn would_mislead(&self) -> bool {
        self.shown_id()
            .is_some_and(|id| !self.leads_to_the_first(&id))
    }

    fn shown_id(&self) -> Option<NcclId> {
        match self.seen[0].shown.get(self.nccl_round() as usize) {
            Some(Some(Shown::NcclId { id })) => Some(*id),
            _ => None,
        }
    }

    fn leads_to_the_first(&self, id: &NcclId) -> bool {
        leads_to_one_of(id, &self.seen[0].rails)
    }

    /// What a node measures in a round of these.
    pub(super) fn nccl_measure(&self, node: usize, round: u32) -> Option<Measure> {
        if round == self.nccl_round() {
            return Some(Measure::NcclId);
        }
        let before = self.seen[..node].iter().filter_map(|seen| seen.nccl);
        Some(Measure::NcclSum(Box::new(NcclSum {
            id: self.nccl_id()?,
            ranks: self.ranks(),
            first_rank: before.map(|part| part.gpus).sum(),
            gpus: self.seen[node].nccl?.gpus,
            bytes: self.nccl_bytes(),
            warm_ups: self.work.nccl_warm_ups,
            repeats: self.work.nccl_repeats,
        })))
    }

    /// Whether each GPU brings as much as is summed where nothing is slow.
    pub(super) fn is_whole_nccl_payload(&self) -> bool {
        self.nccl_bytes() == self.work.nccl_bytes / UNIT_BYTES * UNIT_BYTES
    }

    /// The payload of each GPU: on slow links as much less as lets all repeats end within a round.
    pub(super) fn nccl_bytes(&self) -> u64 {
        let slowest_mb_per_s = judge::slowest_mb_per_s(self).unwrap_or(0);
        let carried = slowest_mb_per_s.saturating_mul(1_000_000) / OF_A_SECOND;
        let bytes = carried.max(LEAST_BYTES).min(self.work.nccl_bytes);
        bytes / UNIT_BYTES * UNIT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_reads_as_its_maker_writes_it() {
        assert_eq!(version_words(22_809), "2.28.9");
        assert_eq!(version_words(2_804), "2.8.4");
    }
}
