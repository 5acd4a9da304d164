//! Small whole values for the tests of this crate.

use chrono::{DateTime, TimeDelta, Utc};
use market::demand::DemandKind;
use market::ids::{
    LeaseId, ProjectId, ProviderId, ReservationId, TenantId, TransactionId, UsageId,
};
use market::money::{Currency, Money};
use market::offer::Offer;
use market::tags::{Attribution, Tags};
use market::usage::UsageRecord;
use uuid::Uuid;

use crate::meter::Sale;

pub fn usd(text: &str) -> Money {
    Money::parse(text, Currency::Usd).expect("a decimal amount")
}

/// This many seconds after 2026-03-01T00:00:00Z.
pub fn at(seconds: i64) -> DateTime<Utc> {
    let start: DateTime<Utc> = "2026-03-01T00:00:00Z".parse().expect("a time");
    start + TimeDelta::seconds(seconds)
}

pub fn usage(gpus: u32, from: i64, to: i64) -> UsageRecord {
    UsageRecord {
        id: UsageId::from_uuid(Uuid::from_u128(1)),
        reservation_id: ReservationId::from_uuid(Uuid::from_u128(2)),
        lease_id: LeaseId::from_uuid(Uuid::from_u128(3)),
        line: 0,
        gpus,
        from: at(from),
        to: at(to),
    }
}

pub fn sale() -> Sale {
    Sale {
        tenant_id: TenantId::from_uuid(Uuid::from_u128(4)),
        project_id: ProjectId::from_uuid(Uuid::from_u128(5)),
        provider: ProviderId::parse("lambda").expect("a provider"),
        gpu: "H100-SXM".into(),
        workload: DemandKind::Train,
        tags: Tags::new(),
        attribution: Attribution::default(),
    }
}

/// Transaction ids 1, 2, 3 and so on.
pub fn id_counter() -> impl FnMut() -> TransactionId {
    let mut last = 0;
    move || {
        last += 1;
        TransactionId::from_uuid(Uuid::from_u128(last))
    }
}

/// An offer of this many whole GPUs at this price per node and hour.
pub fn offer(price: &str, gpus: u32) -> Offer {
    let offer = serde_json::json!({
        "offer_id": "off_5f0c2b9d8e7a61432f1e0d9c8b7a6f5e",
        "provider": "lambda",
        "sku": "gpu_8x_h100_sxm5",
        "raw_gpu_name": "H100 (80 GB SXM5)",
        "gpu": "H100-SXM",
        "gpus": gpus,
        "gpu_memory_mib": null,
        "vcpus": null,
        "memory_gib": null,
        "place": {},
        "tenancy": "vm",
        "terms": "on_demand",
        "internode": "none",
        "price_per_node_hour": price,
        "availability": {"level": "present", "nodes": null, "at_least": false},
        "orderable": true,
        "observed_at": "2026-03-01T00:00:00Z",
    });
    serde_json::from_value(offer).expect("an offer")
}
