//! Rules on the reasons why a node stopped midway: a lost GPU, a fabric that is not ready, a driver that
//! refuses.

use market::attestation::{Finding, FindingCode, Outcome};
use market::verification::{FabricState, TroubleKind};

use super::conversation::signed_troubles;
use super::seen::{Seen, Sight, not_applicable};
use super::{finding, gpu_words, not_run};
use crate::order::is_drivable;
use crate::plain::plain;

/// The GPU fell off the bus. Source: NVIDIA's list of XID errors.
pub(super) const XID_LOST: u32 = 79;

/// The architectures whose GPUs report whether they have joined the fabric.
const TELL_FABRIC: [&str; 3] = ["Hopper", "Blackwell", "Blackwell Ultra"];

/// The agent's report of one kind of trouble, in a sentence.
pub(super) fn said(seen: &Seen<'_>, kind: TroubleKind) -> Option<String> {
    let trouble = signed_troubles(seen.evidence).find(|trouble| trouble.kind == kind)?;
    let (who, detail) = (gpu_words(trouble.gpu), plain(&trouble.detail));
    Some(format!("{who}, at step {}: {detail}", trouble.step))
}

/// Why leased GPUs of a vendor that the agent does not support cannot be judged: that is no fault of theirs.
pub(super) fn cannot_be_driven(seen: &Seen<'_>) -> Option<String> {
    if is_drivable(seen.order.expected.gpu) {
        return None;
    }
    let said = said(seen, TroubleKind::UnsupportedVendor)?;
    Some(format!(
        "The agent cannot drive these GPUs (unsupported_vendor). {said}."
    ))
}

pub(super) fn gpu_lost(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::GpuLost;
    if seen.report().is_none() {
        return not_run(code);
    }
    let mut events = seen.xids().into_iter();
    let fell = events.find(|event| event.xid == XID_LOST);
    if let Some(event) = fell {
        let note = format!(
            "{} fell off the bus (XID {XID_LOST}).",
            gpu_words(event.gpu)
        );
        return finding(code, Outcome::Failed, note);
    }
    match said(seen, TroubleKind::GpuLost) {
        Some(said) => finding(code, Outcome::Failed, format!("A GPU was lost. {said}.")),
        None if seen.evidence.gpu_count() == 0 => {
            finding(code, Outcome::NotRun, "The node shows no GPU.")
        }
        None => finding(code, Outcome::Met, "Every GPU stayed on the bus."),
    }
}

pub(super) fn agent_trouble(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::AgentTrouble;
    if seen.report().is_none() {
        return not_run(code);
    }
    if let Some(said) = cannot_be_driven(seen) {
        return finding(code, Outcome::NotRun, said);
    }
    // The agent supports the leased GPUs, so those of an unsupported vendor are not the leased ones.
    let stopped = [
        TroubleKind::OutOfMemory,
        TroubleKind::Driver,
        TroubleKind::UnsupportedVendor,
    ];
    match stopped.into_iter().find_map(|kind| said(seen, kind)) {
        Some(said) => finding(
            code,
            Outcome::Failed,
            format!("The agent could not go on. {said}."),
        ),
        None => {
            let waited = seen.facts().and_then(|facts| facts.driver.waited_s);
            let waited = waited.map(|s| format!(" It waited {s} s for the driver."));
            let good = "Nothing stopped the agent.".to_owned();
            finding(code, Outcome::Met, good + &waited.unwrap_or_default())
        }
    }
}

pub(super) fn fabric_not_ready(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::FabricNotReady;
    if let Some(said) = said(seen, TroubleKind::FabricNotReady) {
        return finding(
            code,
            Outcome::Failed,
            format!("The fabric of the node is not ready (CUDA error 802). {said}."),
        );
    }
    if !seen.is_switched() {
        return not_applicable(code, "No switch joins the GPUs of this node.");
    }
    let tells = TELL_FABRIC.contains(&seen.spec.arch.as_str());
    seen.each_gpu(code, "Every GPU has joined the fabric.", |gpu| {
        match gpu.fabric {
            Some(FabricState::Completed) => Sight::Good,
            Some(FabricState::NotSupported) | None if !tells => Sight::Good,
            None => Sight::Unseen,
            Some(FabricState::NotSupported) => {
                Sight::Bad("it reports no fabric, but its kind has one".to_owned())
            }
            Some(FabricState::NotStarted) => {
                Sight::Bad("the fabric manager has not started on it".to_owned())
            }
            Some(FabricState::InProgress) => {
                Sight::Bad("it has not joined the fabric yet".to_owned())
            }
            Some(FabricState::Failed) => Sight::Bad("the fabric refused it".to_owned()),
        }
    })
}
