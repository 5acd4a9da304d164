//! `GET /v1/reservations/{id}/nodes`: the machines, and how each was proved.

use std::collections::HashMap;

use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::attestation::{FindingCode, Verdict};
use market::gpu::GpuIdentity;
use market::ids::{AttestationId, LeaseId, OfferId, ProviderId, ReservationId};
use market::lease::LeaseState;
use market::quantity::GpuCount;
use serde::Serialize;
use store::leases::Lease;
use store::node_reports::Follows;
use store::rechecks::Recheck;
use store::verifications::KeptAttestation;

use crate::flow::reserve;
use crate::http::access::ReadReservations;
use crate::http::auth::{InProjects, May};
use crate::http::error::ApiError;
use crate::http::page::{Cursors, Page, WhichPage, limit};
use crate::http::query::Query;
use crate::platform::app::Broker;

/// One machine of a reservation.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct NodeView {
    /// The node's number within the reservation, from 0.
    #[schema(minimum = 0, maximum = 100_000)]
    node: u32,
    /// The lease that it belongs to.
    lease_id: LeaseId,
    /// Where that lease stands.
    state: LeaseState,
    /// Where it runs.
    provider: ProviderId,
    /// The offer that it was ordered from.
    offer_id: OfferId,
    /// Its GPU.
    gpu: GpuIdentity,
    /// Its GPUs.
    gpus: GpuCount,
    /// The verdict of its verification; `null` until it has reported.
    verdict: Option<Verdict>,
    /// The signed result.
    attestation_id: Option<AttestationId>,
    /// The result of its last re-check in use; `null` where it was not checked again.
    last_recheck: Option<RecheckView>,
}

/// The result of a re-check of a node in use.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct RecheckView {
    /// The signed result.
    attestation_id: AttestationId,
    /// When.
    checked_at: DateTime<Utc>,
    /// The verdict.
    verdict: Verdict,
    /// The checks that failed.
    failed: Vec<FindingCode>,
    /// Whether it showed other GPUs than were handed over.
    pinned_set_changed: bool,
    /// The consequence.
    follows: Follows,
}

impl From<&Recheck> for RecheckView {
    fn from(recheck: &Recheck) -> Self {
        Self {
            attestation_id: recheck.attestation_id,
            checked_at: recheck.checked_at,
            verdict: recheck.verdict,
            failed: recheck.failed.clone(),
            pinned_set_changed: recheck.pinned_set_changed,
            follows: recheck.follows,
        }
    }
}

/// The machines of a reservation, by number; those of leases that were replaced are left out.
#[utoipa::path(
    tag = "reservations",
    params(("id" = ReservationId, Path, description = "The reservation"), WhichPage),
    responses((status = 200, description = "A page of nodes", body = Page<NodeView>))
)]
#[get("/v1/reservations/{id}/nodes")]
pub(crate) async fn reservation_nodes(
    broker: web::Data<Broker>,
    who: May<ReadReservations, InProjects>,
    id: web::Path<ReservationId>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<NodeView>>, ApiError> {
    let limit = limit(query.limit)?;
    let cursors = Cursors::of(broker.keys(), "nodes", &(who.tenant, *id));
    let after: Option<u32> = query
        .cursor
        .as_deref()
        .map(|cursor| cursors.open(cursor))
        .transpose()?;
    reserve::find(&broker, &who.reach(), *id).await?;
    let mut leases = broker
        .store()
        .leases()
        .of(who.tenant)
        .of_reservation(*id)
        .await?;
    leases.retain(|lease| lease.replaced_by.is_none());
    leases.sort_by_key(|lease| lease.node_base);
    let mut nodes = Vec::new();
    for lease in &leases {
        let last = lease.node_base.saturating_add(lease.nodes);
        if nodes.len() > limit || after.is_some_and(|after| last <= after + 1) {
            continue;
        }
        let results = broker
            .store()
            .verifications()
            .of(who.tenant)
            .attestations_of(lease.id)
            .await?;
        let rechecks = broker.store().rechecks().of(who.tenant);
        let rechecks = rechecks.last_of_lease(lease.id).await?;
        nodes.extend(
            nodes_of(lease, results, rechecks)
                .filter(|node| after.is_none_or(|after| node.node > after)),
        );
    }
    Ok(web::Json(cursors.page(nodes, limit, |node| node.node)))
}

fn nodes_of(
    lease: &Lease,
    results: Vec<KeptAttestation>,
    rechecks: Vec<Recheck>,
) -> impl Iterator<Item = NodeView> {
    let results: HashMap<u32, KeptAttestation> = results
        .into_iter()
        .map(|result| (result.node_index, result))
        .collect();
    (0..lease.nodes).map(move |index| {
        let result = results.get(&index);
        NodeView {
            node: lease.node_base.saturating_add(index),
            lease_id: lease.id,
            state: lease.state,
            provider: lease.offer.provider.clone(),
            offer_id: lease.offer.offer_id,
            gpu: lease.offer.gpu.clone(),
            gpus: lease.offer.gpus,
            verdict: result.map(|result| result.verdict),
            attestation_id: result.map(|result| result.id),
            last_recheck: (rechecks.iter())
                .find(|recheck| recheck.node_index == index)
                .map(RecheckView::from),
        }
    })
}
