//! The broker's own time does not count as the node's.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use market::attestation::Verdict;
use market::verification::{Digest, GpuClaim, Level, Step, Word64};
use verifier::agent::{Transport, TransportError};
use verifier::device::{Device, DeviceError, PatternCheck};
use verifier::gemm::GemmInputs;
use verifier::local::{ByClock, LocalBroker};
use verifier::memory::Contents;
use verifier::order::Mode;

use crate::stage::*;

/// How long the slow broker takes for each answer.
const TAKES: Duration = Duration::from_millis(300);

struct SlowBroker {
    inner: LocalBroker,
    /// When the order was sent.
    ordered: Option<Instant>,
}

impl Transport for SlowBroker {
    fn send(&mut self, step: Step, body: &str) -> Result<String, TransportError> {
        std::thread::sleep(TAKES);
        let answer = self.inner.send(step, body);
        self.ordered.get_or_insert_with(Instant::now);
        answer
    }

    fn is_private(&self) -> bool {
        self.inner.is_private()
    }
}

/// A GPU that records the deadlines it gets.
struct Heard {
    inner: Box<dyn Device>,
    deadlines: Arc<Mutex<Vec<Instant>>>,
}

impl Device for Heard {
    fn claim(&self) -> GpuClaim {
        self.inner.claim()
    }

    fn multiply(&mut self, inputs: &GemmInputs) -> Result<Word64, DeviceError> {
        self.inner.multiply(inputs)
    }

    fn row_sums(&mut self) -> Result<Vec<Word64>, DeviceError> {
        self.inner.row_sums()
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<Vec<i32>>, DeviceError> {
        self.inner.read_rows(rows)
    }

    fn allocatable_mib(&mut self) -> Result<u32, DeviceError> {
        self.inner.allocatable_mib()
    }

    fn fill(&mut self, contents: &Contents, bytes: u64) -> Result<u64, DeviceError> {
        self.inner.fill(contents, bytes)
    }

    fn compare(&mut self, contents: &Contents) -> Result<PatternCheck, DeviceError> {
        self.inner.compare(contents)
    }

    fn invert(&mut self, contents: &Contents, down: bool) -> Result<PatternCheck, DeviceError> {
        self.inner.invert(contents, down)
    }

    fn digest_blocks(&mut self, block: u32, key: &Digest) -> Result<Vec<Word64>, DeviceError> {
        self.inner.digest_blocks(block, key)
    }

    fn copy_mb_per_s(&mut self, sample: u32) -> Result<u64, DeviceError> {
        self.inner.copy_mb_per_s(sample)
    }

    fn set_deadline(&mut self, deadline: Instant) {
        self.deadlines.lock().expect("sound").push(deadline);
    }
}

#[test]
fn what_a_slow_broker_takes_to_answer_is_not_taken_from_the_time_of_the_rates() {
    let mut opening = opening(1, Level::Quick, Mode::Simulation);
    let whole = Duration::from_mins(5);
    let deadlines = &mut opening.order.deadlines;
    deadlines.whole_ms = whole.as_millis() as u64;
    // So that the time left for all steps together is the limit.
    deadlines.report_ms = 2 * deadlines.whole_ms;
    let told: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let mut node = description(1).node();
    let inner = node.devices.pop().expect("its GPU");
    node.devices.push(Box::new(Heard {
        inner,
        deadlines: Arc::clone(&told),
    }));
    let mut broker = SlowBroker {
        inner: broker(opening, 1),
        ordered: None,
    };
    talk(&mut node, &mut broker).expect("a conversation");
    let ordered = broker.ordered.expect("an order");
    // The first inspection and each of the five steps with work begin with one, and another comes before the
    // last blocks are opened.
    let report = told.lock().expect("sound")[6];
    let may_work = report - ordered;
    // A little of a long step is reserved.
    let alone = whole - Duration::from_secs(5);
    // Roots, fill, memory and openings were answered before.
    assert!(may_work >= alone + 4 * TAKES, "{may_work:?}");
}

#[test]
fn what_a_machine_takes_to_judge_itself_is_none_of_its_time() {
    let clock = Arc::new(Mutex::new(Instant::now()));
    let now = {
        let clock = Arc::clone(&clock);
        move || *clock.lock().expect("sound")
    };
    // The words drawn for an answer measure the computation for it.
    let draws = move || {
        *clock.lock().expect("sound") += Duration::from_hours(1);
        [7; 32]
    };
    let opening = opening(2, Level::Quick, Mode::Simulation);
    let timer = Box::new(ByClock::new(now));
    let mut broker = LocalBroker::with(opening, judging(), Box::new(draws), timer);
    talk(&mut description(2).node(), &mut broker).expect("a conversation");
    let attestation = broker.attestation().expect("a result");
    assert_eq!(attestation.verdict, Verdict::Pass, "{attestation:#?}");
}
