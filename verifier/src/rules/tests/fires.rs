//! Every rule, made to fire; and the least that each accepts.

use market::verification::{
    FabricState, GpuCounts, HealthCounters, HostLink, LibraryFacts, LoggedXid, XidEvent,
};

use super::history::met_before;
use super::*;
use crate::evidence::{Sibling, Standing};
use crate::memory::work_where;

type Change = fn(&mut Evidence);

fn health(evidence: &mut Evidence, index: usize) -> &mut HealthCounters {
    &mut gpu(evidence, index).health_after
}

fn xids(evidence: &mut Evidence, xids: &[u32]) {
    let event = |xid: &u32| XidEvent {
        gpu: Some(2),
        xid: *xid,
    };
    facts(evidence).xids = Some(xids.iter().map(event).collect());
}

/// What the kernel's log has of an error of one GPU.
fn logged(evidence: &mut Evidence, index: usize, xid: u32) -> Vec<LoggedXid> {
    gpu(evidence, index).bus_id = Some("00000000:C1:00.0".to_owned());
    let bus_id = "0000:c1:00".to_owned();
    let action = None;
    vec![LoggedXid {
        bus_id,
        xid,
        action,
    }]
}

/// Changes what the sources show, at the beginning and at the end.
fn counts(evidence: &mut Evidence, change: fn(&mut GpuCounts)) {
    change(&mut facts(evidence).host.counts);
    change(facts(evidence).recount.as_mut().expect("counted"));
}

/// What another node of the rental says that it has.
fn beside(evidence: &mut Evidence, uuid: &str, serial: &str) {
    gpu(evidence, 6).serial = Some("1650522001234".to_owned());
    evidence.siblings = vec![Sibling {
        node: 2,
        uuids: vec![uuid.to_owned()],
        serials: vec![serial.to_owned()],
    }];
}

/// Sets the host's clock so far from the broker's. Units: ms.
fn clock(evidence: &mut Evidence, ahead_ms: i64) {
    let reported = evidence.reported_at.expect("reported").timestamp_millis();
    facts(evidence).host.clock_ms = Some((reported + ahead_ms).unsigned_abs());
}

fn driver(evidence: &mut Evidence, version: &str) {
    evidence.inventory.as_mut().expect("an inventory").driver = version.to_owned();
}

