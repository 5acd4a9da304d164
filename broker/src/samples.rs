//! Samples for the tests of the stages.

use chrono::DateTime;
use market::catalog::CatalogReading;
use market::fabric::Internode;
use market::gpu::{Gpu, GpuIdentity};
use market::ids::{LeaseId, OfferId, ProviderId, ReservationId, TenantId};
use market::lease::LeaseState;
use market::money::Money;
use market::offer::{Availability, Offer, Tenancy, Terms};
use market::order::{ClientToken, LeaseOrder};
use market::place::Place;
use market::quantity::GpuCount;
use store::leases::Lease;
use uuid::Uuid;

pub(crate) fn provider() -> ProviderId {
    ProviderId::parse("acme").expect("a provider")
}

/// A node of eight H100 at 20 dollars an hour, told apart by its SKU.
pub(crate) fn offer(sku: &str) -> Offer {
    priced(sku, 20)
}

pub(crate) fn priced(sku: &str, dollars: i64) -> Offer {
    Offer {
        offer_id: OfferId::of_identity(&["acme", sku]),
        provider: provider(),
        sku: sku.to_owned(),
        raw_gpu_name: "H100 SXM".into(),
        gpu: GpuIdentity::Known(Gpu::parse("H100-SXM").expect("in the catalogue")),
        gpus: GpuCount::whole(8).expect("a count"),
        gpu_memory_mib: None,
        vcpus: None,
        memory_gib: None,
        place: Place {
            region: Some("here".into()),
            ..Place::unknown()
        },
        tenancy: Tenancy::BareMetal,
        terms: Terms::OnDemand,
        internode: Internode::InfinibandNdr400,
        price_per_node_hour: Money::usd_units(dollars * 100_000_000),
        availability: Availability::exactly(4),
        orderable: true,
        particulars: Default::default(),
        observed_at: DateTime::UNIX_EPOCH,
    }
}

pub(crate) fn reading(offers: Vec<Offer>) -> CatalogReading {
    CatalogReading {
        provider: provider(),
        read_at: DateTime::UNIX_EPOCH,
        offers,
        skipped: Vec::new(),
        unread: market::catalog::Unread::Nothing,
    }
}

pub(crate) fn order(nodes: u32) -> LeaseOrder {
    LeaseOrder {
        client_token: ClientToken::of(LeaseId::from_uuid(Uuid::from_u128(1))),
        offer: offer("gpu_8x"),
        nodes,
        machine: Default::default(),
        ssh_public_keys: Vec::new(),
        startup_script: String::new(),
    }
}

/// A lease of nodes that prove themselves, from this one on.
pub(crate) fn lease(id: LeaseId, node_base: u32, nodes: u32) -> Lease {
    Lease {
        id,
        reservation_id: ReservationId::from_uuid(Uuid::from_u128(1)),
        tenant_id: TenantId::from_uuid(Uuid::from_u128(1)),
        line: 0,
        offer: offer("gpu_8x"),
        nodes,
        node_base,
        state: LeaseState::Verifying,
        client_token: ClientToken::of(id),
        provider_lease_id: None,
        provider_nodes: Vec::new(),
        price_per_node_hour: None,
        attempts: 1,
        requested_at: DateTime::UNIX_EPOCH,
        accepted_at: None,
        started_at: None,
        up_at: None,
        verify_deadline: None,
        handed_off_at: None,
        metered_to: None,
        release_accepted_at: None,
        gone_at: None,
        fell_at: None,
        fall_reason: None,
        fall_note: None,
        replaces: None,
        replaced_by: None,
        given_up: false,
        missing: None,
        seen_credential: None,
        returned_at: None,
    }
}
