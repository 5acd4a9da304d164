//! Rules on storage, where a rate was promised with the node.

use market::attestation::{Finding, FindingCode, Outcome, Unit};
use market::verification::{StorageFacts, StoragePromise};

use super::seen::{Seen, not_applicable};
use super::{finding, not_run, number, share};

/// Share of a promised rate that must be reached. Units: percent. House rule: promises hold for many requests
/// at once and an empty device, while four threads read and write a file in large blocks.
const FLOOR_PERCENT: u64 = 50;
/// Up to how far above the floor a rate is still reported, as a share of the floor. Units: percent.
const ODD_PERCENT: u64 = 105;

pub(super) fn read(seen: &Seen<'_>) -> Finding {
    held(
        seen,
        FindingCode::StorageRead,
        "read",
        |promise| promise.read_bytes_per_s,
        |facts| facts.read_mb_per_s,
    )
}

pub(super) fn write(seen: &Seen<'_>) -> Finding {
    held(
        seen,
        FindingCode::StorageWrite,
        "written",
        |promise| promise.write_bytes_per_s,
        |facts| facts.write_mb_per_s,
    )
}

fn held(
    seen: &Seen<'_>,
    code: FindingCode,
    done: &str,
    promised: fn(&StoragePromise) -> Option<u64>,
    measured: fn(&StorageFacts) -> u64,
) -> Finding {
    let promise = seen.order.expected.storage.as_ref();
    let Some(promised) = promise.and_then(promised) else {
        return not_applicable(code, "No rate of storage was promised with this node.");
    };
    let facts = seen.facts().and_then(|facts| facts.storage.as_ref());
    let Some(facts) = facts.filter(|facts| facts.bytes > 0) else {
        return not_run(code);
    };
    // No time was left for it: a rate of zero is not a storage device's.
    if measured(facts) == 0 {
        return not_run(code);
    }
    let expected = promised / 1_000_000;
    let (measured, floor) = (measured(facts), share(expected, FLOOR_PERCENT, 100));
    let past = match facts.direct {
        true => "",
        false => " (through the system's cache, flushed)",
    };
    let said = format!("Storage is {done} at {measured} MB/s{past} where {expected} were promised");
    let found = if measured < floor {
        finding(code, Outcome::Failed, format!("{said}."))
    } else if measured < share(floor, ODD_PERCENT, 100) {
        finding(code, Outcome::Warned, format!("{said}: barely enough."))
    } else {
        finding(code, Outcome::Met, format!("{said}."))
    };
    Finding {
        unit: Some(Unit::MbPerS),
        measured: Some(number(measured)),
        floor: Some(number(floor)),
        expected: Some(number(expected)),
        ..found
    }
}
