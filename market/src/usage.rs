//! A usage record (a quantity over an interval) and the charge that prices it.

use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};

use crate::demand::DemandKind;
use crate::ids::{LeaseId, ProjectId, ProviderId, ReservationId, TenantId, UsageId};
use crate::money::{Money, Rate};
use crate::tags::{Attribution, Tags};

/// The GPUs of one node of a lease in the tenant's hands for an interval.
///
/// Units: half-open interval `[from, to)` in whole seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRecord {
    /// The record's id.
    pub id: UsageId,
    /// The reservation.
    pub reservation_id: ReservationId,
    /// The lease.
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
    /// The tenant that pays.
    pub tenant_id: TenantId,
    /// The project.
    pub project_id: ProjectId,
    /// The provider where it ran.
    pub provider: ProviderId,
    /// The GPU that ran.
    pub gpu: String,
    /// The kind of the demand.
    pub workload: DemandKind,
    /// The frozen rate.
    pub rate: Rate,
    /// The sum charged: the difference of two running totals.
    pub amount: Money,
    /// The tags as they were.
    pub tags: Tags,
    /// The fixed fields as they were.
    pub attribution: Attribution,
}

/// Charges for use that began and ended on one day, summed by every field that a report groups by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DayCharges {
    /// The day, UTC.
    pub day: NaiveDate,
    /// The project.
    pub project_id: ProjectId,
    /// The reservation.
    pub reservation_id: ReservationId,
    /// The provider where it ran.
    pub provider: ProviderId,
    /// The GPU that ran.
    pub gpu: String,
    /// The kind of the demand.
    pub workload: DemandKind,
    /// The tags as they were.
    pub tags: Tags,
    /// GPU-seconds of all of them.
    pub gpu_seconds: i64,
    /// The sum that all of them charge.
    pub amount: Money,
}
