//! What the GPUs of all nodes showed when they summed up by NCCL.
//!
//! A wrong word fails the gang. All else is tried out: what a good fabric shows of its rate by whichever
//! way the library takes, and what keeps it on good nodes from joining them, is to be learnt first.

use std::collections::BTreeMap;

use market::attestation::{Finding, FindingCode, Outcome, Unit, Weight};
use market::verification::{CollectiveAlgorithm, Shown};

use super::{Judged, must, name, repeats, shown, undone};
use crate::gang::nccl::Library;
use crate::gang::{Gang, version_words};
use crate::order::Mode;
use crate::rules::{finding, number, plain, share};

const CODE: FindingCode = FindingCode::NetworkCollective;
/// Share of what a ring over adapters at their wire rate shows below which the fabric is slow. Units:
/// percent. Source: 0.74 was seen on a good gang of four nodes.
const WIRE_PERCENT: u64 = 70;
/// The most reasons that a finding tells.
const MOST_REASONS: usize = 3;

/// Whether all nodes summed by NCCL.
pub(super) fn is_summed(gang: &Gang) -> bool {
    repeats(gang, gang.nccl_round() + 1).is_some()
}

/// Nothing where no node has NCCL.
pub(super) fn collective(gang: &Gang) -> Option<Judged> {
    let apart = |note: String| Some(finding(CODE, Outcome::NotRun, note).into());
    let version = match gang.nccl() {
        Library::Nowhere => return None,
        Library::Missing(node) => {
            let note = format!(
                "{} has no NCCL that others of the gang have: nothing was summed by it.",
                name(gang, node)
            );
            return apart(note);
        }
        Library::Unlike(node) => {
            let versions = [0, node].map(|node| {
                let version = gang.seen[node].nccl.map_or(0, |part| part.version);
                format!("{} has NCCL {}", name(gang, node), version_words(version))
            });
            let note = format!(
                "{}, {}, and versions that differ do not join: nothing was summed by it.",
                versions[0], versions[1]
            );
            return apart(note);
        }
        Library::Unsold(node) => {
            let brings = gang.seen[node].nccl.map_or(0, |part| part.gpus);
            let sold = gang.gpus_sold.unwrap_or(0);
            let note = format!(
                "{} brings {brings} GPUs to a sum by NCCL, and {sold} were sold with each node: nothing was summed \
                 by it.",
                name(gang, node)
            );
            return apart(note);
        }
        Library::Everywhere(version) => version,
    };
    if gang.failed_before_nccl() {
        return apart("What was measured before failed: nothing was summed by NCCL.".to_owned());
    }
    if gang.would_mislead() {
        let note = format!(
            "What {} would have the others find each other by does not lead to one of its own addresses: \
             nothing was summed by NCCL.",
            name(gang, 0)
        );
        return apart(note);
    }
    if let Some(wrong) = wrong(gang) {
        return Some(wrong);
    }
    let found = failure(gang).or_else(|| rate(gang, version));
    let found = found.unwrap_or_else(|| undone(CODE));
    let tried_out = Finding {
        weight: Weight::Shadow,
        ..found
    };
    Some(tried_out.into())
}

/// Words that were wrong. What one GPU brings wrongly all have in their sums, and whoever did it may say
/// that its own are right: nobody in particular is to blame, unless all but one of three or more nodes have
/// the right sum, which none can have of what was brought wrongly.
fn wrong(gang: &Gang) -> Option<Judged> {
    let round = gang.nccl_round() as usize + 1;
    let of_node = |(node, seen)| match shown(seen, round) {
        Some(Shown::NcclSum { wrong_words, .. }) => Some((node, *wrong_words)),
        _ => None,
    };
    let summed = gang.seen.iter().enumerate().filter_map(of_node);
    let (right, wrong): (Vec<_>, Vec<_>) = summed.partition(|(_, words)| *words == 0);
    let (first, words) = *wrong.first()?;
    let others = gang.members.len() - 1;
    let alone = others >= 2 && right.len() == others;
    let where_else = match (alone, wrong.len()) {
        (true, _) => ", and at no other node: it receives or keeps them wrongly".to_owned(),
        (false, 1) => ": whose GPU or which way made them so is not shown".to_owned(),
        (false, nodes) => format!(
            ", and such at {} more: whose GPU or which way made them so is not shown",
            nodes - 1
        ),
    };
    let note = format!(
        "{words} words of NCCL's sum of {} were wrong at {}{where_else}.",
        payload(gang),
        name(gang, first)
    );
    Some(Judged {
        finding: must(finding(CODE, Outcome::Failed, note)),
        to_blame: if alone { vec![first] } else { Vec::new() },
    })
}

