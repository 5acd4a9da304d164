//! A small market for tests: a tenant, a provider and its offers.

use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, OfferDiff, SkipReason, Skipped};
use market::demand::{Counts, Demand, GpusDemand};
use market::fabric::Internode;
use market::gpu::{GpuIdentity, GpuWanted};
use market::identity::Projects;
use market::ids::{
    LeaseId, OfferId, PlanId, ProjectId, ProviderId, QuoteId, ReservationId, TenantId,
};
use market::money::{Currency, Money};
use market::offer::{Availability, Offer, Tenancy, Terms};
use market::place::Place;
use market::quantity::GpuCount;
use market::quote::{Quote, QuoteLine};
use market::tags::Attribution;
use market::verification::Level;
use store::catalog::Generation;
use store::change::{Change, NewLease, ReservationMove};
use store::fixture::claim_one;
use store::hold::NewReservation;
use store::plans::NewPlan;
use store::reservations::Reservation;
use store::tenants::Tenant;
use store::work::{ClaimToken, Claimed};
use store::{Store, StoreError};
use uuid::Uuid;

/// The start of the tests, plus this many seconds.
pub fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_790_000_000 + seconds, 0).expect("a moment")
}

pub fn provider() -> ProviderId {
    ProviderId::parse("acme").expect("a provider")
}

pub fn offer(sku: &str, availability: Availability) -> Offer {
    Offer {
        offer_id: OfferId::of_identity(&["acme", sku]),
        provider: provider(),
        sku: sku.to_owned(),
        raw_gpu_name: "NVIDIA H100 SXM5".to_owned(),
        gpu: GpuIdentity::parse("H100-SXM").expect("a GPU"),
        gpus: GpuCount::whole(8).expect("a count"),
        gpu_memory_mib: Some(81_559),
        vcpus: Some(208),
        memory_gib: Some(1_800),
        place: Place::unknown(),
        tenancy: Tenancy::Vm,
        terms: Terms::OnDemand,
        internode: Internode::InfinibandNdr400,
        price_per_node_hour: Money::parse("23.92", Currency::Usd).expect("a price"),
        availability,
        orderable: true,
        particulars: Default::default(),
        observed_at: at(0),
    }
}

/// A complete reading of these offers.
pub fn reading(offers: &[Offer], read_at: DateTime<Utc>) -> CatalogReading {
    let offers = offers.iter().map(|offer| Offer {
        observed_at: read_at,
        ..offer.clone()
    });
    CatalogReading {
        provider: provider(),
        read_at,
        offers: offers.collect(),
        skipped: vec![Skipped {
            file: None,
            row: None,
            rows: 3,
            sku: Some("abacus".to_owned()),
            reason: SkipReason::UnknownGpu,
            why: "no GPU is called abacus".to_owned(),
        }],
        unread: market::catalog::Unread::Nothing,
    }
}

/// Puts offers on sale that were not on sale before.
pub async fn sell(store: &Store, offers: &[Offer], read_at: DateTime<Utc>) -> Generation {
    store
        .providers()
        .ensure(&provider(), read_at)
        .await
        .expect("a provider");
    let known = store
        .catalog()
        .known_offers(&provider())
        .await
        .expect("known offers");
    let reading = reading(offers, read_at);
    let diff = OfferDiff {
        added: reading.offers.clone(),
        ..OfferDiff::default()
    };
    store
        .catalog()
        .apply_reading(&reading, &diff, known.generation, read_at)
        .await
        .expect("the reading is applied")
}

pub async fn tenant(store: &Store, name: &str) -> (TenantId, ProjectId) {
    let (tenant, project) = (Uuid::now_v7(), Uuid::now_v7());
    let tenant: Tenant = store
        .tenants()
        .ensure(
            name,
            TenantId::from_uuid(tenant),
            ProjectId::from_uuid(project),
            at(0),
        )
        .await
        .expect("a tenant");
    let projects = store.tenants().projects(tenant.id).await.expect("projects");
    (tenant.id, projects[0].id)
}

pub fn demand() -> Demand {
    Demand::Gpus(GpusDemand {
        gpu: GpuWanted::parse("H100-SXM").expect("a GPU").into(),
        count: Counts::exactly(8),
        nodes: 1,
        fabric: None,
        spot: false,
        gpu_memory_gib: None,
        host_memory_gib: None,
        vcpus: None,
        window: None,
        ceiling: None,
        places: None,
        tenancy: None,
        policy: None,
        verification: None,
        tags: std::collections::BTreeMap::new(),
    })
}

