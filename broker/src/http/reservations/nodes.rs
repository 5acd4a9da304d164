//! `GET /v1/reservations/{id}/nodes`: the machines, and how each was proved.

use std::collections::HashMap;

use actix_web::{get, web};
use market::attestation::Verdict;
use market::gpu::GpuIdentity;
use market::ids::{AttestationId, LeaseId, OfferId, ProviderId, ReservationId};
use market::lease::LeaseState;
use market::quantity::GpuCount;
use serde::Serialize;
use store::leases::Lease;
use store::verifications::KeptAttestation;

use crate::app::Broker;
use crate::http::access::ReadReservations;
use crate::http::auth::{InProjects, May};
use crate::http::error::ApiError;
use crate::http::page::{Cursors, Page, WhichPage, limit};
use crate::http::query::Query;
use crate::reserve;

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
    /// What its verification led to; `null` until it has reported.
    verdict: Option<Verdict>,
    /// The signed result.
    attestation_id: Option<AttestationId>,
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
        nodes.extend(
            nodes_of(lease, results).filter(|node| after.is_none_or(|after| node.node > after)),
        );
    }
    Ok(web::Json(cursors.page(nodes, limit, |node| node.node)))
}

fn nodes_of(lease: &Lease, results: Vec<KeptAttestation>) -> impl Iterator<Item = NodeView> {
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
        }
    })
}
