//! The judgement of pairs of nodes: no link may be slow beside the others, beside the other adapters of its
//! two nodes, or compared with the fabric that was sold.

use std::collections::BTreeMap;

use market::attestation::{Finding, FindingCode, Outcome, Unit, Weight};
use market::verification::Shown;

use super::{Judged, must, name, shown, to_blame, undone};
use crate::gang::Gang;
use crate::gang::addresses::HOST;
use crate::gang::rounds::pairs_of_round;
use crate::median;
use crate::order::Mode;
use crate::plain::plain;
use crate::rules::{finding, number, share};

/// Share of the median below which a link is slow. Units: percent. House rule: good links of one
/// fabric lie within some per cent of each other, also over TCP.
const SLOW_PERCENT: u64 = 50;
/// As [`SLOW_PERCENT`] where one machine simulates all nodes, whose processes wait for each other.
const SLOW_PERCENT_SIMULATED: u64 = 2;
/// Share of the median below which a link is worth watching. Units: percent.
const ODD_PERCENT: u64 = 70;
/// Share of the usual rate of a pair's adapters below which one of them is slow. Units: percent. House rule:
/// they are measured one after the other between the same two hosts and with the same connections, so they
/// differ only in the processor to which they are nearer.
const SLOW_ADAPTER_PERCENT: u64 = 65;
/// With fewer adapters than these, a slow one is too large a part of the median with which it is compared.
const LEAST_ADAPTERS: usize = 4;
/// The least share of an adapter's wire rate that its connections over TCP carry. Units: percent. House rule:
/// one core moves 2 % of the fastest, sixteen connections more than twice that, also where IP over the fabric
/// is slow; no network of another class does.
const FABRIC_PERCENT: u64 = 5;
/// The most rates of links that a finding shows.
const MOST_SAMPLES: usize = 1_000;

/// One direction of one rail between two nodes.
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) rail: usize,
    pub(super) mb_per_s: u64,
}

impl Link {
    /// Its two nodes, the lower number first.
    pub(super) fn pair(&self) -> (usize, usize) {
        (self.from.min(self.to), self.from.max(self.to))
    }
}

/// The results of all pairs.
#[derive(Default)]
pub(super) struct Links {
    pub(super) measured: Vec<Link>,
    /// Pairs that could not be measured, and why.
    broken: Vec<(usize, usize, String)>,
}

/// Every link; none while a pair has not been measured.
pub(super) fn links(gang: &Gang) -> Option<Links> {
    let mut links = Links::default();
    for round in 0..gang.rounds().ring() {
        for (a, b) in pairs_of_round(gang.members.len(), round) {
            let both = [a, b].map(|node| shown(&gang.seen[node], round as usize));
            let [Some(of_a), Some(of_b)] = both else {
                return None;
            };
            let ways = gang.seen[a].rails.len().min(gang.seen[b].rails.len());
            let Some(rates) = rates(of_a, of_b, ways) else {
                let why = [of_a, of_b].into_iter().find_map(|shown| match shown {
                    Shown::Failed { why } => Some(plain(why)),
                    _ => None,
                });
                let why = why.unwrap_or_else(|| "they do not report each adapter".to_owned());
                links.broken.push((a, b, why));
                continue;
            };
            for (rail, (there, back)) in rates.into_iter().enumerate() {
                for (from, to, mb_per_s) in [(a, b, there), (b, a, back)] {
                    links.measured.push(Link {
                        from,
                        to,
                        rail,
                        mb_per_s,
                    });
                }
            }
        }
    }
    Some(links)
}

/// Per rail, the rates from the one to the other and back: the lesser of both ends' measurements. None where
/// one of them reports the wrong number of rails, since it could otherwise choose which of the other's rates
/// count.
fn rates(one: &Shown, other: &Shown, ways: usize) -> Option<Vec<(u64, u64)>> {
    let (
        Shown::Pair {
            sent_mb_per_s: sent,
            received_mb_per_s: received,
        },
        Shown::Pair {
            sent_mb_per_s: sent_back,
            received_mb_per_s: arrived,
        },
    ) = (one, other)
    else {
        return None;
    };
    let told = [sent, received, sent_back, arrived];
    if told.iter().any(|rates| rates.len() != ways) {
        return None;
    }
    let there = sent.iter().zip(arrived).map(|(a, b)| *a.min(b));
    let back = sent_back.iter().zip(received).map(|(a, b)| *a.min(b));
    let rates: Vec<_> = there.zip(back).collect();
    (!rates.is_empty()).then_some(rates)
}

