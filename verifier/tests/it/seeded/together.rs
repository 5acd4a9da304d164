//! The gang that a node of a named fabric is leased with, as far as the links between its nodes go.
//!
//! A quarter of such nodes are leased alone: nothing sends through their ports. The adapters of the others
//! have addresses and are measured over TCP, one after the other. The share of a wire that TCP fills on good
//! hosts is a guess, between a half and nearly all of it by set-up; adapters far from the sending processor
//! reach up to a fifth less.

use market::attestation::Finding;
use market::verification::{GangAnswer, GangCall, Level, Measure, Rail, RoundDone, Shown};
use verifier::gang::{Gang, Member};
use verifier::jws::Signer;
use verifier::order::Mode;
use verifier::pretend::{Kind, SeededRng};

use super::node::Seeded;

/// The number of the seeded node; the others are good.
const OWN: usize = 0;
/// How much the rates of one link differ.
const SCATTER: f64 = 0.03;

/// The rates of a gang's adapters.
pub struct Together {
    /// Per node and rail: the share of the wire that TCP fills.
    reach: Vec<Vec<f64>>,
    /// Per node and rail: the share of the wire that the port itself carries.
    carries: Vec<Vec<f64>>,
    seed: String,
}

impl Together {
    /// The gang of a node with this seed; none where it is leased alone.
    pub fn of(kind: &Kind, seed: &str) -> Option<Self> {
        kind.internode.gbps_per_gpu()?;
        let mut dice = SeededRng::new(format!("gang of {seed}").as_bytes());
        let nodes = dice.one_of(&[1, 2, 4, 8]);
        let rails = kind.gpus as usize;
        let usual = dice.between(0.5, 0.95);
        let mut reach_of_node = || -> Vec<f64> {
            let far = dice.between(0.8, 1.0);
            let half = |rail| if rail < rails / 2 { 1.0 } else { far };
            (0..rails).map(|rail| usual * half(rail)).collect()
        };
        (nodes > 1).then(|| Self {
            reach: (0..nodes).map(|_| reach_of_node()).collect(),
            carries: vec![vec![1.0; rails]; nodes],
            seed: seed.to_owned(),
        })
    }

    /// One port of the seeded node carries less.
    pub fn slow_down(&mut self, rail: usize, factor: f64) {
        self.carries[OWN][rail] = factor;
    }

    /// The broker's findings on it, as they count for the seeded node.
    pub fn findings(&self, node: &Seeded) -> Vec<Finding> {
        let nodes = self.reach.len();
        let signer = |node: usize| Signer::from_seed(&[node as u8; 32]).public_key();
        let member = |node: usize| Member {
            host: format!("10.0.0.{node}"),
            agent_key: signer(node).to_agent_key().expect("a key"),
        };
        let members: Vec<Member> = (0..nodes).map(member).collect();
        let rail = |number: usize| Rail {
            name: format!("mlx5_{number}"),
            address: format!("10.0.0.9:{}", 40_000 + number),
        };
        let mut calls: Vec<GangCall> = members
            .iter()
            .map(|member| GangCall {
                agent_key: member.agent_key.clone(),
                rails: (0..node.kind.gpus as usize).map(rail).collect(),
                nccl: None,
                done: None,
            })
            .collect();
        let sold = node.order_at(Level::Standard).expected.internode;
        let gang = Gang::try_new(members, Mode::Real, [3; 32]).expect("a gang");
        let mut gang = gang.sold_as(sold.expect("a fabric"));
        while gang.verdict().is_none() {
            for call in &mut calls {
                if let GangAnswer::Measure { round } = gang.on_call(call).expect("an answer") {
                    call.done = Some(RoundDone {
                        round: round.number,
                        shown: self.shown(&node.kind, round.node as usize, &round.measure),
                    });
                }
            }
        }
        gang.findings_of(OWN)
    }

    fn shown(&self, kind: &Kind, node: usize, measure: &Measure) -> Shown {
        let wire = f64::from(kind.internode.gbps_per_gpu().expect("a rate")) * 125.0;
        let rails = kind.gpus as usize;
        match measure {
            Measure::Pair { sibling, .. } => {
                let other = sibling.node as usize;
                let rates = |from: usize, to: usize| {
                    let seed = format!("{} {from} {to}", self.seed);
                    let mut dice = SeededRng::new(seed.as_bytes());
                    let mut rate = |rail: usize| {
                        let of = [from, to]
                            .map(|node| self.reach[node][rail].min(self.carries[node][rail]));
                        (wire * of[0].min(of[1]) * dice.around_one(SCATTER)) as u64
                    };
                    (0..rails).map(&mut rate).collect()
                };
                Shown::Pair {
                    sent_mb_per_s: rates(node, other),
                    received_mb_per_s: rates(other, node),
                }
            }
            // Some gigabytes a second on each rail, as one core sums.
            Measure::Ring { bytes, repeats, .. } => Shown::Ring {
                repeats_us: vec![bytes / 1_000; *repeats as usize],
                wrong_words: 0,
            },
            Measure::NcclId | Measure::NcclSum(_) => unreachable!("no node said that it has NCCL"),
        }
    }
}