/// An open quote of one line, which lapses at [`at`]`(600)`.
pub async fn quote(store: &Store, tenant: TenantId, offer: &Offer, nodes: u32) -> Quote {
    quote_at(store, tenant, offer, nodes, at(0)).await
}

/// An open quote of one line, which lapses 600 seconds after `now`.
pub async fn quote_at(
    store: &Store,
    tenant: TenantId,
    offer: &Offer,
    nodes: u32,
    now: DateTime<Utc>,
) -> Quote {
    let plan = NewPlan {
        id: PlanId::from_uuid(Uuid::now_v7()),
        demand: demand(),
        generation: Generation(1),
        candidates: serde_json::json!([{"score": 0.1}]),
        rejections: serde_json::json!({}),
        created_at: now,
        projects: Projects::All,
        decided_from: serde_json::json!({"program": "a test"}),
    };
    let plan_id = plan.id;
    store.plans().of(tenant).insert(plan).await.expect("a plan");
    let quote = Quote {
        id: QuoteId::from_uuid(Uuid::now_v7()),
        plan_id,
        lines: vec![QuoteLine {
            line: 0,
            offer: offer.clone(),
            nodes,
            rate: offer.rate().expect("a rate"),
            rate_at_most: None,
            half: None,
            covered: None,
        }],
        starts_at: None,
        follows: None,
        created_at: now,
        expires_at: now + chrono::TimeDelta::seconds(600),
    };
    store
        .quotes()
        .of(tenant)
        .insert(&quote, None)
        .await
        .expect("a quote");
    quote
}

pub fn new_reservation(project_id: ProjectId, quote: &Quote) -> NewReservation {
    NewReservation {
        id: ReservationId::from_uuid(Uuid::now_v7()),
        project_id,
        created_by: None,
        name: "run-7".to_owned(),
        demand: demand(),
        plan_id: quote.plan_id,
        quote_id: quote.id,
        lines: quote.lines.clone(),
        gang: true,
        ceiling: None,
        verification: Level::Deep,
        ssh_public_keys: vec!["ssh-ed25519 AAAA".to_owned()],
        tags: [("team".to_owned(), "vision".to_owned())].into(),
        attribution: Attribution {
            owner: Some("ada".to_owned()),
            ..Attribution::default()
        },
        starts_at: None,
        follows: None,
        window_end: None,
        confirmed_at_once: false,
        hold_expires_at: at(300),
    }
}

/// Quotes and holds this many nodes of an offer.
pub async fn hold(
    store: &Store,
    (tenant, project): (TenantId, ProjectId),
    offer: &Offer,
    nodes: u32,
    now: DateTime<Utc>,
) -> Result<Reservation, StoreError> {
    let quote = quote(store, tenant, offer, nodes).await;
    let new = new_reservation(project, &quote);
    store
        .reservations()
        .of(tenant)
        .place_hold(new, now, None)
        .await
}

pub fn token() -> ClaimToken {
    ClaimToken(Uuid::now_v7())
}

pub async fn claim(store: &Store, id: ReservationId, now: DateTime<Utc>) -> Claimed {
    claim_one(store, id, token(), now, 60)
        .await
        .expect("a claim")
        .expect("it is free")
}

/// A confirmed reservation of one lease, just saved and not claimed.
pub async fn provisioning(
    store: &Store,
    whose: (TenantId, ProjectId),
    offer: &Offer,
) -> (Reservation, LeaseId) {
    use market::reservation::ReservationState as S;
    let held = hold(store, whose, offer, 1, at(1)).await.expect("a hold");
    let confirm = store::commands::Command::Move(S::Confirmed);
    let reservations = store.reservations().of(whose.0);
    reservations
        .command(held.id, held.version, confirm, at(2), None)
        .await
        .expect("confirmed");
    let claimed = claim(store, held.id, at(3)).await;
    let lease = NewLease {
        id: LeaseId::from_uuid(Uuid::now_v7()),
        line: 0,
        offer: offer.clone(),
        nodes: 1,
        node_base: 0,
        replaces: None,
    };
    let lease_id = lease.id;
    let change = Change {
        reservation: Some(ReservationMove {
            from: S::Confirmed,
            to: S::Provisioning,
        }),
        due_at: Some(at(4)),
        new_leases: vec![lease],
        holds_released: true,
        ..Change::default()
    };
    store
        .work()
        .apply(&claimed.claim, &change, at(3))
        .await
        .expect("the leases are saved");
    let reservation = reservations
        .find(held.id)
        .await
        .expect("reads")
        .expect("is there");
    (reservation, lease_id)
}
