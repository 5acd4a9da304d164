//! Changes that make a good node's evidence bad.

use market::verification::{GpuCounts, HealthCounters, HostLink, LoggedXid, XidEvent};

use super::*;
use crate::evidence::Sibling;

pub(super) type Change = fn(&mut Evidence);

pub(super) fn health(evidence: &mut Evidence, index: usize) -> &mut HealthCounters {
    &mut gpu(evidence, index).health_after
}

pub(super) fn xids(evidence: &mut Evidence, xids: &[u32]) {
    let event = |xid: &u32| XidEvent {
        gpu: Some(2),
        xid: *xid,
    };
    facts(evidence).xids = Some(xids.iter().map(event).collect());
}

/// The kernel's log of an error of one GPU.
pub(super) fn logged(evidence: &mut Evidence, index: usize, xid: u32) -> Vec<LoggedXid> {
    gpu(evidence, index).bus_id = Some("00000000:C1:00.0".to_owned());
    let bus_id = "0000:c1:00".to_owned();
    let action = None;
    vec![LoggedXid {
        bus_id,
        xid,
        action,
    }]
}

/// One GPU has a name that drivers give to boards they do not know yet.
pub(super) fn unnamed(evidence: &mut Evidence) {
    claims(evidence)[1].name = "NVIDIA Graphics Device".to_owned();
}

/// All GPUs are in slots of this generation with this many lanes, and reach this rate there.
pub(super) fn slots(evidence: &mut Evidence, generation: u32, width: u32, mb_per_s: u64) {
    for gpu in &mut facts(evidence).gpus {
        gpu.host_link = Some(HostLink { generation, width });
        gpu.rates.from_host_mb_per_s = vec![mb_per_s];
        gpu.rates.to_host_mb_per_s = vec![mb_per_s];
        gpu.rates.from_host_together_mb_per_s = vec![mb_per_s];
    }
}

/// Changes the counts of the sources, at the beginning and at the end.
pub(super) fn counts(evidence: &mut Evidence, change: fn(&mut GpuCounts)) {
    change(&mut facts(evidence).host.counts);
    change(facts(evidence).recount.as_mut().expect("counted"));
}

/// The claims of another node of the rental.
pub(super) fn beside(evidence: &mut Evidence, uuid: &str, serial: &str) {
    gpu(evidence, 6).serial = Some("1650522001234".to_owned());
    evidence.siblings = vec![Sibling {
        node: 2,
        uuids: vec![uuid.to_owned()],
        serials: vec![serial.to_owned()],
    }];
}

/// Sets the host's clock this far from the broker's. Units: ms.
pub(super) fn clock(evidence: &mut Evidence, ahead_ms: i64) {
    let reported = evidence.reported_at.expect("reported").timestamp_millis();
    facts(evidence).host.clock_ms = Some((reported + ahead_ms).unsigned_abs());
}

pub(super) fn driver(evidence: &mut Evidence, version: &str) {
    evidence.inventory.as_mut().expect("an inventory").driver = version.to_owned();
}

pub(super) const MOST_REMAPPED_ROWS: u32 = 512;

pub(super) fn burn(evidence: &mut Evidence) -> &mut market::verification::BurnFacts {
    gpu(evidence, 3).burn.as_mut().expect("a load")
}

pub(super) fn diagnostic(evidence: &mut Evidence) -> &mut DiagnosticFacts {
    facts(evidence).diagnostic.as_mut().expect("a diagnostic")
}

pub(super) fn storage(evidence: &mut Evidence) -> &mut StorageFacts {
    facts(evidence).storage.as_mut().expect("storage")
}

pub(super) fn port(evidence: &mut Evidence) -> &mut market::verification::PortFacts {
    &mut facts(evidence).host.ports.as_mut().expect("ports")[5]
}

/// One more port, of this rate.
pub(super) fn spare(evidence: &mut Evidence, gbps: u32) -> &mut market::verification::PortFacts {
    let another = market::verification::PortFacts {
        rate_gbps: Some(gbps),
        ..port(evidence).clone()
    };
    let ports = facts(evidence).host.ports.as_mut().expect("ports");
    ports.push(another);
    ports.last_mut().expect("a port")
}

pub(super) fn pair(evidence: &mut Evidence, mb_per_s: u64) {
    facts(evidence).pairs.as_mut().expect("pairs")[9].mb_per_s = mb_per_s;
}
