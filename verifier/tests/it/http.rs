//! The conversation over a real socket, against a small server on loopback.

use std::cell::RefCell;
use std::net::TcpListener;
use std::rc::Rc;
use std::time::Duration;

use market::attestation::Verdict;
use market::verification::{Level, Step};
use verifier::agent::{AgentError, AgentOutcome, Transport, TransportError, converse};
use verifier::device::Node;
use verifier::http::HttpBroker;
use verifier::local::LocalBroker;
use verifier::order::Mode;

use crate::server::*;
use crate::stage::*;

struct Call {
    outcome: Result<AgentOutcome, AgentError>,
    pauses: Vec<Duration>,
}

fn call(url: &str, node: &mut Node, patience: Duration) -> Call {
    let pauses = Rc::new(RefCell::new(Vec::new()));
    let noted = Rc::clone(&pauses);
    let mut broker = HttpBroker::with_pause(
        url.parse().expect("an address"),
        verification_id(),
        TOKEN.parse().expect("a token"),
        patience,
        Box::new(move |pause| noted.borrow_mut().push(pause)),
    );
    let outcome = converse(node, verification_id(), &signer(), &mut broker);
    drop(broker);
    Call {
        outcome,
        pauses: pauses.take(),
    }
}

const MINUTE: Duration = Duration::from_secs(60);

fn broker_of(mode: Mode) -> LocalBroker {
    broker(opening(2, Level::Quick, mode), 1)
}

#[test]
fn a_node_is_verified_over_http_though_the_broker_is_not_ready_at_first() {
    let mut seen = 0;
    let mut broker = broker_of(Mode::Simulation);
    let (url, serving) = serve(9, move |request| {
        seen += 1;
        let path = format!("POST /v1/verifications/{}/steps/", verification_id());
        assert!(request.line.starts_with(&path), "{}", request.line);
        assert_eq!(request.authorization, format!("Bearer {TOKEN}"));
        match seen {
            1 => (409, "", problem("lease_not_ready")),
            2 => (503, "", String::new()),
            4 => (429, "retry-after: 3\r\n", problem("too_many_requests")),
            _ => answer(&mut broker, &request),
        }
    });
    let Call { outcome, pauses } = call(&url, &mut description(2).node(), MINUTE);
    assert_eq!(outcome.expect("a conversation").verdict, Verdict::Pass);
    assert_eq!(pauses.len(), 3);
    assert!(pauses[0] <= Duration::from_millis(100), "{pauses:?}");
    assert_eq!(pauses[2], Duration::from_secs(3), "as the broker asked");
    serving.ends();
}

#[test]
fn a_node_waits_for_its_siblings_beyond_its_patience_and_never_long_at_a_time() {
    let (mut seen, waits) = (0, 90);
    let mut broker = broker_of(Mode::Simulation);
    let (url, serving) = serve(waits + 6, move |request| {
        seen += 1;
        match seen {
            _ if seen > waits => answer(&mut broker, &request),
            1 => (409, "", problem("siblings_not_ready")),
            _ => (409, "retry-after: 1\r\n", problem("siblings_not_ready")),
        }
    });
    let Call { outcome, pauses } = call(&url, &mut description(2).node(), MINUTE);
    assert_eq!(outcome.expect("a conversation").verdict, Verdict::Pass);
    assert_eq!(pauses.len(), waits);
    let (least, most) = (Duration::from_secs(1), Duration::from_millis(1_500));
    let are_short = |pause: &Duration| (least..=most).contains(pause);
    assert!(pauses.iter().all(are_short), "{pauses:?}");
    serving.ends();
}

#[test]
fn a_refusal_ends_the_conversation_at_once_and_does_not_show_the_token() {
    for (status, code) in [
        (401, "token_unknown"),
        (409, "step_out_of_order"),
        (422, "malformed"),
    ] {
        let (url, serving) = serve(1, move |_| (status, "", problem(code)));
        let Call { outcome, pauses } = call(&url, &mut description(2).node(), MINUTE);
        let refusal = outcome.expect_err("a refusal").to_string();
        assert!(
            refusal.contains(code) && refusal.contains("The detail."),
            "{refusal}"
        );
        assert!(!refusal.contains(TOKEN), "{refusal}");
        assert!(pauses.is_empty());
        serving.ends();
    }
}

#[test]
fn a_redirect_is_not_followed() {
    for status in [302, 307] {
        let elsewhere = TcpListener::bind("127.0.0.1:0").expect("a port");
        elsewhere.set_nonblocking(true).expect("set");
        let location = format!(
            "location: http://{}/\r\n",
            elsewhere.local_addr().expect("it")
        );
        let location: &'static str = location.leak();
        let (url, serving) = serve(1, move |_| (status, location, String::new()));
        let Call { outcome, .. } = call(&url, &mut description(2).node(), Duration::ZERO);
        let refused = matches!(
            outcome,
            Err(AgentError::Transport(TransportError::Refused { status: got, .. })) if got == status
        );
        assert!(refused, "{outcome:?}");
        assert!(elsewhere.accept().is_err(), "nobody came");
        serving.ends();
    }
}

#[test]
fn patience_ends() {
    let (url, serving) = serve(64, |_| (503, "", String::new()));
    let patience = Duration::from_secs(20);
    let Call { outcome, pauses } = call(&url, &mut description(2).node(), patience);
    let gave_up = matches!(
        outcome,
        Err(AgentError::Transport(TransportError::GaveUp {
            step: Step::Commit,
            ..
        }))
    );
    assert!(gave_up);
    assert!(pauses.iter().sum::<Duration>() <= patience);
    assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(5)));
    assert!(pauses.len() >= 6 && pauses.len() < 64, "{pauses:?}");
    drop(serving);
}

#[test]
fn a_broker_that_is_not_there_is_tried_again_and_then_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    drop(listener);
    let patience = Duration::from_millis(900);
    let Call { outcome, pauses } = call(&url, &mut description(2).node(), patience);
    assert!(matches!(
        outcome,
        Err(AgentError::Transport(TransportError::GaveUp { .. }))
    ));
    assert!(!pauses.is_empty());
}

#[test]
fn an_order_for_real_hardware_is_not_answered_over_plain_http() {
    let mut broker = broker_of(Mode::Real);
    let (url, serving) = serve(1, move |request| answer(&mut broker, &request));
    let mut node = description(2).node();
    node.kind = market::verification::DeviceKind::Cuda;
    let Call { outcome, .. } = call(&url, &mut node, MINUTE);
    assert!(matches!(outcome, Err(AgentError::PlainHttp)), "{outcome:?}");
    serving.ends();
}

/// A broker that gives a reference device an order for real hardware.
struct Careless(LocalBroker);

impl Transport for Careless {
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError> {
        let answer = self.0.send(step, body)?;
        Ok(answer.replace(r#""simulation":true"#, r#""simulation":false"#))
    }

    fn is_private(&self) -> bool {
        true
    }
}

#[test]
fn a_reference_device_refuses_an_order_for_real_hardware() {
    let mut careless = Careless(broker_of(Mode::Simulation));
    let outcome = talk(&mut description(2).node(), &mut careless);
    assert!(
        matches!(outcome, Err(AgentError::NotSimulation)),
        "{outcome:?}"
    );
}
