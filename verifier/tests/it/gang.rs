//! Four nodes, each with the unmodified agent on the fake driver. They work well alone and are then measured
//! together over sockets on loopback.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

use fake_driver::script::VARIABLE;
use market::attestation::{Finding, FindingCode, Outcome, Verdict};
use market::verification::{GangAnswer, GangCall, GangWork, Level, Measure, Step};
use serde_json::Value;
use verifier::gang::{Gang, Member};
use verifier::local::LocalBroker;
use verifier::order::Mode;

use crate::eventually::ended;
use crate::machine::*;
use crate::server::*;
use crate::stage::*;

const NODES: usize = 4;

pub fn host(node: usize) -> String {
    format!("10.0.0.{}", node + 1)
}

/// A broker for some nodes: each alone first, then all together.
struct Broker {
    alone: BTreeMap<String, LocalBroker>,
    members: BTreeMap<String, Member>,
    gang: Option<Gang>,
    nodes: usize,
    /// The nodes between which the link is slow.
    slow: Option<(u32, u32)>,
    work: GangWork,
}

/// So little work that a slow link finishes in a second or two.
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

/// A proxy to an address that passes on one byte at a time, in each direction: a thousand times slower than
/// the others, by its own work.
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

/// An agent's exit status and output.
pub type Ended = (Option<i32>, String);

/// Measures four agents together; gives the findings and how each agent ended.
fn measured(slow: Option<(u32, u32)>, connections: u32) -> (Gang, Vec<Ended>) {
    let machines: Vec<Machine> = (0..NODES).map(|_| Machine::new(&broken(|_| {}))).collect();
    measured_on(&machines, slow, work(connections))
}

/// Measures the agents of these machines together.
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
        let output = ended("the end of an agent", agent);
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
    // The link is slow, but not wrong.
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
