//! Nodes of a gang that the tests simulate, without a socket.

use market::attestation::{FindingCode, Outcome, Verdict};
use market::verification::{
    CollectiveAlgorithm, GangAnswer, GangCall, GangWork, Measure, NcclId, NcclPart, Rail, Shown,
};
use verifier::gang::{Gang, Member};
use verifier::jws::Signer;
use verifier::order::Mode;

use crate::gang::host;

/// Nodes that this test simulates, without a socket.
pub struct Played {
    pub gang: Gang,
    pub calls: Vec<GangCall>,
}

impl Played {
    pub fn new(nodes: u8) -> Self {
        let member = |node: u8| Member {
            host: host(node.into()),
            agent_key: Signer::from_seed(&[node; 32])
                .public_key()
                .to_agent_key()
                .expect("a key"),
        };
        let members: Vec<Member> = (0..nodes).map(member).collect();
        let call = |member: &Member| GangCall {
            agent_key: member.agent_key.clone(),
            rails: vec![Rail {
                name: "mlx5_0".to_owned(),
                address: "10.0.0.9:40000".to_owned(),
            }],
            nccl: None,
            done: None,
        };
        Self {
            calls: members.iter().map(call).collect(),
            gang: Gang::try_new(members, Mode::Real, [1; 32]).expect("a gang"),
        }
    }

    /// The same, whose nodes have NCCL and this many GPUs each.
    pub fn with_nccl(mut self, gpus: u32) -> Self {
        for call in &mut self.calls {
            let version = 22_809;
            call.nccl = Some(NcclPart { version, gpus });
        }
        self
    }

    /// The same, whose pairs do not sum by NCCL.
    pub fn without_pairs_by_nccl(mut self) -> Self {
        let work = GangWork {
            nccl_pair_bytes: 0,
            ..verifier::gang::work_for(Mode::Real)
        };
        self.gang = self.gang.with_work(work);
        self
    }

    /// Leads all nodes to the end; `show` gives a node's result of a round.
    pub fn play(&mut self, show: impl Fn(u32, &Measure) -> Shown) -> Verdict {
        for _ in 0..200 {
            for node in 0..self.calls.len() {
                match self.gang.on_call(&self.calls[node]).expect("an answer") {
                    GangAnswer::Over { verdict } => return verdict,
                    GangAnswer::Wait { .. } | GangAnswer::Gather { .. } => {}
                    GangAnswer::Measure { round } => {
                        self.calls[node].done = Some(market::verification::RoundDone {
                            round: round.number,
                            shown: show(round.node, &round.measure),
                        });
                    }
                }
            }
        }
        panic!("it does not end: {:#?}", self.gang);
    }
}

/// An id that leads to this address, as NCCL makes it.
pub fn id_of(ip: [u8; 4], port: u16) -> NcclId {
    let mut id = [7; 128];
    let address = [&[2, 0], &port.to_be_bytes()[..], &ip].concat();
    id[8..16].copy_from_slice(&address);
    NcclId(id)
}

pub fn well(measure: &Measure) -> Shown {
    match measure {
        Measure::Pair { .. } => Shown::Pair {
            sent_mb_per_s: vec![10_000],
            received_mb_per_s: vec![10_100],
        },
        Measure::Ring { repeats, .. } => Shown::Ring {
            repeats_us: vec![20_000; *repeats as usize],
            wrong_words: 0,
        },
        Measure::NcclId => Shown::NcclId {
            id: id_of([10, 0, 0, 9], 40_001),
        },
        Measure::NcclSum(sum) => Shown::NcclSum {
            algorithm: CollectiveAlgorithm::NcclDefault,
            gpus: sum.gpus,
            repeats_us: vec![20_000; sum.repeats as usize],
            wrong_words: 0,
        },
    }
}

/// The same for a sum by NCCL with wrong words.
pub fn wrongly(mut shown: Shown) -> Shown {
    if let Shown::NcclSum { wrong_words, .. } = &mut shown {
        *wrong_words = 3;
    }
    shown
}

pub fn of_node(gang: &Gang, node: usize, code: FindingCode) -> Outcome {
    let findings = gang.findings_of(node);
    let found = findings.iter().find(|found| found.code == code);
    found.expect("the finding").outcome
}
