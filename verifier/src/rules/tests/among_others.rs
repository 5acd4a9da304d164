//! What makes a rule fire among others.

use super::changes::*;
use super::*;

/// Changes that cannot but fire several rules; what is named is among them.
pub(super) const FIRES_AMONG_OTHERS: &[(FindingCode, Outcome, Change)] = {
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
        (Code::StorageRead, NotRun, |e| storage(e).read_mb_per_s = 0),
        (Code::StorageWrite, NotRun, |e| storage(e).bytes = 0),
        (Code::PowerLimit, NotRun, |e| gpu(e, 3).power_limit_w = None),
        (Code::BurnThrottle, NotRun, |e| gpu(e, 3).burn = None),
        (Code::BurnSustained, NotRun, |e| {
            // Too few looks for thirds.
            (burn(e).samples, burn(e).first_third_gflops) = (2, 0)
        }),
    ]
};