/// Changes after which one rule, and no other, gives the outcome.
const FIRES: &[(FindingCode, Outcome, Change)] = {
    use FindingCode as Code;
    use Outcome::{Failed, NotRun, Warned};
    &[
        (Code::InventoryIdentity, Failed, |e| {
            claims(e)[1].name = "NVIDIA A100-SXM4-80GB".to_owned()
        }),
        (Code::InventoryIdentity, Failed, |e| {
            claims(e)[1].name = "Voodoo 2".to_owned()
        }),
        (Code::InventoryIdentity, Failed, |e| {
            claims(e)[1].sm_count = Some(114)
        }),
        (Code::InventoryIdentity, Failed, |e| {
            claims(e)[1].memory_mib = 79_926
        }),
        (Code::InventoryUnique, Failed, |e| {
            claims(e)[1].uuid = "gpu-0".to_owned()
        }),
        (Code::InventoryUnique, Failed, |e| claims(e)[1].uuid.clear()),
        (Code::InventoryUnique, Failed, |e| beside(e, "GPU-6", "")),
        (Code::InventoryUnique, Failed, |e| {
            beside(e, "GPU-60", "1650522001234")
        }),
        (Code::InventoryHistory, Failed, |e| {
            met_before(e, 3, ("lambda", "x"), Standing::InUse);
        }),
        (Code::InventoryHistory, Warned, |e| {
            met_before(e, 3, ("runpod", "x"), Standing::Before);
        }),
        (Code::InventoryIdentity, Failed, |e| {
            gpu(e, 5).pci_id = Some("10de:2331".to_owned())
        }),
        (Code::InventoryIdentity, Failed, |e| {
            gpu(e, 5).compute_capability = Some("8.0".to_owned())
        }),
        (Code::InventorySources, Failed, |e| {
            counts(e, |counts| counts.kernel = Some(7))
        }),
        (Code::InventorySources, Failed, |e| {
            counts(e, |counts| counts.cuda = Some(9))
        }),
        (Code::InventorySources, Failed, |e| {
            facts(e).host.pci_ids = Some(vec!["10de:2331".to_owned(); 8]);
        }),
        (Code::InventorySources, NotRun, |e| {
            facts(e).host.counts.nvml = None
        }),
        (Code::InventorySources, Warned, |e| {
            counts(e, |counts| counts.kernel = Some(16))
        }),
        (Code::InventoryRecount, Failed, |e| {
            facts(e).recount.as_mut().expect("counted").cuda = Some(0);
        }),
        (Code::InventoryRecount, Failed, |e| {
            facts(e).recount.as_mut().expect("counted").device_nodes = None;
        }),
        (Code::InventoryRecount, Failed, |e| {
            stop(e, TroubleKind::GpuWithdrawn)
        }),
        (Code::InventoryRecount, NotRun, |e| facts(e).recount = None),
        (Code::InventorySoftware, Failed, |e| driver(e, "591.86")),
        (Code::InventorySoftware, Failed, |e| driver(e, "470.57.02")),
        (Code::InventorySoftware, Failed, |e| driver(e, "new")),
        (Code::InventorySoftware, Failed, |e| {
            facts(e).driver.cuda_version = Some(11_080)
        }),
        (Code::InventorySoftware, Failed, |e| {
            facts(e).driver.kernel_version = Some("535.54.03".to_owned());
        }),
        (Code::InventorySoftware, Failed, |e| {
            facts(e).host.preloaded = vec!["/opt/shim.so".to_owned()];
        }),
        (Code::InventorySoftware, Failed, |e| {
            facts(e).driver.libraries = vec![LibraryFacts {
                path: "/usr/local/cuda/lib64/stubs/libcuda.so".to_owned(),
                sha256: None,
            }];
        }),
        (Code::InventorySoftware, Warned, |e| {
            facts(e).driver.libraries = vec![LibraryFacts {
                path: "/tmp/.x/libcuda.so.1".to_owned(),
                sha256: None,
            }];
        }),
        (Code::InventoryMig, Failed, |e| {
            gpu(e, 3).mig_enabled = Some(true)
        }),
        (Code::InventoryMig, NotRun, |e| gpu(e, 3).mig_enabled = None),
        (Code::InventoryEccMode, Failed, |e| {
            gpu(e, 3).ecc_enabled = Some(false)
        }),
        (Code::InventoryEccMode, NotRun, |e| {
            gpu(e, 3).ecc_enabled = None
        }),
        (Code::InventoryResidue, Failed, |e| {
            gpu(e, 3).used_memory_mib = Some(816)
        }),
        (Code::InventoryResidue, Failed, |e| {
            gpu(e, 3).foreign_processes = Some(1)
        }),
        (Code::InventoryResidue, NotRun, |e| {
            gpu(e, 3).used_memory_mib = None
        }),
        (Code::HostShape, Warned, |e| facts(e).host.vcpus = Some(160)),
        (Code::HostShape, Warned, |e| {
            facts(e).host.memory_gib = Some(1_600)
        }),
        (Code::HostShape, Failed, |e| facts(e).host.vcpus = Some(44)),
        (Code::HostVirtualised, Warned, |e| {
            facts(e).host.hypervisor = Some(true)
        }),
        (Code::HostVirtualised, Warned, |e| {
            facts(e).host.machine = Some("QEMU Standard PC (Q35 + ICH9, 2009)".to_owned());
        }),
        (Code::HostVirtualised, NotRun, |e| {
            facts(e).host.hypervisor = None
        }),
        (Code::HostClock, Warned, |e| clock(e, 30_001)),
        (Code::HostClock, Warned, |e| clock(e, -30_001)),
        (Code::HostClock, NotRun, |e| facts(e).host.clock_ms = None),
        (Code::GpuLost, Failed, |e| xids(e, &[79])),
        (Code::GpuLost, Failed, |e| stop(e, TroubleKind::GpuLost)),
        (Code::AgentTrouble, Failed, |e| stop(e, TroubleKind::Driver)),
        (Code::AgentTrouble, Failed, |e| {
            stop(e, TroubleKind::OutOfMemory)
        }),
        (Code::AgentTrouble, Failed, |e| {
            stop(e, TroubleKind::UnsupportedVendor)
        }),
        (Code::FabricNotReady, Failed, |e| {
            stop(e, TroubleKind::FabricNotReady)
        }),
        (Code::FabricNotReady, Failed, |e| {
            gpu(e, 3).fabric = Some(FabricState::InProgress)
        }),
        (Code::FabricNotReady, Failed, |e| {
            gpu(e, 3).fabric = Some(FabricState::NotStarted)
        }),
        (Code::FabricNotReady, Failed, |e| {
            gpu(e, 3).fabric = Some(FabricState::NotSupported)
        }),
        (Code::FabricNotReady, Failed, |e| {
            gpu(e, 3).fabric = Some(FabricState::Failed)
        }),
        (Code::FabricNotReady, NotRun, |e| gpu(e, 3).fabric = None),
        (Code::NvlinkActive, Failed, |e| {
            gpu(e, 3).nvlinks_active = Some(17)
        }),
        (Code::NvlinkActive, Failed, |e| {
            gpu(e, 3).nvlinks_active = Some(0)
        }),
        (Code::NvlinkActive, NotRun, |e| {
            gpu(e, 3).nvlinks_active = None
        }),
        (Code::MemoryCapacity, Failed, |e| {
            e.filled.as_mut().expect("filled")[1].allocatable_mib = 79_111;
        }),
        (Code::MemoryCapacity, Failed, |e| {
            e.filled.as_mut().expect("filled")[0].filled_bytes -= 65_536;
        }),
        (Code::MemoryCapacity, NotRun, |e| e.filled = None),
        (Code::MemoryPattern, Failed, |e| memory(e)[1].bad_words = 1),
        (Code::MemoryProof, Failed, |e| {
            memory(e)[1].problem = Some("wrong".to_owned())
        }),
        (Code::MemoryBandwidth, Failed, |e| {
            report(e).copy_mb_per_s[1] = vec![1_842_499]
        }),
        (Code::MemoryBandwidth, NotRun, |e| {
            report(e).copy_mb_per_s[0].clear()
        }),
        (Code::MemoryBandwidth, NotRun, |e| {
            report(e).copy_mb_per_s.clear()
        }),
        (Code::MemoryRead, Failed, |e| {
            gpu(e, 3).rates.read_mb_per_s = vec![1_842_499]
        }),
        (Code::MemoryRead, Warned, |e| {
            gpu(e, 3).rates.read_mb_per_s = vec![1_842_500]
        }),
        (Code::MemoryRead, NotRun, |e| {
            gpu(e, 3).rates.read_mb_per_s.clear()
        }),
        (Code::MemoryTriad, Failed, |e| {
            gpu(e, 3).rates.triad_mb_per_s = vec![1_842_499]
        }),
        (Code::MemoryDwell, Failed, |e| {
            gpu(e, 3).dwell_bad_words = Some(1)
        }),
        (Code::MemoryDwell, NotRun, |e| {
            gpu(e, 3).dwell_bad_words = None
        }),
        (Code::HealthEcc, Failed, |e| {
            health(e, 3).ecc_uncorrected = Some(1)
        }),
        (Code::HealthEcc, Failed, |e| {
            gpu(e, 3).health_before.ecc_uncorrected = Some(1)
        }),
        (Code::HealthEcc, Failed, |e| {
            health(e, 3).ecc_uncorrected_lifetime = Some(1)
        }),
        (Code::HealthEcc, Failed, |e| {
            stop(e, TroubleKind::EccUncorrectable)
        }),
        (Code::HealthRemap, Failed, |e| {
            health(e, 3).remap_pending = Some(true)
        }),
        (Code::HealthRemap, Failed, |e| {
            health(e, 3).remap_failed = Some(true)
        }),
        (Code::HealthRemap, Failed, |e| {
            health(e, 3).remapped_rows = Some(1)
        }),
        (Code::HealthRemap, Failed, |e| {
            let worn = Some(MOST_REMAPPED_ROWS);
            gpu(e, 3).health_before.remapped_rows = worn;
            health(e, 3).remapped_rows = worn;
        }),
        (Code::HealthRemap, Failed, |e| {
            health(e, 3).retirement_pending = Some(true)
        }),
        (Code::HealthRemap, Failed, |e| {
            health(e, 3).retired_pages = Some(60)
        }),
        (Code::HealthRemap, NotRun, |e| {
            health(e, 3).remap_pending = None;
            health(e, 3).retirement_pending = None;
        }),
        (Code::HealthGrowth, Warned, |e| {
            health(e, 3).ecc_corrected = Some(11)
        }),
        (Code::HealthGrowth, Warned, |e| {
            health(e, 3).pcie_replays = Some(12)
        }),
        (Code::HealthGrowth, Warned, |e| {
            health(e, 3).nvlink_errors = Some(101)
        }),
        (Code::HealthGrowth, Warned, |e| {
            gpu(e, 3).health_before.ecc_corrected = Some(9);
            health(e, 3).ecc_corrected = Some(2);
        }),
        (Code::HealthXid, Failed, |e| xids(e, &[48])),
        (Code::HealthXid, Failed, |e| xids(e, &[13, 119])),
        (Code::HealthXid, Failed, |e| {
            let errors = logged(e, 3, 48);
            facts(e).xids_logged = errors;
        }),
        (Code::GpuLost, Failed, |e| {
            let errors = logged(e, 3, 79);
            facts(e).xids_logged = errors;
        }),
        (Code::HealthXid, Warned, |e| {
            let errors = logged(e, 3, 48);
            facts(e).xid_history = errors;
        }),
        (Code::HealthXid, Warned, |e| {
            let errors = logged(e, 3, 79);
            facts(e).xid_history = errors;
        }),
        (Code::HealthXid, Warned, |e| xids(e, &[63])),
        (Code::HealthXid, Warned, |e| xids(e, &[7_777])),
        (Code::HostLinkShape, Failed, |e| {
            gpu(e, 3).host_link = Some(HostLink {
                generation: 1,
                width: 4,
            });
            // The rule on the rate itself is not what is looked at here.
            gpu(e, 3).rates.from_host_mb_per_s = vec![34_700];
            gpu(e, 3).rates.to_host_mb_per_s = vec![u64::MAX; 0];
        }),
        (Code::HostLinkShape, Warned, |e| {
            gpu(e, 3).host_link = Some(HostLink {
                generation: 4,
                width: 16,
            });
        }),
        (Code::HostLinkShape, NotRun, |e| gpu(e, 3).host_link = None),
        (Code::HostLinkIn, Failed, |e| {
            gpu(e, 3).rates.from_host_mb_per_s = vec![11_000]
        }),
        (Code::HostLinkOut, Failed, |e| {
            gpu(e, 3).rates.to_host_mb_per_s = vec![11_000]
        }),
        (Code::HostLinkOut, NotRun, |e| {
            gpu(e, 3).rates.to_host_mb_per_s.clear()
        }),
        (Code::HostLinkTogether, Warned, |e| {
            gpu(e, 3).rates.from_host_together_mb_per_s = vec![24_000];
        }),
        (Code::HostLinkTogether, NotRun, |e| {
            gpu(e, 3).rates.from_host_together_mb_per_s.clear();
        }),
        (Code::PairRates, Failed, |e| pair(e, 20_000)),
        (Code::PairRates, Failed, |e| pair(e, 330_000)),
        (Code::PairRates, Warned, |e| pair(e, 352_000)),
        (Code::PairRates, NotRun, |e| {
            facts(e).pairs.as_mut().expect("pairs").pop();
        }),
        (Code::PairRates, NotRun, |e| facts(e).pairs = None),
        (Code::AllReduce, Failed, |e| {
            facts(e).collectives[0].wrong_elements = 1
        }),
        (Code::AllReduce, Failed, |e| {
            facts(e).collectives[0].bus_mb_per_s = 231_000
        }),
        (Code::AllReduce, NotRun, |e| {
            facts(e).collectives[0].payload_bytes = 1 << 20
        }),
        (Code::PowerLimit, Failed, |e| {
            gpu(e, 3).power_limit_w = Some(420)
        }),
        (Code::PowerLimit, Warned, |e| {
            gpu(e, 3).power_limit_w = Some(600)
        }),
        (Code::Gemm16Bit, Failed, |e| {
            for gpu in &mut facts(e).gpus {
                gpu.rates.gemm_16bit_gflops = vec![440_000];
            }
        }),
        (Code::GemmFp8, Failed, |e| {
            gpu(e, 3).rates.gemm_fp8_gflops = vec![800_000]
        }),
        (Code::GemmFp8, NotRun, |e| {
            gpu(e, 3).rates.gemm_fp8_gflops.clear()
        }),
        (Code::GemmStraggler, Failed, |e| {
            gpu(e, 3).rates.gemm_16bit_gflops = vec![700_000]
        }),
        (Code::BurnSustained, Failed, |e| {
            burn(e).last_third_gflops = 700_000
        }),
        (Code::BurnSustained, Failed, |e| {
            burn(e).first_third_gflops = 0
        }),
        (Code::BurnThrottle, Failed, |e| {
            burn(e).thermal_permille = Some(51)
        }),
        (Code::BurnThrottle, Failed, |e| {
            burn(e).hw_slowdown_permille = Some(51)
        }),
        (Code::BurnThrottle, Failed, |e| {
            burn(e).power_brake_permille = Some(51)
        }),
        (Code::BurnThrottle, NotRun, |e| {
            burn(e).power_brake_permille = None
        }),
        (Code::BurnPower, Failed, |e| {
            burn(e).mean_power_w = Some(300)
        }),
        (Code::BurnPower, NotRun, |e| burn(e).mean_power_w = None),
        (Code::HealthDiagnostic, Failed, |e| {
            diagnostic(e).tests[1].result = DiagnosticResult::Failed
        }),
        (Code::HealthDiagnostic, Warned, |e| {
            diagnostic(e).tests[1].result = DiagnosticResult::Warned
        }),
        (Code::HealthDiagnostic, Warned, |e| {
            diagnostic(e).ended = DiagnosticEnd::TimedOut
        }),
        (Code::HealthDiagnostic, Warned, |e| {
            diagnostic(e).ended = DiagnosticEnd::Unreadable
        }),
        (Code::HealthDiagnostic, Warned, |e| {
            for test in &mut diagnostic(e).tests {
                test.result = DiagnosticResult::Skipped;
            }
        }),
        (Code::BurnTemperature, Failed, |e| {
            burn(e).highest_temperature_c = Some(83)
        }),
        (Code::BurnTemperature, NotRun, |e| {
            burn(e).slowdown_temperature_c = None
        }),
        (Code::NetworkPorts, Failed, |e| port(e).active = false),
        (Code::NetworkPorts, Failed, |e| {
            port(e).rate_gbps = Some(200)
        }),
        (Code::NetworkPorts, Failed, |e| {
            port(e).downs_grown = Some(1)
        }),
        (Code::NetworkPorts, Failed, |e| {
            // Two ports for storage make up for the rate of one that is down, and for nothing else.
            spare(e, 200);
            spare(e, 200);
            port(e).active = false;
        }),
        (Code::NetworkPorts, Warned, |e| spare(e, 400).active = false),
        (Code::NetworkPorts, NotRun, |e| facts(e).host.ports = None),
        (Code::StorageRead, Failed, |e| {
            storage(e).read_mb_per_s = 2_999
        }),
        (Code::StorageRead, Warned, |e| {
            storage(e).read_mb_per_s = 3_000
        }),
        (Code::StorageWrite, Failed, |e| {
            storage(e).write_mb_per_s = 1_499
        }),
        (Code::StorageWrite, Warned, |e| {
            storage(e).write_mb_per_s = 1_574
        }),
        (Code::SdcRepeat, Failed, |e| e.checksums[1][2] = Word64(7)),
        (Code::SdcRepeat, Failed, |e| e.checksums[0].truncate(2)),
        (Code::SdcRepeat, Failed, |e| {
            stop(e, TroubleKind::WrongResult)
        }),
        (Code::SdcRepeat, Failed, |e| {
            gpu(e, 3).gemm_fp8_sums = vec![Word64(1), Word64(2)]
        }),
        (Code::SdcRepeat, Failed, |e| {
            burn(e).changed_samples = Some(1)
        }),
        (Code::SdcTensor, Failed, |e| {
            gpu(e, 3).gemm_16bit_sums = vec![Word64(6)]
        }),
        (Code::SdcTensor, NotRun, |e| {
            gpu(e, 3).gemm_16bit_sums.clear()
        }),
        (Code::SdcExact, Failed, |e| {
            e.products.as_mut().expect("products")[1] = Some("row 3 is wrong".to_owned());
        }),
        (Code::SdcExact, NotRun, |e| e.products = None),
        (Code::StepTimedOut, Failed, |e| {
            e.times[2].elapsed_ms = 60_001
        }),
        (Code::StepTimedOut, Failed, |e| {
            stop(e, TroubleKind::TimedOut)
        }),
        (Code::StepTimedOut, NotRun, |e| e.times.truncate(3)),
        (Code::AgentReport, Failed, |e| {
            report(e).content_problem = Some("the nonce differs".to_owned());
        }),
    ]
};

