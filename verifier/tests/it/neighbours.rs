//! Other processes on the GPUs that are checked: what they hold, and what they take of the rates.

use fake_driver::neighbours::{Neighbours, Use};
use market::attestation::FindingCode;
use market::verification::{Level, Step};

use crate::hearing::*;
use crate::machine::*;
use crate::stage::*;

/// How much of the time two processes stream that always have work waiting. Units: thousandths.
const TWO_HOGS_PERMILLE: u32 = 2_000;

/// What is found on two H100s of which the second is used so by another process, from this step's answer on.
fn found(from: Step, bytes: u64, streams_permille: u32) -> Vec<FindingCode> {
    let machine = Machine::new(&broken(|_| {}));
    let mut opening = opening(2, Level::Quick, verifier::order::Mode::Simulation);
    opening.order.bandwidth.samples = 2;
    let mut other = Neighbours::of(&machine.path("script.json"));
    let use_it = move |other: &mut Neighbours| {
        other.tell(Use {
            gpu: 1,
            bytes,
            streams_permille,
        });
    };
    if from == Step::Commit {
        use_it(&mut other);
    }
    let heard = hear(
        &machine,
        plainly,
        broker(opening, 1),
        move |step, way, _| {
            if (step, way) == (from, Way::ToBroker) {
                use_it(&mut other);
            }
        },
    );
    assert!(
        !heard.attestation.verdict.is_pass(),
        "{:#?}",
        heard.attestation
    );
    failures(&heard.attestation)
}

#[test]
fn processes_that_stream_or_hold_memory_on_the_same_gpu_are_noticed() {
    use FindingCode as Code;
    // Two that begin after the agent's first look: only the rates tell.
    let hogs = found(Step::Fill, 0, TWO_HOGS_PERMILLE);
    assert_eq!(hogs, [Code::MemoryBandwidth, Code::MemoryRead]);
    // 30 % of the memory, held from before.
    let held = found(Step::Commit, 24 << 30, 0);
    assert_eq!(held, [Code::InventoryResidue, Code::MemoryCapacity]);
}
