//! The rule that no GPU is sold twice: a node shows each GPU once, and no other node of the rental shows it
//! too.

use market::attestation::{Finding, FindingCode};
use market::gpu::Gpu;

use super::seen::Seen;
use super::{not_run, per_gpu};
use crate::evidence::Sibling;

/// GPUs that may share a board, and so a serial number: their serial numbers are not compared, only their
/// ids. A name too many in this list is harmless.
const SEVERAL_ON_A_BOARD: [&str; 5] = ["GB300", "GB200", "A16", "M60", "K80"];

pub(super) fn shown_once(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::InventoryUnique;
    let inventory = seen.evidence.inventory.as_ref();
    let Some(gpus) = inventory.map(|it| &it.gpus).filter(|gpus| !gpus.is_empty()) else {
        return not_run(code);
    };
    let facts = seen.facts().map_or(&[][..], |facts| &facts.gpus);
    let kind = seen.order.expected.gpu;
    let problem = |gpu: usize| {
        let uuid = &gpus[gpu].uuid;
        if uuid.trim().is_empty() {
            return Some("it has no id".to_owned());
        }
        let mut others = (0..gpus.len()).filter(|other| *other != gpu);
        if let Some(other) = others.find(|other| is_same(uuid, &gpus[*other].uuid)) {
            return Some(format!("its id is that of GPU {other}"));
        }
        let serial = facts.get(gpu).and_then(|facts| facts.serial.as_deref());
        let serial = serial.filter(|_| has_own_board(kind));
        let mut siblings = seen.evidence.siblings.iter();
        siblings.find_map(|sibling| shown_by(sibling, uuid, serial))
    };
    let problems: Vec<Option<String>> = (0..gpus.len()).map(problem).collect();
    let good = "Every GPU is shown once, and by no other node of the rental that has reported.";
    per_gpu(code, good, problems.iter().map(Option::as_ref))
}

fn shown_by(sibling: &Sibling, uuid: &str, serial: Option<&str>) -> Option<String> {
    let node = sibling.node;
    if sibling.uuids.iter().any(|other| is_same(uuid, other)) {
        return Some(format!("node {node} of the rental shows it too, by its id"));
    }
    let serial = serial.filter(|serial| says_something(serial))?;
    let mut others = sibling.serials.iter();
    let shared = others.any(|other| is_same(serial, other));
    shared.then(|| format!("node {node} of the rental shows its board too, by the serial number"))
}

pub(super) fn has_own_board(gpu: Gpu) -> bool {
    !SEVERAL_ON_A_BOARD.contains(&gpu.name())
}

/// Whether a serial number identifies a board: drivers write zeros where there is none.
pub(super) fn says_something(serial: &str) -> bool {
    serial.contains(|c: char| c.is_ascii_alphanumeric() && c != '0')
}

pub(super) fn is_same(one: &str, other: &str) -> bool {
    one.trim().eq_ignore_ascii_case(other.trim())
}