/// Changes that cannot but fire several rules; what is named is among them.
const FIRES_AMONG_OTHERS: &[(FindingCode, Outcome, Change)] = {
    use FindingCode as Code;
    use Outcome::{Failed, NotRun, Warned};
    &[
        (Code::InventoryCount, Failed, |e| drop(claims(e).pop())),
        (Code::MemoryPattern, NotRun, |e| e.memory = None),
        (Code::SdcRepeat, NotRun, |e| e.checksums.clear()),
        (Code::SdcRepeat, Failed, |e| {
            gpu(e, 3).gemm_16bit_sums.push(Word64(6))
        }),
        (Code::MemoryProof, NotRun, |e| e.memory = None),
        (Code::AgentSignature, Failed, |e| {
            report(e).signature_problem = Some("forged".to_owned())
        }),
        (Code::AgentSignature, NotRun, |e| e.report = None),
        (Code::AgentReport, NotRun, |e| e.report = None),
        (Code::GpuLost, NotRun, |e| e.report = None),
        (Code::HealthXid, NotRun, |e| facts(e).xids = None),
        (Code::HealthEcc, NotRun, |e| {
            health(e, 3).ecc_uncorrected = None
        }),
        (Code::HealthXid, NotRun, |e| {
            xids(e, &[63]);
            facts(e).xids_unheard = vec![3];
        }),
        (Code::HealthVisible, Warned, |e| facts(e).xids = None),
        (Code::HealthVisible, Warned, |e| {
            facts(e).xids_unheard = vec![3]
        }),
        (Code::HealthVisible, Warned, |e| {
            health(e, 3).ecc_uncorrected = None
        }),
        (Code::Gemm16Bit, NotRun, |e| {
            gpu(e, 3).rates.gemm_16bit_gflops.clear()
        }),
        (Code::GemmStraggler, NotRun, |e| {
            gpu(e, 3).rates.gemm_16bit_gflops.clear()
        }),
        (Code::StorageRead, NotRun, |e| facts(e).storage = None),
        (Code::StorageWrite, NotRun, |e| storage(e).bytes = 0),
        (Code::PowerLimit, NotRun, |e| gpu(e, 3).power_limit_w = None),
        (Code::BurnThrottle, NotRun, |e| gpu(e, 3).burn = None),
        (Code::BurnSustained, NotRun, |e| {
            // Too few looks for thirds.
            (burn(e).samples, burn(e).first_third_gflops) = (2, 0)
        }),
    ]
};

