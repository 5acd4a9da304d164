//! Four nodes, each with the unmodified agent on the fake driver, that are fine alone and are then
//! measured together over sockets on loopback.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use fake_driver::script::VARIABLE;
use market::attestation::{Finding, FindingCode, Outcome, Verdict, Weight};
use market::fabric::Internode;
use market::verification::{
    CollectiveAlgorithm, GangAnswer, GangCall, GangWork, Level, Measure, NcclId, NcclPart, Rail,
    Shown, Step,
};
use serde_json::Value;
use verifier::gang::{CallRefused, Gang, Member};
use verifier::jws::Signer;
use verifier::local::LocalBroker;
use verifier::order::Mode;

use crate::machine::*;
use crate::server::*;
use crate::stage::*;

const NODES: usize = 4;

pub fn host(node: usize) -> String {
    format!("10.0.0.{}", node + 1)
}

/// A broker of some nodes: each alone first, then all together.
struct Broker {
    alone: BTreeMap<String, LocalBroker>,
    members: BTreeMap<String, Member>,
    gang: Option<Gang>,
    nodes: usize,
    /// Between which nodes the link is slow.
    slow: Option<(u32, u32)>,
    work: GangWork,
}

/// Little enough that a slow link is done in a second or two.
pub fn work(pair_connections: u32) -> GangWork {
    GangWork {
        pair_connections,
        pair_bytes: 64 << 10,
        pair_repeats: 12,
        ring_bytes: 64 << 10,
        ring_repeats: 5,
        round_ms: 60_000,
        nccl_bytes: 256 << 10,
        nccl_warm_ups: 1,
        nccl_repeats: 3,
        nccl_pair_bytes: 0,
        nccl_pair_repeats: 0,
    }
}

impl Broker {
    fn step(&mut self, request: &Request) -> Response {
        let body: Value = serde_json::from_str(&request.body).expect("json");
        let key = body["agent_key"].as_str().expect("a key").to_owned();
        let step = request.step();
        if step == Step::Commit {
            let opening = opening(2, Level::Quick, Mode::Simulation);
            self.alone.insert(key.clone(), broker(opening, 1));
            let host = body["host"].as_str().expect("a host").to_owned();
            let member = Member {
                host: host.clone(),
                agent_key: key.parse().expect("a key"),
            };
            self.members.insert(host, member);
        }
        let alone = self.alone.get_mut(&key).expect("it committed");
        let (status, headers, text) = answer(alone, request);
        let mut reply: Value = serde_json::from_str(&text).expect("json");
        if step == Step::Report {
            assert_eq!(reply["verdict"], "pass", "every node is fine alone");
            reply["gang"] = true.into();
        }
        (status, headers, reply.to_string())
    }

    fn gang(&mut self, request: &Request) -> Response {
        let call: GangCall = serde_json::from_str(&request.body).expect("a call");
        let passed = |alone: &LocalBroker| alone.attestation().is_some();
        if self.gang.is_none()
            && self.members.len() == self.nodes
            && self.alone.values().all(passed)
        {
            let members = self.members.values().cloned().collect();
            let gang = Gang::try_new(members, Mode::Simulation, [5; 32]);
            self.gang = gang.map(|gang| gang.with_work(self.work));
        }
        let mut answer = match &mut self.gang {
            Some(gang) => gang.on_call(&call).expect("an answer"),
            None => GangAnswer::Wait { after_ms: 50 },
        };
        if let GangAnswer::Measure { round } = &mut answer
            && let Measure::Pair {
                sibling, connects, ..
            } = &mut round.measure
            && *connects
            && self.slow == Some((round.node, sibling.node))
        {
            let rail = &mut sibling.rails[0];
            rail.address = slow_way(rail.address.clone());
        }
        (200, "", serde_json::to_string(&answer).expect("json"))
    }
}

/// A way to an address that passes on one byte at a time, in each direction: a thousand times
/// slower than the others, by its own work.
fn slow_way(to: String) -> String {
    fn pass(mut from: TcpStream, mut to: TcpStream) {
        let mut piece = [0; 16 << 10];
        to.set_nodelay(true).expect("a connection");
        while let Ok(count @ 1..) = from.read(&mut piece) {
            for byte in piece[..count].chunks(1) {
                if to.write_all(byte).is_err() {
                    return;
                }
            }
        }
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(&to).expect("a connection");
            let back = (
                far.try_clone().expect("a handle"),
                near.try_clone().expect("a handle"),
            );
            std::thread::spawn(move || pass(back.0, back.1));
            std::thread::spawn(move || pass(near, far));
        }
    });
    address
}

