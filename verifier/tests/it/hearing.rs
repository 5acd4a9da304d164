//! The unmodified agent of a machine in conversation with a broker in memory, over a socket.

use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use fake_driver::script::VARIABLE;
use market::attestation::Attestation;
use market::verification::Step;
use serde_json::Value;
use verifier::local::LocalBroker;

use crate::eventually::output_of;
use crate::machine::*;
use crate::server::*;
use crate::stage::*;

/// The result of a conversation over a socket.
pub struct Heard {
    pub attestation: Attestation,
    /// The agent's messages, as they arrived.
    pub said: Vec<(Step, String)>,
    pub output: Output,
}

/// Connects the agent of a machine to a broker; `between` may change the messages.
pub fn hear(
    machine: &Machine,
    prepare: impl FnOnce(&mut Command),
    broker: LocalBroker,
    between: impl FnMut(Step, Way, &mut Value) + Send + 'static,
) -> Heard {
    let at_once = |command: &mut Command| {
        command.args(["--fabric-patience-seconds", "0"]);
        prepare(command);
    };
    hear_patiently(machine, at_once, broker, between)
}

/// The same, where the agent waits for its driver.
pub fn hear_patiently(
    machine: &Machine,
    prepare: impl FnOnce(&mut Command),
    broker: LocalBroker,
    mut between: impl FnMut(Step, Way, &mut Value) + Send + 'static,
) -> Heard {
    let broker = Arc::new(Mutex::new(Some((broker, Vec::new()))));
    let listening = Arc::clone(&broker);
    let (url, _) = serve(usize::MAX, move |request| {
        let mut held = listening.lock().expect("nobody panics while holding it");
        let Some((broker, said)) = held.as_mut() else {
            return (503, "", String::new());
        };
        let step = request.step();
        let mut body: Value = serde_json::from_str(&request.body).expect("json");
        between(step, Way::ToBroker, &mut body);
        said.push((step, body.to_string()));
        let request = Request {
            body: body.to_string(),
            ..request
        };
        let (status, headers, text) = answer(broker, &request);
        let mut reply: Value = serde_json::from_str(&text).expect("json");
        between(step, Way::ToAgent, &mut reply);
        (status, headers, reply.to_string())
    });
    let mut command = agent(Some(machine.folder.path()));
    prepare(&mut command);
    let output = output_of(
        command
            .env(VARIABLE, machine.path("script.json"))
            .env("VERIFIER_TOKEN", TOKEN)
            .args(["--patience-seconds", "5"])
            .args(["--broker", &url, "--host", "10.0.0.1", "--json"])
            .args(["--verification", &verification_id().to_string()]),
    );
    let taken = broker
        .lock()
        .expect("nobody panics while holding it")
        .take();
    let (broker, said) = taken.expect("it was there");
    Heard {
        attestation: broker.into_attestation(),
        said,
        output,
    }
}

/// The direction of a message.
#[derive(Clone, Copy, PartialEq)]
pub enum Way {
    ToBroker,
    ToAgent,
}

pub fn plainly(_: &mut Command) {}

pub fn unchanged(_: Step, _: Way, _: &mut Value) {}
