//! The failures for which the GPUs of a node are quarantined.

use market::verification::{FabricState, LoggedXid};

use super::history::met_before;
use super::*;
use crate::evidence::Standing;

type Change = fn(&mut Evidence);

#[test]
fn only_failures_of_the_hardware_itself_put_it_into_quarantine() {
    let codes = |change: fn(&mut Evidence)| condemned(&judged(change).0);
    assert_eq!(codes(|_| {}), []);
    assert_eq!(
        codes(|e| memory(e)[2].bad_words = 3),
        [FindingCode::MemoryPattern]
    );
    assert_eq!(
        codes(|e| stop(e, TroubleKind::EccUncorrectable)),
        [FindingCode::HealthEcc]
    );
    assert_eq!(
        codes(|e| stop(e, TroubleKind::GpuLost)),
        [FindingCode::GpuLost]
    );
    // A reset cures it; an unsigned report is not the host's; another's GPU is not its own.
    assert_eq!(codes(|e| gpu(e, 3).mig_enabled = Some(true)), []);
    assert_eq!(
        codes(|e| report(e).signature_problem = Some("forged".to_owned())),
        []
    );
    assert_eq!(
        codes(|e| {
            met_before(e, 3, ("lambda", "x"), Standing::InUse);
        }),
        []
    );
}

/// Less memory can be allocated than a GPU of the kind has.
fn missing_memory(e: &mut Evidence) {
    e.filled.as_mut().expect("filled")[1].allocatable_mib = 40_000;
}

/// An earlier process still holds it.
fn held_memory(e: &mut Evidence) {
    missing_memory(e);
    gpu(e, 1).used_memory_mib = Some(40_000);
}

/// The driver reports that a GPU needs a reset.
fn needs_a_reset(e: &mut Evidence) {
    gpu(e, 3).bus_id = Some("00000000:C1:00.0".to_owned());
    facts(e).xids_logged = vec![LoggedXid {
        bus_id: "0000:c1:00".to_owned(),
        xid: 154,
        action: Some("0x1 (GPU Reset Required)".to_owned()),
    }];
}

#[test]
fn what_comes_of_what_a_reset_or_a_reboot_cures_condemns_nothing_and_all_else_does() {
    use FindingCode as C;
    let cases: &[(&[FindingCode], Change)] = &[
        (&[C::MemoryCapacity], missing_memory),
        (&[], held_memory),
        // More is missing than was held.
        (&[C::MemoryCapacity], |e| {
            missing_memory(e);
            gpu(e, 1).used_memory_mib = Some(10_000);
        }),
        // It was held on another GPU.
        (&[C::MemoryCapacity], |e| {
            missing_memory(e);
            gpu(e, 2).used_memory_mib = Some(40_000);
        }),
        (&[C::MemoryPattern], |e| {
            held_memory(e);
            memory(e)[2].bad_words = 3;
        }),
        // An earlier process takes time, but no GPU.
        (&[], |e| {
            held_memory(e);
            gpu(e, 1).rates.read_mb_per_s = vec![1_000_000];
        }),
        (&[C::InventoryCount], |e| {
            held_memory(e);
            claims(e).pop();
        }),
        // Copies between GPUs go over the links, and reads of their memory do not.
        (&[], |e| {
            gpu(e, 3).nvlinks_active = Some(0);
            facts(e).pairs.as_mut().expect("pairs")[0].mb_per_s = 20_000;
        }),
        (&[C::MemoryRead], |e| {
            gpu(e, 3).nvlinks_active = Some(0);
            gpu(e, 3).rates.read_mb_per_s = vec![1_000_000];
        }),
        (&[C::InventorySources], |e| {
            gpu(e, 3).nvlinks_active = Some(0);
            facts(e).host.counts.nvml = Some(7);
        }),
        // A slice is a part of a GPU.
        (&[], |e| {
            gpu(e, 3).mig_enabled = Some(true);
            claims(e).pop();
            facts(e).host.counts.cuda = Some(7);
            missing_memory(e);
            gpu(e, 3).rates.read_mb_per_s = vec![1_000_000];
        }),
        (&[], |e| {
            gpu(e, 3).mig_enabled = Some(true);
            claims(e)[3].sm_count = Some(16);
        }),
        (&[C::InventoryIdentity], |e| {
            gpu(e, 3).mig_enabled = Some(true);
            claims(e)[2].sm_count = Some(16);
        }),
        // It is another kind of GPU, in slices or not.
        (&[C::InventoryIdentity], |e| {
            gpu(e, 3).mig_enabled = Some(true);
            claims(e)[3].name = "NVIDIA A100-SXM4-80GB".to_owned();
        }),
        (&[C::SdcRepeat], |e| {
            gpu(e, 3).mig_enabled = Some(true);
            e.checksums[3][1] = Word64(6);
        }),
        // Less was filled than could be allocated: nobody held it.
        (&[C::MemoryCapacity], |e| {
            e.filled.as_mut().expect("filled")[1].filled_bytes -= 65_536;
            gpu(e, 1).used_memory_mib = Some(40_000);
        }),
        // Sums go over the links, too, and over their fabric.
        (&[], |e| {
            gpu(e, 3).nvlinks_active = Some(0);
            facts(e).collectives[0].bus_mb_per_s = 1_000;
        }),
        (&[], |e| {
            gpu(e, 3).fabric = Some(FabricState::InProgress);
            facts(e).collectives[0].bus_mb_per_s = 1_000;
        }),
        (&[C::MemoryRead], |e| {
            gpu(e, 3).fabric = Some(FabricState::InProgress);
            gpu(e, 3).rates.read_mb_per_s = vec![1_000_000];
        }),
        // A row waits for a reset; one that could not be replaced needs another GPU.
        (&[], |e| {
            gpu(e, 3).health_after.remap_pending = Some(true);
            gpu(e, 3).rates.read_mb_per_s = vec![1_000_000];
        }),
        (&[C::MemoryRead, C::HealthRemap], |e| {
            gpu(e, 3).health_after.remap_failed = Some(true);
            gpu(e, 3).rates.read_mb_per_s = vec![1_000_000];
        }),
        // By the driver's report.
        (&[], |e| {
            needs_a_reset(e);
            gpu(e, 3).rates.read_mb_per_s = vec![1_000_000];
        }),
        (&[C::MemoryPattern], |e| {
            needs_a_reset(e);
            memory(e)[2].bad_words = 3;
        }),
        // ECC that is off explains nothing.
        (&[C::MemoryRead], |e| {
            gpu(e, 3).ecc_enabled = Some(false);
            gpu(e, 3).rates.read_mb_per_s = vec![1_000_000];
        }),
    ];
    for (case, (condemning, change)) in cases.iter().enumerate() {
        let (findings, verdict) = judged(change);
        assert_eq!(verdict, Verdict::Fail, "case {case}");
        assert_eq!(condemned(&findings), *condemning, "case {case}");
    }
}