/// The adapter over which a node sends on a rail; none where that is the host's usual address.
pub(super) fn adapter(gang: &Gang, node: usize, rail: usize) -> Option<&str> {
    let rail = gang.seen[node].rails.get(rail)?;
    (rail.name != HOST).then_some(rail.name.as_str())
}

/// The adapter over which a node sends on a rail, named in a sentence.
pub(super) fn adapter_words(gang: &Gang, node: usize, rail: usize) -> String {
    plain(adapter(gang, node, rail).unwrap_or(HOST))
}

/// The reference with which a link is compared.
#[derive(Clone, Copy)]
enum Reference {
    /// The median of all links of the gang, 1e6 bytes per second.
    Links(u64),
    /// The median of all adapters of its two nodes, 1e6 bytes per second.
    Adapters(u64),
    /// The rate of the adapters that were sold, Gb/s.
    Sold(u32),
}

impl Reference {
    /// The rate of a good link, 1e6 bytes per second.
    fn expected(self) -> u64 {
        match self {
            Self::Links(median) | Self::Adapters(median) => median,
            // 1 Gb/s is 125 MB/s.
            Self::Sold(gbps) => u64::from(gbps) * 125,
        }
    }

    fn words(self) -> String {
        match self {
            Self::Links(median) => format!("where the median of all links is {median} MB/s"),
            Self::Adapters(median) => {
                format!("where the median of the adapters of the two is {median} MB/s")
            }
            Self::Sold(gbps) => format!("where adapters of {gbps} Gb/s were sold"),
        }
    }
}

/// The least that a link must carry, and its reference.
#[derive(Clone, Copy)]
struct Floor {
    mb_per_s: u64,
    against: Reference,
}

/// The floors of the links of a gang.
struct Floors<'a> {
    gang: &'a Gang,
    median: u64,
    /// Per pair whose rails are all adapters of the fabric, where it has several.
    of_adapters: BTreeMap<(usize, usize), u64>,
}

impl<'a> Floors<'a> {
    fn new(gang: &'a Gang, links: &[Link]) -> Self {
        let mut pairs: BTreeMap<(usize, usize), Vec<u64>> = BTreeMap::new();
        for link in links.iter().filter(|link| is_on_fabric(gang, link)) {
            pairs.entry(link.pair()).or_default().push(link.mb_per_s);
        }
        let several = |(pair, rates): ((usize, usize), Vec<u64>)| {
            // Each adapter has two directions.
            let usual = median::upper(&rates)?;
            (rates.len() >= 2 * LEAST_ADAPTERS).then_some((pair, usual))
        };
        let all: Vec<u64> = links.iter().map(|link| link.mb_per_s).collect();
        Self {
            gang,
            median: median::upper(&all).unwrap_or(0),
            of_adapters: pairs.into_iter().filter_map(several).collect(),
        }
    }

    /// The highest floor of a link.
    fn of(&self, link: &Link) -> Floor {
        let real = self.gang.mode == Mode::Real;
        let percent = match real {
            true => SLOW_PERCENT,
            false => SLOW_PERCENT_SIMULATED,
        };
        let on_fabric = real && is_on_fabric(self.gang, link);
        let adapters = self.of_adapters.get(&link.pair()).copied();
        let sold = self.gang.sold_as.gbps_per_gpu();
        let floors = [
            Some((Reference::Links(self.median), percent)),
            adapters
                .filter(|_| on_fabric)
                .map(|median| (Reference::Adapters(median), SLOW_ADAPTER_PERCENT)),
            sold.filter(|_| on_fabric)
                .map(|gbps| (Reference::Sold(gbps), FABRIC_PERCENT)),
        ];
        let floors = floors
            .into_iter()
            .flatten()
            .map(|(against, percent)| Floor {
                mb_per_s: share(against.expected(), percent, 100),
                against,
            });
        let highest = floors.max_by_key(|floor| floor.mb_per_s);
        highest.unwrap_or(Floor {
            mb_per_s: 0,
            against: Reference::Links(self.median),
        })
    }
}