/// What each GPU brings, and how NCCL was left to sum it.
fn payload(gang: &Gang) -> String {
    const KIB: u64 = 1 << 10;
    let bytes = gang.nccl_bytes();
    let (amount, unit) = match bytes {
        _ if bytes.is_multiple_of(KIB * KIB) => (bytes / KIB / KIB, "MiB"),
        _ if bytes.is_multiple_of(KIB) => (bytes / KIB, "KiB"),
        _ => (bytes, "bytes"),
    };
    format!("{amount} {unit} of each GPU (nccl_default)")
}

/// What kept nodes from summing. One that fails leaves the others waiting, so that each reason is told.
fn failure(gang: &Gang) -> Option<Finding> {
    let first = gang.nccl_round() as usize;
    let mut reasons: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (node, seen) in gang.seen.iter().enumerate() {
        let asked = gang.seen[node].nccl.map(|part| part.gpus);
        let why = match (shown(seen, first), shown(seen, first + 1)) {
            (Some(Shown::Failed { why }), _) | (_, Some(Shown::Failed { why })) => plain(why),
            (None | Some(Shown::NcclId { .. }), None) => continue,
            (
                None | Some(Shown::NcclId { .. }),
                Some(Shown::NcclSum {
                    algorithm: CollectiveAlgorithm::NcclDefault,
                    gpus,
                    ..
                }),
            ) if Some(*gpus) == asked => continue,
            _ => "it answered another question".to_owned(),
        };
        reasons.entry(why).or_default().push(node);
    }
    let told = reasons.iter().take(MOST_REASONS).map(|(why, nodes)| {
        let more = match nodes.len() {
            1 => String::new(),
            nodes => format!(" and {} more", nodes - 1),
        };
        format!("{}{more}: {why}", name(gang, nodes[0]))
    });
    let told: Vec<String> = told.collect();
    let note = format!("NCCL did not sum {} at {}.", payload(gang), told.join("; "));
    (!told.is_empty()).then(|| finding(CODE, Outcome::Failed, note))
}

/// How fast they summed; nothing while nodes have not.
fn rate(gang: &Gang, version: u32) -> Option<Finding> {
    let mut repeats = repeats(gang, gang.nccl_round() + 1)?;
    let samples = repeats.iter().copied().map(number).collect();
    repeats.sort_unstable();
    let median_us = repeats[repeats.len() / 2].max(1);
    let (nodes, ranks) = (gang.members.len() as u64, u64::from(gang.ranks()));
    // Bytes per microsecond are 1e6 bytes per second.
    let bus = share(gang.nccl_bytes(), 2 * (ranks - 1), ranks * median_us);
    // What any way of summing must carry from node to node, over the adapter that is sold for each GPU.
    let of_adapter = |bus: u64| share(bus, nodes - 1, ranks - 1);
    let carried = of_adapter(bus);
    let fewest = gang.parts().map(|part| part.gpus).min().unwrap_or(0);
    let sold = gang
        .sold_as
        .gbps_per_gpu()
        .filter(|_| gang.mode == Mode::Real && gang.is_whole_nccl_payload());
    // Less of a payload sums at a lower rate, and how much lower is not known.
    // A ring passes between two nodes what all of their adapters carry together: with few nodes more than a
    // sum needs, so that by what it needs even adapters at their wire rate show less than that.
    // 1 Gb/s is 125 MB/s.
    let expected = sold.map(|gbps| of_adapter(u64::from(gbps) * 125 * u64::from(fewest)));
    let floor = expected.map(|expected| share(expected, WIRE_PERCENT, 100));
    let said = format!(
        "By NCCL {}, over whichever way it took, {ranks} GPUs of {nodes} nodes sum up {} rightly at a bus rate \
         of {bus} MB/s: at least {carried} MB/s between nodes for each GPU",
        version_words(version),
        payload(gang)
    );
    let found = match (floor, sold) {
        (Some(floor), Some(gbps)) if carried < floor => {
            let note = format!("{said}, where adapters of {gbps} Gb/s for each were sold.");
            finding(CODE, Outcome::Failed, note)
        }
        _ => finding(CODE, Outcome::Met, format!("{said}.")),
    };
    Some(Finding {
        unit: Some(Unit::MbPerS),
        measured: Some(number(carried)),
        floor: floor.map(number),
        expected: expected.map(number),
        samples,
        ..found
    })
}