const MOST_REMAPPED_ROWS: u32 = 512;

fn burn(evidence: &mut Evidence) -> &mut market::verification::BurnFacts {
    gpu(evidence, 3).burn.as_mut().expect("a load")
}

fn diagnostic(evidence: &mut Evidence) -> &mut DiagnosticFacts {
    facts(evidence).diagnostic.as_mut().expect("a diagnostic")
}

fn storage(evidence: &mut Evidence) -> &mut StorageFacts {
    facts(evidence).storage.as_mut().expect("storage")
}

pub(super) fn port(evidence: &mut Evidence) -> &mut market::verification::PortFacts {
    &mut facts(evidence).host.ports.as_mut().expect("ports")[5]
}

/// One port more, of such a rate.
fn spare(evidence: &mut Evidence, gbps: u32) -> &mut market::verification::PortFacts {
    let another = market::verification::PortFacts {
        rate_gbps: Some(gbps),
        ..port(evidence).clone()
    };
    let ports = facts(evidence).host.ports.as_mut().expect("ports");
    ports.push(another);
    ports.last_mut().expect("a port")
}

fn pair(evidence: &mut Evidence, mb_per_s: u64) {
    facts(evidence).pairs.as_mut().expect("pairs")[9].mb_per_s = mb_per_s;
}