/// Whether both ends of a link are adapters of the fabric.
pub(super) fn is_on_fabric(gang: &Gang, link: &Link) -> bool {
    [link.from, link.to]
        .into_iter()
        .all(|node| adapter(gang, node, link.rail).is_some())
}

fn broken(gang: &Gang, pairs: &[(usize, usize, String)]) -> Option<Judged> {
    let (a, b, why) = pairs.first()?;
    let (one, other) = (name(gang, *a), name(gang, *b));
    let more = match pairs.len() {
        1 => String::new(),
        pairs => format!("; {pairs} pairs did not"),
    };
    let said = format!("{one} and {other} did not get through to each other: {why}{more}.");
    Some(Judged {
        finding: must(finding(FindingCode::NetworkPairs, Outcome::Failed, said)),
        to_blame: to_blame(&pairs.iter().map(|(a, b, _)| (*a, *b)).collect()),
    })
}

pub(super) fn pairs(gang: &Gang) -> Judged {
    let code = FindingCode::NetworkPairs;
    let Some(Links {
        measured: links,
        broken: without_a_way,
    }) = links(gang)
    else {
        return undone(code).into();
    };
    if let Some(broken) = broken(gang, &without_a_way) {
        return broken;
    }
    let floors = Floors::new(gang, &links);
    let slow: Vec<&Link> = links
        .iter()
        .filter(|link| link.mb_per_s < floors.of(link).mb_per_s)
        .collect();
    // The link to report: the slowest of the slow ones, else of all.
    let rate = |link: &&Link| link.mb_per_s;
    let of_slow = slow.iter().copied().min_by_key(rate);
    let Some(slowest) = of_slow.or_else(|| links.iter().min_by_key(rate)) else {
        return undone(code).into();
    };
    let floor = floors.of(slowest);
    let said = format!(
        "{} sends to {} over {} at {} MB/s {}",
        name(gang, slowest.from),
        name(gang, slowest.to),
        adapter_words(gang, slowest.from, slowest.rail),
        slowest.mb_per_s,
        floor.against.words(),
    );
    let found = if slow.is_empty() {
        as_fast(gang, &links, (slowest, floors.median), said)
    } else {
        let more = match slow.len() {
            1 => String::new(),
            slow => format!("; {slow} links are slow"),
        };
        finding(code, Outcome::Failed, format!("The slowest: {said}{more}."))
    };
    Judged {
        finding: Finding {
            weight: Weight::Must,
            unit: Some(Unit::MbPerS),
            measured: Some(number(slowest.mb_per_s)),
            floor: Some(number(floor.mb_per_s)),
            expected: Some(number(floor.against.expected())),
            samples: samples(&links),
            ..found
        },
        to_blame: to_blame(&slow.iter().map(|link| link.pair()).collect()),
    }
}

/// The rates of all links; of very many only the lowest, so that the document stays readable.
fn samples(links: &[Link]) -> Vec<i64> {
    let mut rates: Vec<u64> = links.iter().map(|link| link.mb_per_s).collect();
    if rates.len() > MOST_SAMPLES {
        rates.sort_unstable();
        rates.truncate(MOST_SAMPLES);
    }
    rates.into_iter().map(number).collect()
}

/// The note where no link is slow.
fn as_fast(gang: &Gang, links: &[Link], (slowest, median): (&Link, u64), said: String) -> Finding {
    let code = FindingCode::NetworkPairs;
    let real = gang.mode == Mode::Real;
    if real && slowest.mb_per_s < share(median, ODD_PERCENT, 100) {
        return finding(code, Outcome::Warned, format!("The slowest: {said}."));
    }
    let elsewhere = links.iter().any(|link| !is_on_fabric(gang, link));
    if real && gang.sold_as.is_rdma() && elsewhere {
        let note = "Every pair of nodes is as fast as the others, but not all over the fabric that was sold.";
        return finding(code, Outcome::Warned, note);
    }
    finding(
        code,
        Outcome::Met,
        "Every pair of nodes is as fast as the others.",
    )
}
