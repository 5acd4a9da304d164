//! A usage record (a quantity over an interval) and the charge that prices it.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};

use crate::demand::DemandKind;
use crate::ids::{LeaseId, ProjectId, ProviderId, ReservationId, TenantId, UsageId};
use crate::money::{Money, Rate};
use crate::tags::{Attribution, Tags};

/// So many GPUs of one node of a lease, in the tenant's hands for an interval.
///
/// Units: half-open interval `[from, to)` in whole seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// The record's id.
    pub id: UsageId,
    /// Whose use.
    pub reservation_id: ReservationId,
    /// Of which lease.
    pub lease_id: LeaseId,
    /// The line of the quote that prices it.
    pub line: u32,
    /// GPUs in use, over all nodes of the lease.
    pub gpus: u32,
    /// Start of the interval, included.
    pub from: DateTime<Utc>,
    /// End of the interval, not included.
    pub to: DateTime<Utc>,
}

impl UsageRecord {
    /// GPUs times whole seconds.
    #[must_use]
    pub fn gpu_seconds(&self) -> i64 {
        i64::from(self.gpus) * (self.to - self.from).num_seconds().max(0)
    }
}

/// A usage record priced.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charge {
    /// The usage that is charged.
    pub usage: UsageRecord,
    /// Who pays.
    pub tenant_id: TenantId,
    /// For which project.
    pub project_id: ProjectId,
    /// At which provider it ran.
    pub provider: ProviderId,
    /// The GPU that ran.
    pub gpu: String,
    /// The kind of the demand.
    pub workload: DemandKind,
    /// The frozen rate.
    pub rate: Rate,
    /// What is charged: the difference of two running totals.
    pub amount: Money,
    /// The tags as they stood.
    pub tags: Tags,
    /// The fixed fields as they stood.
    pub attribution: Attribution,
}

/// Charges for use that began and ended on one day, summed up by all that a report groups by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayCharges {
    /// The day, UTC.
    pub day: NaiveDate,
    /// For which project.
    pub project_id: ProjectId,
    /// Of which reservation.
    pub reservation_id: ReservationId,
    /// At which provider it ran.
    pub provider: ProviderId,
    /// The GPU that ran.
    pub gpu: String,
    /// The kind of the demand.
    pub workload: DemandKind,
    /// The tags as they stood.
    pub tags: Tags,
    /// GPU-seconds of all of them.
    pub gpu_seconds: i64,
    /// What all of them charge.
    pub amount: Money,
}
