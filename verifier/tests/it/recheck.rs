//! The agent on a node in use: it does little, and nothing that the node's user would notice.

use market::attestation::{FindingCode, Outcome, Verdict};
use market::verification::{Digest, GpuClaim, GpuFacts, Level, Word64};
use verifier::device::{Device, DeviceError, PatternCheck, Rate};
use verifier::gemm::GemmInputs;
use verifier::memory::Contents;
use verifier::order::{Mode, order_for_recheck};

use crate::stage::*;

/// A GPU in use by somebody else: all but a little of its memory is theirs.
struct InUse(Box<dyn Device>);

/// The memory left. Units: bytes.
const LEFT: u64 = 4 << 20;

impl Device for InUse {
    fn claim(&self) -> GpuClaim {
        self.0.claim()
    }

    fn multiply(&mut self, inputs: &GemmInputs) -> Result<Word64, DeviceError> {
        self.0.multiply(inputs)
    }

    fn row_sums(&mut self) -> Result<Vec<Word64>, DeviceError> {
        self.0.row_sums()
    }

    fn read_rows(&mut self, rows: &[u32]) -> Result<Vec<Vec<i32>>, DeviceError> {
        self.0.read_rows(rows)
    }

    fn allocatable_mib(&mut self) -> Result<u32, DeviceError> {
        panic!("to try how much can be had takes it from who uses the GPU")
    }

    fn fill(&mut self, contents: &Contents, bytes: u64) -> Result<u64, DeviceError> {
        assert!(bytes <= LEFT, "{bytes}");
        self.0.fill(contents, bytes)
    }

    fn compare(&mut self, contents: &Contents) -> Result<PatternCheck, DeviceError> {
        self.0.compare(contents)
    }

    fn invert(&mut self, _: &Contents, _: bool) -> Result<PatternCheck, DeviceError> {
        panic!("no pass but one")
    }

    fn digest_blocks(&mut self, block: u32, key: &Digest) -> Result<Vec<Word64>, DeviceError> {
        self.0.digest_blocks(block, key)
    }

    fn copy_mb_per_s(&mut self, _: u32) -> Result<u64, DeviceError> {
        panic!("no rate is measured beside the work of others")
    }

    fn observe(&mut self) -> Result<GpuFacts, DeviceError> {
        self.0.observe()
    }

    fn xids(&mut self) -> Result<Option<Vec<u32>>, DeviceError> {
        self.0.xids()
    }

    fn rate_mb_per_s(&mut self, _: Rate, _: u32) -> Result<Option<u64>, DeviceError> {
        panic!("no rate is measured beside the work of others")
    }
}

#[test]
fn a_recheck_does_little_beside_the_work_of_others() {
    let mut node = description(2).node();
    let devices = std::mem::take(&mut node.devices).into_iter();
    node.devices = devices
        .map(|device| Box::new(InUse(device)) as Box<dyn Device>)
        .collect();
    let mut opening = opening(2, Level::Quick, Mode::Simulation);
    opening.order = order_for_recheck(opening.order.expected, 0, Mode::Simulation);
    let mut broker = broker(opening, 1);
    talk(&mut node, &mut broker).expect("a conversation");
    let result = broker.attestation().expect("a result");
    assert!(result.recheck);
    // The broker of this test pinned no GPUs; all else was done.
    assert_eq!(result.verdict, Verdict::Inconclusive);
    let undone: Vec<_> = (result.findings.iter())
        .filter(|found| !matches!(found.outcome, Outcome::Met | Outcome::Noted))
        .map(|found| found.code)
        .collect();
    assert_eq!(undone, [FindingCode::InventoryPinned]);
    for code in [FindingCode::SdcExact, FindingCode::MemoryProof] {
        assert_eq!(outcome_of(result, code), Outcome::Met, "{code}");
    }
}
