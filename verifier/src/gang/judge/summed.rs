//! One sum by NCCL of the nodes that met for it: its wrong words, the reasons why nodes failed, and its rate.

use std::collections::BTreeMap;

use market::verification::{CollectiveAlgorithm, Shown};

use super::{repeats, shown};
use crate::gang::Gang;
use crate::gang::nccl::Meeting;
use crate::median;
use crate::order::Mode;
use crate::plain::plain;
use crate::rules::share;

/// Share of the rate of a ring over adapters at their wire rate below which the fabric is slow. Units:
/// percent. Source: 0.74 was seen on a good gang of four nodes.
const WIRE_PERCENT: u64 = 70;

/// A sum that was requested of nodes.
pub(super) struct Summed<'a> {
    gang: &'a Gang,
    pub(super) meeting: Meeting,
    /// Each GPU's contribution, and the one that it makes where no link is slow. Units: bytes.
    bytes: (u64, u64),
    /// How often they sum.
    repeats: u32,
}

/// The rate of a sum. Units: 1e6 bytes per second.
pub(super) struct Rate {
    /// As NCCL's own tests count it.
    pub(super) bus: u64,
    /// What any algorithm must carry from node to node, for each GPU.
    pub(super) carried: u64,
    /// The part of that for a ring over adapters of the sold wire rate; none where that is not known.
    pub(super) expected: Option<u64>,
    /// How long each repeat took the slowest node, microseconds.
    pub(super) repeats_us: Vec<u64>,
}

impl Rate {
    /// The floor for the carried rate, from the adapters that were sold.
    pub(super) fn floor(&self) -> Option<u64> {
        self.expected
            .map(|expected| share(expected, WIRE_PERCENT, 100))
    }
}

impl<'a> Summed<'a> {
    /// The sum of all nodes.
    pub(super) fn of_all(gang: &'a Gang) -> Self {
        Self {
            gang,
            meeting: gang.meeting_of_all(),
            bytes: (gang.nccl_bytes(), gang.work.nccl_bytes),
            repeats: gang.work.nccl_repeats,
        }
    }

    /// The sums of two nodes each, in the order of their rounds.
    pub(super) fn of_pairs(gang: &'a Gang) -> Vec<Self> {
        let of_pair = |meeting| Self {
            gang,
            meeting,
            bytes: (gang.nccl_pair_bytes(), gang.work.nccl_pair_bytes),
            repeats: gang.work.nccl_pair_repeats,
        };
        let meetings = gang.meetings_of_pairs().into_iter();
        meetings.map(of_pair).collect()
    }

    /// The first two of its nodes; for a pair, both.
    pub(super) fn pair(&self) -> (usize, usize) {
        let nodes = &self.meeting.nodes;
        (nodes[0], nodes[nodes.len().min(2) - 1])
    }

    /// Each GPU's contribution, and the algorithm that NCCL was left to choose.
    pub(super) fn payload(&self) -> String {
        const KIB: u64 = 1 << 10;
        let (bytes, _) = self.bytes;
        let (amount, unit) = match bytes {
            _ if bytes.is_multiple_of(KIB * KIB) => (bytes / KIB / KIB, "MiB"),
            _ if bytes.is_multiple_of(KIB) => (bytes / KIB, "KiB"),
            _ => (bytes, "bytes"),
        };
        format!("{amount} {unit} of each GPU (nccl_default)")
    }

    /// How many GPUs take part.
    pub(super) fn ranks(&self) -> u32 {
        self.gang.ranks(&self.meeting)
    }

    fn shown(&self, node: usize, round: u32) -> Option<&Shown> {
        shown(&self.gang.seen[node], round as usize)
    }

    /// Wrong words of each node that has a sum.
    pub(super) fn wrong_words(&self) -> Vec<(usize, u64)> {
        let of_node = |node: &usize| match self.shown(*node, self.meeting.sum_round()) {
            Some(Shown::NcclSum { wrong_words, .. }) => Some((*node, *wrong_words)),
            _ => None,
        };
        self.meeting.nodes.iter().filter_map(of_node).collect()
    }

    /// The reasons why nodes did not sum, and which nodes. One failure leaves the others waiting, so each
    /// reason is reported.
    pub(super) fn reasons(&self) -> BTreeMap<String, Vec<usize>> {
        let mut reasons: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for node in self.meeting.nodes.iter().copied() {
            if let Some(why) = self.reason(node) {
                reasons.entry(why).or_default().push(node);
            }
        }
        reasons
    }

    fn reason(&self, node: usize) -> Option<String> {
        let asked = self.gang.seen[node].nccl.map(|part| part.gpus);
        let sum_round = self.meeting.sum_round();
        match (self.shown(node, sum_round - 1), self.shown(node, sum_round)) {
            (Some(Shown::Failed { why }), _) | (_, Some(Shown::Failed { why })) => Some(plain(why)),
            (None | Some(Shown::NcclId { .. }), None) => None,
            (
                None | Some(Shown::NcclId { .. }),
                Some(Shown::NcclSum {
                    algorithm: CollectiveAlgorithm::NcclDefault,
                    gpus,
                    repeats_us,
                    ..
                }),
            ) if Some(*gpus) == asked => {
                let (done, repeats) = (repeats_us.len(), self.repeats);
                (done != repeats as usize).then(|| format!("it reports {done} of {repeats} sums"))
            }
            _ => Some("it answered another question".to_owned()),
        }
    }

    /// The rate of the sum; none while nodes have not summed.
    pub(super) fn rate(&self) -> Option<Rate> {
        let nodes = self.meeting.nodes.iter().copied();
        let repeats_us = repeats(self.gang, nodes, self.meeting.sum_round())?;
        let median_us = median::upper(&repeats_us)?.max(1);
        let (nodes, ranks) = (self.meeting.nodes.len() as u64, u64::from(self.ranks()));
        // Bytes per microsecond are 1e6 bytes per second.
        let bus = share(self.bytes.0, 2 * (ranks - 1), ranks * median_us);
        // Over the adapter that is sold for each GPU.
        let of_adapter = |bus: u64| share(bus, nodes - 1, ranks - 1);
        let fewest = self.gang.parts(&self.meeting).map(|part| part.gpus).min();
        // A smaller payload sums at a lower rate; how much lower is not known.
        let is_whole = self.bytes.0 == self.bytes.1;
        let sold = self.gang.sold_as.gbps_per_gpu();
        let sold = sold.filter(|_| self.gang.mode == Mode::Real && is_whole);
        // Between two nodes, a ring carries as much as all of their adapters together. With few nodes that is
        // more than a sum needs, so the needed rate alone understates even adapters at their wire rate. 1
        // Gb/s is 125 MB/s.
        let of_ring = |gbps| u64::from(gbps) * 125 * u64::from(fewest.unwrap_or(0));
        Some(Rate {
            bus,
            carried: of_adapter(bus),
            expected: sold.map(|gbps| of_adapter(of_ring(gbps))),
            repeats_us,
        })
    }
}
