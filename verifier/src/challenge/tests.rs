//! The broker's cost of a message that it refuses.

use market::gpu::Gpu;
use market::verification::{Level, Word64};
use uuid::Uuid;

use super::*;
use crate::agent::{Transport, TransportError, converse};
use crate::jws::Signer;
use crate::local::LocalBroker;
use crate::order::{expected_node, order_for};
use crate::prf::drawn;
use crate::reference::NodeDescription;

/// A conversation with a good node: each message, with the session that received it.
struct Overheard {
    broker: LocalBroker,
    came: Vec<(Option<Session>, String)>,
}

impl Transport for Overheard {
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError> {
        self.came
            .push((self.broker.session().cloned(), body.to_owned()));
        self.broker.send(step, body)
    }

    fn is_private(&self) -> bool {
        true
    }
}

impl Overheard {
    fn of_two_gpus() -> Self {
        let expected = expected_node(Gpu::parse("H100-SXM").expect("known"), 2);
        let opening = Opening {
            verification_id: VerificationId::from_uuid(Uuid::from_u128(1)),
            lease_id: LeaseId::from_uuid(Uuid::from_u128(2)),
            mode: Mode::Simulation,
            order: order_for(expected.clone(), 0, Level::Quick, Mode::Simulation),
        };
        let id = opening.verification_id;
        let attestation_id = judging().attestation_id;
        let mut overheard = Self {
            broker: LocalBroker::new(opening, attestation_id),
            came: Vec::new(),
        };
        let uuids = vec!["GPU-0".to_owned(), "GPU-1".to_owned()];
        let mut node = NodeDescription::as_sold(&expected, "10.0.0.1".to_owned(), uuids).node();
        converse(&mut node, id, &Signer::from_seed(&[41; 32]), &mut overheard).expect("a talk");
        overheard
    }

    /// A message and the session that received it.
    fn before<Q: DeserializeOwned>(&self, step: Step) -> (&Session, Q) {
        let (session, body) = &self.came[usize::from(step.number()) - 1];
        let session = session.as_ref().expect("a session");
        (session, serde_json::from_str(body).expect("a message"))
    }
}

fn judging() -> Judging {
    Judging {
        attestation_id: AttestationId::from_uuid(Uuid::from_u128(3)),
        now: "2026-03-04T05:06:07Z".parse().expect("a time"),
    }
}

/// Whether an answer was refused for a number that no document can contain, and how many words were drawn for
/// it.
fn drawn_for<R>(answer: impl FnOnce() -> Result<Answered<R>, StepError>) -> (bool, usize) {
    let before = drawn::so_far();
    let refused = matches!(answer(), Err(StepError::Canonical(_)));
    (refused, drawn::so_far() - before)
}

#[test]
fn nothing_is_computed_for_openings_that_are_not_taken() {
    let overheard = Overheard::of_two_gpus();
    let (session, good) = overheard.before::<Openings>(Step::Openings);
    let answer =
        |openings: &Openings| drawn_for(|| session.on_openings(openings, [3; 32], Duration::ZERO));
    let (refused, drawn) = answer(&good);
    assert!(!refused && drawn > 10_000, "{drawn}");
    let mut beyond = good.clone();
    beyond.gpus[1].bad_words = 1 << 60;
    assert_eq!(answer(&beyond), (true, 0));
    let mut beyond = good;
    beyond.gpus[1].lowest_bad_offset = Some(1 << 53);
    assert_eq!(answer(&beyond), (true, 0));
}

#[test]
fn nothing_is_computed_for_a_report_that_is_not_taken() {
    let overheard = Overheard::of_two_gpus();
    let (session, good) = overheard.before::<ReportSubmission>(Step::Report);
    let answer = |report: &ReportSubmission| {
        drawn_for(|| session.on_report(report, judging(), Duration::ZERO))
    };
    let (refused, drawn) = answer(&good);
    assert!(!refused && drawn > 10_000, "{drawn}");
    let mut beyond = good.clone();
    beyond.blocks[1][0].block = 1 << 60;
    assert_eq!(answer(&beyond), (true, 0));
    let mut short = good;
    short.blocks.pop();
    let before = drawn::so_far();
    let refused = session.on_report(&short, judging(), Duration::ZERO);
    assert!(matches!(refused, Err(StepError::Malformed(_))));
    assert_eq!(drawn::so_far(), before);
}

#[test]
fn no_more_checksums_are_kept_than_products_were_ordered() {
    let overheard = Overheard::of_two_gpus();
    let (session, mut roots) = overheard.before::<Roots>(Step::Roots);
    let answer = |roots: &Roots| session.on_roots(roots, [3; 32], Duration::ZERO);
    // Fewer are accepted and judged.
    roots.gpus[0].checksums.pop();
    assert!(answer(&roots).is_ok());
    let ordered = session.opening().order.gemm.iterations as usize;
    roots.gpus[1].checksums.resize(ordered + 1, Word64(1));
    let refused = answer(&roots);
    assert!(
        matches!(refused, Err(StepError::Malformed(what)) if what.contains("checksums")),
        "{refused:?}"
    );
}