#[test]
fn every_rule_fires_on_its_own_evidence_and_no_other_does() {
    for (at, (code, outcome, change)) in FIRES.iter().enumerate() {
        let (unmet, _) = after(change);
        // The shape of a link is told from its rate by taking one of the rates away.
        let others: Vec<_> = unmet.iter().filter(|(found, _)| found != code).collect();
        let excused = *code == FindingCode::HostLinkShape && *outcome == Outcome::Failed;
        assert!(others.is_empty() || excused, "{at} {code}: {unmet:?}");
        assert!(unmet.contains(&(*code, *outcome)), "{at} {code}: {unmet:?}");
    }
}

#[test]
fn some_faults_show_in_several_rules() {
    for (at, (code, outcome, change)) in FIRES_AMONG_OTHERS.iter().enumerate() {
        let (unmet, _) = after(change);
        assert!(unmet.contains(&(*code, *outcome)), "{at} {code}: {unmet:?}");
    }
}

/// With the good node, on which every rule is met, each rule has a case that fires and one that
/// does not. Those on a gang have theirs in `tests/it/gang.rs`.
#[test]
fn no_rule_is_without_a_case_that_makes_it_fire() {
    let fired = |code: &FindingCode| {
        let all = FIRES.iter().chain(FIRES_AMONG_OTHERS);
        all.filter(|(_, outcome, _)| *outcome != Outcome::NotRun)
            .any(|(fired, ..)| fired == code)
    };
    let mut silent = of_one_node();
    silent.retain(|code| !fired(code));
    assert_eq!(silent, [FindingCode::DeviceSimulated]);
}

