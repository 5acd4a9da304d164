//! The one JSON object that `demo --json` prints as the last line of stdout.

use serde::Serialize;

/// What the demo did, counted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Providers that were read, price lists included.
    pub providers: usize,
    /// Live offers.
    pub offers: usize,
    /// Different GPUs among them.
    pub gpus: usize,
    /// The reservations.
    pub reservations: Vec<ReservationSummary>,
    /// The verifications.
    pub verifications: VerificationSummary,
    /// What the providers themselves bill, by their own arithmetic. US dollars.
    pub provider_bill_usd: String,
    /// Whether every transaction sums to zero and every total agrees with its parts.
    pub ledger_balanced: bool,
    /// Machines at the providers that no living lease stands behind, counted at the providers.
    pub leaked_machines: usize,
    /// Rows of the cost report.
    pub cost_report_rows: usize,
}

/// One reservation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReservationSummary {
    /// Its id.
    pub id: String,
    /// The demand's kind.
    pub kind: String,
    /// Its state.
    pub state: String,
    /// Nodes.
    pub nodes: u64,
    /// GPUs of all nodes.
    pub gpus: u64,
    /// Who provided them in the end.
    pub provider: String,
    /// What joined the nodes.
    pub internode: String,
    /// What kind of machine they were.
    pub tenancy: String,
    /// US dollars per GPU-hour, as quoted and billed.
    pub rate_usd_gpu_hour: String,
    /// GPU-seconds between hand-off and release.
    pub metered_gpu_seconds: i64,
    /// What the tenant was charged. US dollars.
    pub billed_usd: String,
    /// Leases that fell and were replaced, at no cost to the tenant.
    pub replaced_leases: usize,
}

/// The verifications, by nodes; and the leases replaced after one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct VerificationSummary {
    /// Nodes that passed.
    pub passed: usize,
    /// Nodes that did not.
    pub failed: usize,
    /// Leases that were replaced.
    pub replaced: usize,
}