fn agent_of(node: usize, machine: &Machine, url: &str) -> Child {
    agent(Some(machine.folder.path()))
        .env(VARIABLE, machine.path("script.json"))
        .env("VERIFIER_TOKEN", TOKEN)
        .args([
            "--fabric-patience-seconds",
            "0",
            "--patience-seconds",
            "300",
        ])
        .args(["--broker", url, "--host", &host(node), "--json"])
        .args(["--verification", &verification_id().to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started")
}

/// How an agent ended: its exit status and what it said.
pub type Ended = (Option<i32>, String);

/// Lets four agents be measured together; gives what was found and how each agent ended.
fn measured(slow: Option<(u32, u32)>, connections: u32) -> (Gang, Vec<Ended>) {
    let machines: Vec<Machine> = (0..NODES).map(|_| Machine::new(&broken(|_| {}))).collect();
    measured_on(&machines, slow, work(connections))
}

/// Lets the agents of these machines be measured together.
pub fn measured_on(
    machines: &[Machine],
    slow: Option<(u32, u32)>,
    work: GangWork,
) -> (Gang, Vec<Ended>) {
    let broker = Arc::new(Mutex::new(Broker {
        alone: BTreeMap::new(),
        members: BTreeMap::new(),
        gang: None,
        nodes: machines.len(),
        slow,
        work,
    }));
    let listening = Arc::clone(&broker);
    let (url, _) = serve(usize::MAX, move |request| {
        let mut broker = listening.lock().expect("nobody panics while holding it");
        match request.line.contains("/gang ") {
            true => broker.gang(&request),
            false => broker.step(&request),
        }
    });
    let agents: Vec<Child> = machines
        .iter()
        .enumerate()
        .map(|(node, machine)| agent_of(node, machine, &url))
        .collect();
    let ended = agents.into_iter().map(|agent| {
        let output = agent.wait_with_output().expect("it ends");
        let said = [output.stdout, output.stderr].concat();
        (
            output.status.code(),
            String::from_utf8_lossy(&said).into_owned(),
        )
    });
    let ended = ended.collect();
    let gang = broker.lock().expect("nobody panics").gang.take();
    (gang.expect("a gang"), ended)
}

pub fn found(gang: &Gang, code: FindingCode) -> Finding {
    let mut findings = gang.findings().into_iter();
    findings
        .find(|found| found.code == code)
        .expect("the finding")
}

#[test]
fn a_gang_of_four_nodes_with_one_slow_link_names_the_pair() {
    let (gang, ended) = measured(Some((1, 3)), 1);
    let pairs = found(&gang, FindingCode::NetworkPairs);
    assert_eq!(pairs.outcome, Outcome::Failed, "{pairs:#?}");
    assert_eq!(gang.verdict(), Some(Verdict::Fail));
    let named = |node: usize| format!("node {node} ({})", host(node));
    let (one, other) = (named(1), named(3));
    assert!(
        pairs.note.contains(&one) && pairs.note.contains(&other),
        "{pairs:#?}"
    );
    assert!(!pairs.note.contains(&named(0)) && !pairs.note.contains(&named(2)));
    assert_eq!(
        pairs.samples.len(),
        NODES * (NODES - 1),
        "both directions of every pair"
    );
    // The link is slow and not wrong.
    let sum = found(&gang, FindingCode::NetworkAllReduce);
    assert_eq!(sum.outcome, Outcome::Met, "{sum:#?}");
    for (status, said) in ended {
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(r#""verdict":"fail""#), "{said}");
    }
}

#[test]
fn a_gang_of_four_nodes_that_are_alike_passes() {
    let (gang, ended) = measured(None, 16);
    assert!(
        gang.verdict().is_some_and(Verdict::is_pass),
        "{:#?}",
        gang.findings()
    );
    for (status, said) in ended {
        assert_eq!(status, Some(0), "{said}");
    }
}

/// Nodes that are played by this test, without a socket.
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

    /// The same, whose nodes have NCCL and so many GPUs each.
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

    /// Leads all nodes to the end; `show` says what a node shows of a round.
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

/// What leads to this address, as NCCL makes it.
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

/// The same of a sum by NCCL, of which words were wrong.
pub fn wrongly(mut shown: Shown) -> Shown {
    if let Shown::NcclSum { wrong_words, .. } = &mut shown {
        *wrong_words = 3;
    }
    shown
}

#[test]
fn gangs_of_every_size_are_led_to_the_end() {
    for nodes in 2..=9 {
        let mut played = Played::new(nodes);
        assert_eq!(
            played.play(|_, measure| well(measure)),
            Verdict::Pass,
            "{nodes}"
        );
        let links = found(&played.gang, FindingCode::NetworkPairs).samples.len();
        assert_eq!(links, usize::from(nodes) * usize::from(nodes - 1));
    }
}

#[test]
fn either_end_of_a_slow_direction_tells() {
    let slow = |node: u32, measure: &Measure| match measure {
        // Node 2 sends to node 0 as it says at full speed, and node 0 receives slowly.
        Measure::Pair { sibling, .. } if (node, sibling.node) == (0, 2) => Shown::Pair {
            sent_mb_per_s: vec![10_000],
            received_mb_per_s: vec![4_900],
        },
        measure => well(measure),
    };
    let mut played = Played::new(3);
    assert_eq!(played.play(slow), Verdict::Fail);
    let note = found(&played.gang, FindingCode::NetworkPairs).note;
    let said = "node 2 (10.0.0.3) sends to node 0 (10.0.0.1) over mlx5_0 at 4900 MB/s";
    assert!(note.contains(said), "{note}");
}

#[test]
fn a_wrong_sum_and_a_pair_without_a_way_fail() {
    let wrong = |node, measure: &Measure| match measure {
        Measure::Ring { .. } if node == 1 => Shown::Ring {
            repeats_us: vec![20_000; 20],
            wrong_words: 3,
        },
        measure => well(measure),
    };
    let mut played = Played::new(3);
    assert_eq!(played.play(wrong), Verdict::Fail);
    let sum = found(&played.gang, FindingCode::NetworkAllReduce);
    assert_eq!(sum.outcome, Outcome::Failed);
    assert!(sum.note.contains("node 1 (10.0.0.2)"), "{}", sum.note);

    let cut = |node, measure: &Measure| match measure {
        Measure::Pair { sibling, .. } if node + sibling.node == 1 => Shown::Failed {
            why: "connection refused".to_owned(),
        },
        measure => well(measure),
    };
    let mut played = Played::new(3);
    assert_eq!(played.play(cut), Verdict::Fail);
    let note = found(&played.gang, FindingCode::NetworkPairs).note;
    let said = "node 0 (10.0.0.1) and node 1 (10.0.0.2) did not get through to each other: connection refused";
    assert!(note.contains(said), "{note}");
}

#[test]
fn strangers_and_addresses_of_nobody_are_refused() {
    let mut played = Played::new(2);
    let mut stranger = played.calls[0].clone();
    let key = Signer::from_seed(&[77; 32]).public_key();
    stranger.agent_key = key.to_agent_key().expect("a key");
    assert_eq!(played.gang.on_call(&stranger), Err(CallRefused::Stranger));
    for address in [
        "127.0.0.1:40000",
        "0.0.0.0:40000",
        "10.0.0.1:22",
        "example.org:40000",
    ] {
        let mut call = played.calls[0].clone();
        call.rails[0].address = address.to_owned();
        let refused = played.gang.on_call(&call);
        assert!(
            matches!(refused, Err(CallRefused::Malformed(_))),
            "{address}"
        );
    }
}

pub fn of_node(gang: &Gang, node: usize, code: FindingCode) -> Outcome {
    let findings = gang.findings_of(node);
    let found = findings.iter().find(|found| found.code == code);
    found.expect("the finding").outcome
}

#[test]
fn of_a_slow_pair_both_nodes_fail_and_of_a_slow_node_that_one() {
    let code = FindingCode::NetworkPairs;
    let outcomes = |slow: fn(u32, u32) -> bool| {
        let show = |node: u32, measure: &Measure| match measure {
            Measure::Pair { sibling, .. } if slow(node, sibling.node) => Shown::Pair {
                sent_mb_per_s: vec![900],
                received_mb_per_s: vec![10_000],
            },
            measure => well(measure),
        };
        let mut played = Played::new(5);
        assert_eq!(played.play(show), Verdict::Fail);
        (0..5)
            .map(|node| of_node(&played.gang, node, code))
            .collect::<Vec<_>>()
    };
    let (bad, fine) = (Outcome::Failed, Outcome::Noted);
    let pair = outcomes(|node, other| (node, other) == (3, 1));
    assert_eq!(pair, [fine, bad, fine, bad, fine]);
    let node = outcomes(|node, _| node == 3);
    assert_eq!(node, [fine, fine, fine, bad, fine]);
}

#[test]
fn a_link_that_is_far_below_the_fabric_that_was_sold_fails_though_all_are_alike() {
    let played = |sold: Internode, mb_per_s: u64| {
        let mut played = Played::new(3);
        played.gang = played.gang.clone().sold_as(sold);
        let verdict = played.play(|_, measure| match measure {
            Measure::Pair { connections, .. } if *connections < 16 => Shown::Failed {
                why: "too few connections for what is held against them".to_owned(),
            },
            Measure::Pair { .. } => Shown::Pair {
                sent_mb_per_s: vec![mb_per_s],
                received_mb_per_s: vec![mb_per_s],
            },
            measure => well(measure),
        });
        (
            verdict,
            found(&played.gang, FindingCode::NetworkPairs).floor,
        )
    };
    // 5 % of 400 Gb/s are 2,500 MB/s.
    let ndr = Internode::InfinibandNdr400;
    assert_eq!(played(ndr, 2_499), (Verdict::Fail, Some(2_500)));
    assert_eq!(played(ndr, 2_500), (Verdict::Pass, Some(2_500)));
    // Nothing is known of plain Ethernet; the half of the others is left.
    assert_eq!(played(Internode::Ethernet, 100), (Verdict::Pass, Some(50)));
}

/// Three good nodes that were sold with a fabric, of which so many have no address on their adapters.
fn without_addresses(sold: Internode, nodes: usize) -> (Verdict, Gang) {
    let mut played = Played::new(3);
    played.gang = played.gang.clone().sold_as(sold);
    for call in &mut played.calls[..nodes] {
        call.rails[0].name = "host".to_owned();
    }
    (played.play(|_, measure| well(measure)), played.gang)
}

#[test]
fn a_fabric_whose_adapters_have_no_address_was_not_measured_and_the_document_says_so() {
    let not_proved = |gang: &Gang| {
        let order = opening(2, Level::Standard, Mode::Real).order;
        let all = verifier::rules::not_proved(&order, &gang.findings(), false);
        all.into_iter()
            .find(|it| it.contains("between nodes"))
            .expect("said")
    };
    let code = FindingCode::NetworkFabric;
    let (verdict, gang) = without_addresses(Internode::InfinibandNdr400, 0);
    assert_eq!(
        (verdict, found(&gang, code).outcome),
        (Verdict::Pass, Outcome::Met)
    );
    let said = not_proved(&gang);
    assert!(
        said.contains("(net.fabric)") && said.contains("over adapters that the nodes name"),
        "{said}"
    );
    for (nodes, named) in [(1, "node 0 (10.0.0.1)"), (3, "node 1 (10.0.0.2)")] {
        let (verdict, gang) = without_addresses(Internode::InfinibandNdr400, nodes);
        assert_eq!(verdict, Verdict::PassWithWarnings);
        let fabric = found(&gang, code);
        assert_eq!(
            (fabric.outcome, fabric.weight),
            (Outcome::NotRun, Weight::May)
        );
        assert!(fabric.note.contains(named), "{}", fabric.note);
        assert_eq!(
            found(&gang, FindingCode::NetworkPairs).outcome,
            Outcome::Warned
        );
        let said = not_proved(&gang);
        assert!(
            said.contains("only the hosts' usual network was measured"),
            "{said}"
        );
    }
    let (verdict, gang) = without_addresses(Internode::Ethernet, 3);
    assert_eq!(verdict, Verdict::Pass);
    assert!(gang.findings().iter().all(|found| found.code != code));
    let said = not_proved(&gang);
    assert!(
        said.starts_with("That the network between nodes carries"),
        "{said}"
    );
}

/// A gang whose nodes have these many adapters, of which adapter 2 of node 1 carries so much to and from
/// all others, and the others 20,000 MB/s.
fn with_an_adapter(nodes: u8, rails: usize, mb_per_s: u64) -> (Verdict, Gang) {
    let mut played = Played::new(nodes);
    let rail = |number: usize| Rail {
        name: format!("mlx5_{number}"),
        address: format!("10.0.0.9:{}", 40_000 + number),
    };
    for call in &mut played.calls {
        call.rails = (0..rails).map(rail).collect();
    }
    let verdict = played.play(|node, measure| match measure {
        Measure::Pair { sibling, .. } => {
            let mut rates = vec![20_000; rails];
            if node == 1 || sibling.node == 1 {
                rates[2] = mb_per_s;
            }
            Shown::Pair {
                sent_mb_per_s: rates.clone(),
                received_mb_per_s: rates,
            }
        }
        measure => well(measure),
    });
    (verdict, played.gang)
}

#[test]
fn an_adapter_that_carries_less_than_its_siblings_fails_its_node_by_name() {
    let code = FindingCode::NetworkPairs;
    for (nodes, rails) in [(2, 4), (4, 8)] {
        // 65 % of the adapters of the same two nodes.
        let (verdict, gang) = with_an_adapter(nodes, rails, 13_000);
        assert!(verdict.is_pass(), "{:#?}", gang.findings());
        let (verdict, gang) = with_an_adapter(nodes, rails, 12_999);
        assert_eq!(verdict, Verdict::Fail);
        let pairs = found(&gang, code);
        let floor_and_expected = (pairs.floor, pairs.expected);
        assert_eq!(floor_and_expected, (Some(13_000), Some(20_000)));
        let said =
            "over mlx5_2 at 12999 MB/s where the median of the adapters of the two is 20000 MB/s";
        assert!(pairs.note.contains(said), "{}", pairs.note);
        assert_eq!(of_node(&gang, 1, code), Outcome::Failed);
        if nodes > 2 {
            let others = [0, 2, 3].map(|node| of_node(&gang, node, code));
            assert_eq!(others, [Outcome::Noted; 3]);
        }
    }
    // Of three adapters the slow one is too much of what it would be held against; half of all counts.
    assert!(with_an_adapter(2, 3, 10_000).0.is_pass());
    assert_eq!(with_an_adapter(2, 3, 9_999).0, Verdict::Fail);
}

/// A gang of three whose repeats of the sum take so long.
fn summed(repeats_us: &[u64]) -> (Verdict, Gang) {
    let mut played = Played::new(3);
    let verdict = played.play(|_, measure| match measure {
        Measure::Ring { .. } => Shown::Ring {
            repeats_us: repeats_us.to_vec(),
            wrong_words: 0,
        },
        measure => well(measure),
    });
    (verdict, played.gang)
}

#[test]
fn a_sum_that_hardly_goes_on_fails_with_the_slowest_link_named() {
    let code = FindingCode::NetworkAllReduce;
    // 256 MiB from three nodes, at 0.5 % of 10,000 MB/s.
    let at_floor_us = 256 * (1 << 20) * 4 / 3 / 50;
    let (verdict, gang) = summed(&[at_floor_us; 20]);
    assert!(verdict.is_pass(), "{:#?}", gang.findings());
    assert_eq!(found(&gang, code).floor, Some(50));
    for slow_us in [at_floor_us + at_floor_us / 100, 60_000_000] {
        let (verdict, gang) = summed(&[slow_us; 20]);
        assert_eq!(verdict, Verdict::Fail);
        let sum = found(&gang, code);
        assert_eq!(sum.outcome, Outcome::Failed);
        for named in [
            "from node 1 (10.0.0.2)",
            "over mlx5_0",
            "carries 10000 MB/s",
        ] {
            assert!(sum.note.contains(named), "{}", sum.note);
        }
    }
    // One repeat in twenty decides nothing.
    let mut repeats = [20_000; 20];
    repeats[7] = 60_000_000;
    assert_eq!(found(&summed(&repeats).1, code).outcome, Outcome::Met);
}

#[test]
fn a_sum_that_now_and_then_takes_far_longer_is_told_and_decides_nothing() {
    let code = FindingCode::NetworkJitter;
    let outcome_of = |longest_us| {
        let mut repeats = [20_000; 20];
        repeats[13] = longest_us;
        let (verdict, gang) = summed(&repeats);
        assert_eq!(verdict, Verdict::Pass);
        let jitter = found(&gang, code);
        assert_eq!(jitter.weight, Weight::Shadow);
        assert_eq!((jitter.floor, jitter.samples.len()), (Some(3_000), 20));
        (jitter.outcome, jitter.measured)
    };
    assert_eq!(outcome_of(20_000), (Outcome::Met, Some(1_000)));
    assert_eq!(outcome_of(60_000), (Outcome::Met, Some(3_000)));
    assert_eq!(outcome_of(60_020), (Outcome::Warned, Some(3_001)));
    // A gang that is not through has no times.
    let early = Played::new(3).gang;
    assert_eq!(found(&early, code).outcome, Outcome::NotRun);
}

/// The checks that no level of one node has: each of them has a gang that makes it fire, and is met by a
/// good one.
#[test]
fn every_check_of_a_gang_fires_on_its_own_evidence_and_is_met_by_a_good_one() {
    type Show = fn(&Measure) -> Shown;
    let fires: [(FindingCode, Show); 5] = [
        (FindingCode::NetworkPairs, |measure| match measure {
            Measure::Pair { sibling, .. } if sibling.node == 2 => Shown::Pair {
                sent_mb_per_s: vec![900],
                received_mb_per_s: vec![10_000],
            },
            measure => well(measure),
        }),
        (FindingCode::NetworkAllReduce, |measure| match measure {
            Measure::Ring { .. } => Shown::Ring {
                repeats_us: vec![20_000; 20],
                wrong_words: 1,
            },
            measure => well(measure),
        }),
        (FindingCode::NetworkCollective, |measure| match measure {
            Measure::NcclSum(sum) if sum.ranks == 32 => wrongly(well(measure)),
            measure => well(measure),
        }),
        (
            FindingCode::NetworkCollectivePairs,
            |measure| match measure {
                Measure::NcclSum(sum) if sum.ranks == 16 => wrongly(well(measure)),
                measure => well(measure),
            },
        ),
        (FindingCode::NetworkJitter, |measure| match measure {
            Measure::Ring { .. } => Shown::Ring {
                repeats_us: [vec![20_000; 19], vec![90_000]].concat(),
                wrong_words: 0,
            },
            measure => well(measure),
        }),
    ];
    let of_no_level = |code: &&FindingCode| {
        let levels = [Level::Quick, Level::Standard, Level::Deep];
        let demands = levels.map(|level| verifier::rules::levels::demand(**code, level));
        demands.iter().all(|demand| demand.weight().is_none())
    };
    let of_gangs: Vec<FindingCode> = FindingCode::ALL
        .iter()
        .filter(of_no_level)
        // That is of a node in use.
        .filter(|code| **code != FindingCode::InventoryPinned)
        .copied()
        .collect();
    // What was sold, and not what was shown, makes the last two fire: they have tests of their own.
    let by_what_was_sold = [FindingCode::NetworkFabric, FindingCode::NetworkTogether];
    let codes = fires.iter().map(|(code, _)| *code);
    assert_eq!(codes.chain(by_what_was_sold).collect::<Vec<_>>(), of_gangs);
    let unmet = |show: Show| {
        let mut played = Played::new(4).with_nccl(8);
        played.play(|_, measure| show(measure));
        let findings = played.gang.findings().into_iter();
        let unmet = findings.filter(|found| found.outcome != Outcome::Met);
        unmet.map(|found| found.code).collect::<Vec<_>>()
    };
    assert_eq!(unmet(well), []);
    for (code, show) in fires {
        assert_eq!(unmet(show), [code]);
    }
}

#[test]
fn a_node_that_is_waited_for_too_long_fails_by_name_and_never_passes() {
    let mut played = Played::new(3);
    for node in [0, 2] {
        let answer = played.gang.on_call(&played.calls[node]).expect("an answer");
        assert!(matches!(answer, GangAnswer::Wait { .. }), "{answer:?}");
    }
    assert_eq!((played.gang.stage(), played.gang.verdict()), (0, None));
    assert_eq!(played.gang.give_up(), Verdict::Fail);
    let late = found(&played.gang, FindingCode::StepTimedOut);
    assert!(
        late.note.starts_with("node 1 (10.0.0.2) kept"),
        "{}",
        late.note
    );
    let outcomes = [0, 1, 2].map(|node| of_node(&played.gang, node, FindingCode::StepTimedOut));
    assert_eq!(outcomes, [Outcome::Noted, Outcome::Failed, Outcome::Noted]);
    let over = GangAnswer::Over {
        verdict: Verdict::Fail,
    };
    assert_eq!(played.gang.on_call(&played.calls[1]), Ok(over));
}