#[test]
fn failures_decide_unless_the_rule_is_tried_out() {
    for (code, outcome, change) in FIRES {
        let (findings, verdict) = judged(change);
        let found = findings
            .iter()
            .find(|found| found.code == *code)
            .expect("judged");
        let expected = match (outcome, found.weight) {
            (_, Weight::Shadow) | (Outcome::NotRun, Weight::May) => Verdict::Pass,
            (Outcome::Failed, _) => Verdict::Fail,
            (Outcome::NotRun, _) => Verdict::Inconclusive,
            _ => Verdict::PassWithWarnings,
        };
        assert_eq!(verdict, expected, "{code} {outcome:?}");
        let remedy = (*outcome != Outcome::Met).then_some(found.remedy);
        assert!(remedy.is_some_and(|remedy| remedy.is_some()), "{code}");
    }
}

#[test]
fn the_least_that_is_accepted_is_accepted() {
    let (unmet, _) = after(|e| {
        claims(e)[1].memory_mib = 79_927;
        claims(e)[1].sm_count = None;
        let filled = &mut e.filled.as_mut().expect("filled")[1];
        filled.allocatable_mib = 79_112;
        filled.filled_bytes = work_where(&order().memory, 79_112).pattern_bytes;
        e.times[2].elapsed_ms = 60_000;
        driver(e, "525.60.13");
        gpu(e, 3).used_memory_mib = Some(815);
        gpu(e, 3).power_limit_w = Some(630);
        gpu(e, 3).rates.gemm_fp8_gflops = vec![935_100];
        health(e, 3).ecc_corrected = Some(10);
        health(e, 3).pcie_replays = Some(11);
        health(e, 3).nvlink_errors = Some(100);
        burn(e).thermal_permille = Some(50);
        burn(e).highest_temperature_c = Some(82);
        facts(e).host.vcpus = Some(198);
        facts(e).host.machine = Some("Supermicro SYS-821GE-TNHR".to_owned());
        clock(e, -30_000);
        xids(e, &[13, 31, 43, 45]);
        // Long over and healed, or of a GPU that is another tenant's.
        let healed = logged(e, 3, 63);
        facts(e).xid_history = healed;
        facts(e).xids_logged = vec![LoggedXid {
            bus_id: "0000:99:00".to_owned(),
            xid: 79,
            action: None,
        }];
    });
    assert_eq!(unmet, []);
}

