//! For every rule, the changes that make it fire.

use market::verification::{FabricState, HostLink, LibraryFacts};

use super::changes::*;
use super::history::met_before;
use super::*;
use crate::evidence::Standing;

/// Changes after which one rule, and no other, gives the outcome.
pub(super) const FIRES: &[(FindingCode, Outcome, Change)] = {
    use FindingCode as Code;
    use Outcome::{Failed, NotRun, Warned};
    &[
        (Code::InventoryIdentity, Failed, |e| {
            claims(e)[1].name = "NVIDIA A100-SXM4-80GB".to_owned()
        }),
        (Code::InventoryIdentity, Failed, |e| {
            claims(e)[1].name = "NVIDIA H800 NVL".to_owned()
        }),
        (Code::InventoryIdentity, Warned, unnamed),
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
        (Code::InventorySoftware, Warned, |e| {
            facts(e).driver.libraries = vec![LibraryFacts {
                path: "/usr/lib/x86_64-linux-gnu/libcuda.so.550.163.01".to_owned(),
                sha256: Some(Digest([7; 32])),
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
        (Code::HostClock, NotRun, |e| e.reported_at = None),
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
        (Code::MemoryProof, NotRun, |e| memory(e)[1].unopened = true),
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
            // The rule on the rate itself is not tested here.
            gpu(e, 3).rates.from_host_mb_per_s = vec![34_700];
            gpu(e, 3).rates.to_host_mb_per_s = vec![u64::MAX; 0];
        }),
        (Code::HostLinkShape, Warned, |e| {
            gpu(e, 3).host_link = Some(HostLink {
                generation: 4,
                width: 16,
            });
        }),
        (Code::HostLinkShape, Warned, |e| slots(e, 4, 16, 26_000)),
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
            facts(e)
                .collectives
                .iter_mut()
                .for_each(|run| run.payload_bytes = 1 << 20);
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
        (Code::SdcRepeat, Failed, |e| {
            gpu(e, 3).gemm_16bit_common_sum = Some(Word64(7))
        }),
        (Code::SdcRepeat, NotRun, |e| {
            gpu(e, 3).gemm_16bit_common_sum = None
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
