//! Rules on the host itself: its size, its hypervisor, and its clock.

use market::attestation::{Finding, FindingCode, Outcome, Unit};
use market::offer::Tenancy;

use super::seen::{Seen, not_applicable};
use super::{finding, not_run, number};
use crate::plain::plain;

/// How far a host's clock may differ from the broker's, including the report's way to the broker. Units: ms.
const MOST_APART_MS: u64 = 30_000;

/// Words in a virtual machine's product name, as hypervisors set it. Source: systemd, `src/basic/virt.c`, and
/// the hypervisors' own firmware tables.
const VIRTUAL: [&str; 11] = [
    "kvm",
    "qemu",
    "vmware",
    "virtualbox",
    "innotek",
    "xen",
    "bochs",
    "parallels",
    "bhyve",
    "virtual machine",
    "google compute engine",
];

pub(super) fn shape(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HostShape;
    let Some(inventory) = &seen.evidence.inventory else {
        return not_run(code);
    };
    let expected = &seen.order.expected;
    let host = seen.facts().map(|facts| &facts.host);
    // The lesser of two claims: the agent's own count, and the system's files.
    let least = |told: u32, read: Option<u32>| read.map_or(told, |read| read.min(told));
    let vcpus = least(inventory.vcpus, host.and_then(|host| host.vcpus));
    let memory_gib = least(inventory.memory_gib, host.and_then(|host| host.memory_gib));
    let parts = [
        (Unit::Vcpus, 1, expected.vcpus, vcpus, "virtual CPUs"),
        (
            Unit::Mib,
            1 << 10,
            expected.memory_gib,
            memory_gib,
            "GiB of memory",
        ),
    ];
    let shares = parts
        .into_iter()
        .filter_map(|(unit, units, leased, has, what)| {
            let leased = leased.filter(|leased| *leased > 0)?;
            let percent = u64::from(has) * 100 / u64::from(leased);
            let figures = [has, leased].map(|figure| i64::from(figure) * units);
            Some((percent, unit, figures, format!("{has} of {leased} {what}")))
        });
    let Some((worst, unit, [has, leased], said)) = shares.min_by_key(|(percent, ..)| *percent)
    else {
        return not_applicable(code, "The lease does not state the size of the host.");
    };
    let found = match worst {
        // A few GPUs that pose as many come with the host of a few.
        ..50 => finding(code, Outcome::Failed, format!("The host has only {said}.")),
        50..95 => finding(code, Outcome::Warned, format!("The host has only {said}.")),
        _ => finding(code, Outcome::Met, "The host is as large as leased."),
    };
    Finding {
        unit: Some(unit),
        measured: Some(has),
        floor: Some(leased / 2),
        expected: Some(leased),
        ..found
    }
}

pub(super) fn virtualised(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HostVirtualised;
    let Some(host) = seen.facts().map(|facts| &facts.host) else {
        return not_run(code);
    };
    let name = host.machine.as_deref().unwrap_or_default();
    let lower = name.to_lowercase();
    let is_named_so = VIRTUAL.iter().any(|word| lower.contains(word));
    let called = match name {
        "" => String::new(),
        name => format!(" Its firmware calls it {}.", plain(name)),
    };
    let is_virtual = match host.hypervisor {
        Some(says) => says || is_named_so,
        None if is_named_so => true,
        None => {
            let note =
                format!("The processors do not report whether a hypervisor runs them.{called}");
            return finding(code, Outcome::NotRun, note);
        }
    };
    let is_whole = seen.order.expected.tenancy == Some(Tenancy::BareMetal);
    match (is_virtual, is_whole) {
        (true, true) => {
            let note = format!("A hypervisor runs what was sold as a whole machine.{called}");
            finding(code, Outcome::Warned, note)
        }
        (true, false) => not_applicable(code, &format!("A hypervisor runs the host.{called}")),
        (false, true) => finding(code, Outcome::Met, "No hypervisor is visible."),
        (false, false) => not_applicable(
            code,
            "No hypervisor is visible, and the offer excludes none.",
        ),
    }
}

pub(super) fn clock(seen: &Seen<'_>) -> Finding {
    let code = FindingCode::HostClock;
    let Some((facts, came)) = seen.facts().zip(seen.evidence.reported_at) else {
        return not_run(code);
    };
    let Some(told) = facts.host.clock_ms else {
        // A simulated node has no clock, nor has the report of an agent that stopped.
        return not_applicable(code, "The report does not carry the host's time.");
    };
    let told = i64::try_from(told).unwrap_or(i64::MAX);
    let ahead_ms = told.saturating_sub(came.timestamp_millis());
    let apart_ms = ahead_ms.unsigned_abs();
    let (outcome, note) = match ahead_ms {
        _ if apart_ms <= MOST_APART_MS => (Outcome::Met, "The host's clock is right."),
        1.. => (Outcome::Warned, "The host's clock is ahead."),
        _ => {
            let note = "The host's clock is behind, or its report was long on its way.";
            (Outcome::Warned, note)
        }
    };
    Finding {
        unit: Some(Unit::Ms),
        measured: Some(number(apart_ms)),
        floor: Some(number(MOST_APART_MS)),
        ..finding(code, outcome, note)
    }
}