#[test]
fn a_row_that_waits_for_a_reset_is_reset_and_one_that_failed_is_replaced() {
    use market::attestation::Remedy;
    let remedy = |change: Change| {
        let (findings, _) = judged(change);
        let found = findings
            .into_iter()
            .find(|found| found.code == FindingCode::HealthRemap);
        found.expect("judged").remedy
    };
    assert_eq!(
        remedy(|e| health(e, 3).remap_pending = Some(true)),
        Some(Remedy::Reset)
    );
    assert_eq!(
        remedy(|e| health(e, 3).remap_failed = Some(true)),
        Some(Remedy::Replace)
    );
    assert_eq!(
        remedy(|e| {
            health(e, 2).remap_pending = Some(true);
            health(e, 3).remapped_rows = Some(MOST_REMAPPED_ROWS);
        }),
        Some(Remedy::Replace),
        "a reset helps one of them only"
    );
    assert_eq!(
        remedy(|e| {
            health(e, 3).remap_pending = Some(true);
            health(e, 3).remapped_rows = Some(MOST_REMAPPED_ROWS);
        }),
        Some(Remedy::Replace),
        "no reset brings new rows"
    );
    assert_eq!(remedy(|_| {}), None);
}

#[test]
fn of_two_sums_that_are_as_bad_the_first_is_told() {
    let (findings, _) = judged(|e| {
        let runs = &mut facts(e).collectives;
        let run = |bus_mb_per_s| market::verification::CollectiveRate {
            payload_bytes: 1 << 30,
            bus_mb_per_s,
            ..runs[0].clone()
        };
        *runs = vec![run(1_000), run(2_000)];
    });
    let found = findings
        .iter()
        .find(|found| found.code == FindingCode::AllReduce)
        .expect("judged");
    assert_eq!(
        (found.outcome, found.measured),
        (Outcome::Failed, Some(1_000))
    );
}

/// What a node sends may be shown to people: no control characters, no endless words.
#[test]
fn words_of_a_node_are_cut_and_cleaned_before_they_are_told() {
    let (findings, _) = judged(|e| {
        stop(e, TroubleKind::Driver);
        report(e).troubles[0].detail = format!("\u{1b}[31m{}", "x".repeat(10_000));
    });
    let found = findings
        .iter()
        .find(|found| found.code == FindingCode::AgentTrouble);
    let note = &found.expect("judged").note;
    assert!(note.len() < 400 && !note.contains('\u{1b}'), "{note}");
}

