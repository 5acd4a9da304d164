//! `GET /v1/reservations/{id}/access`: how to reach what was handed off.

use actix_web::{get, web};
use market::access::{Access, NodeAccess};
use market::ids::ReservationId;
use market::lease::LeaseState;
use store::leases::Lease;

use crate::app::Broker;
use crate::http::access::ReadReservations;
use crate::http::auth::May;
use crate::http::error::ApiError;
use crate::reserve;

/// How to reach the nodes that were handed off: host, port, user, and a host file for `mpirun` and
/// `torchrun`. No secret is among it.
#[utoipa::path(
    tag = "reservations",
    params(("id" = ReservationId, Path, description = "The reservation")),
    responses((status = 200, description = "The way to its nodes", body = Access))
)]
#[get("/v1/reservations/{id}/access")]
pub(crate) async fn reservation_access(
    broker: web::Data<Broker>,
    who: May<ReadReservations>,
    id: web::Path<ReservationId>,
) -> Result<web::Json<Access>, ApiError> {
    let reservation = reserve::find(&broker, who.tenant, *id).await?;
    let leases = broker
        .store()
        .leases()
        .of(who.tenant)
        .of_reservation(*id)
        .await?;
    let nodes: Vec<NodeAccess> = leases
        .iter()
        .filter(|lease| lease.state == LeaseState::HandedOff)
        .flat_map(nodes_of)
        .collect();
    if nodes.is_empty() {
        return Err(ApiError::not_handed_off(format!(
            "the reservation is {}; its nodes can be reached from the hand-off until the release",
            reservation.state
        )));
    }
    Ok(web::Json(Access::new(*id, nodes)))
}

fn nodes_of(lease: &Lease) -> impl Iterator<Item = NodeAccess> {
    (lease.node_base..)
        .zip(&lease.provider_nodes)
        .map(|(node, shown)| NodeAccess {
            node,
            lease_id: lease.id,
            host: shown.host.clone(),
            port: shown.port,
            user: shown.user.clone(),
            private_address: shown.private_address.clone(),
            gpus: lease.offer.gpus.as_whole().unwrap_or(1),
        })
}