#[test]
fn a_test_that_the_vendors_diagnostic_failed_is_told_by_name_and_a_node_without_it_is_left_alone() {
    let told = |change: Change| {
        let (findings, verdict) = judged(change);
        let found = findings
            .into_iter()
            .find(|found| found.code == FindingCode::HealthDiagnostic)
            .expect("judged");
        assert_eq!((found.weight, verdict), (Weight::Shadow, Verdict::Pass));
        (found.outcome, found.note)
    };
    let failed = told(|e| {
        let test = &mut diagnostic(e).tests[1];
        test.result = DiagnosticResult::Failed;
        test.gpu = Some(3);
        test.detail = Some("a row is pending".to_owned());
        diagnostic(e).tests[2].result = DiagnosticResult::Failed;
    });
    let note = "The vendor's diagnostic (dcgmi): Inforom on GPU 3 (a row is pending); and 1 more.";
    assert_eq!(failed, (Outcome::Failed, note.to_owned()));
    assert_eq!(told(|e| facts(e).diagnostic = None).0, Outcome::Noted);
}

#[test]
fn storage_of_which_nothing_was_promised_is_held_against_nothing() {
    let mut evidence = good();
    facts(&mut evidence).storage = None;
    let mut order = order();
    let promise = order.expected.storage.as_mut().expect("a promise");
    promise.read_bytes_per_s = None;
    let outcomes = |order: &VerificationOrder| {
        let findings = findings(&evidence, order, false);
        [FindingCode::StorageRead, FindingCode::StorageWrite].map(|code| {
            let found = findings.iter().find(|found| found.code == code);
            found.expect("judged").outcome
        })
    };
    assert_eq!(outcomes(&order), [Outcome::Noted, Outcome::NotRun]);
    order.expected.storage = None;
    assert_eq!(outcomes(&order), [Outcome::Noted; 2]);
}

/// A container hides the kernel's log; that is said and fails nobody.
#[test]
fn an_xid_history_that_cannot_be_read_is_said() {
    let (findings, verdict) = judged(|e| facts(e).xid_history_visible = Some(false));
    let found = findings
        .iter()
        .find(|found| found.code == FindingCode::HealthVisible);
    let found = found.expect("judged");
    assert_eq!(found.outcome, Outcome::Noted);
    assert!(
        found.note.contains("xid_history: not visible"),
        "{}",
        found.note
    );
    assert_eq!(verdict, Verdict::Pass);
}

#[test]
fn two_gpus_without_a_switch_are_promised_no_rate_between_them() {
    let mut order = order();
    order.expected = expected_node(Gpu::parse("L40S").expect("known"), 2);
    let mut evidence = good();
    let kind = Kind {
        gpu: order.expected.gpu,
        gpus: 2,
        internode: Internode::None,
        ..kind()
    };
    report(&mut evidence).facts = Some(Box::new(pretend::node(&kind, &mut Dice::new(b"two"))));
    let findings = findings(&evidence, &order, false);
    let outcome = |code| {
        let found = findings.iter().find(|found| found.code == code);
        found.expect("judged").outcome
    };
    for code in [
        FindingCode::FabricNotReady,
        FindingCode::NvlinkActive,
        FindingCode::PairRates,
        FindingCode::AllReduce,
        FindingCode::InventoryMig,
        FindingCode::NetworkPorts,
    ] {
        assert_eq!(outcome(code), Outcome::Noted, "{code}");
    }
}

#[test]
fn what_is_short_of_a_host_is_told_in_its_own_figures() {
    let told = |change: Change| {
        let (findings, _) = judged(change);
        let mut found = findings.iter();
        let found = found.find(|found| found.code == FindingCode::HostShape);
        let found = found.expect("judged");
        (
            found.outcome,
            found.unit,
            found.measured,
            found.floor,
            found.expected,
        )
    };
    let cores = (Some(Unit::Vcpus), Some(160), Some(104), Some(208));
    let few = told(|e| facts(e).host.vcpus = Some(160));
    assert_eq!(few, (Outcome::Warned, cores.0, cores.1, cores.2, cores.3));
    let mib = |gib: i64| Some(gib << 10);
    let memory = (Some(Unit::Mib), mib(1_600), mib(900), mib(1_800));
    let little = told(|e| facts(e).host.memory_gib = Some(1_600));
    assert_eq!(
        little,
        (Outcome::Warned, memory.0, memory.1, memory.2, memory.3)
    );
    let half = told(|e| facts(e).host.memory_gib = Some(899));
    assert_eq!((half.0, half.2), (Outcome::Failed, mib(899)));
}
