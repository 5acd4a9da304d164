//! `GET /v1/reservations/{id}/access`: how to reach the nodes that were handed off.

use actix_web::{HttpResponse, get, web};
use market::access::{Access, HostKey, NodeAccess};
use market::ids::ReservationId;
use market::lease::LeaseState;
use serde::Deserialize;
use store::leases::Lease;

use crate::flow::reach::{KnownNode, fingerprint, known_nodes};
use crate::flow::reserve;
use crate::http::access::ReadReservations;
use crate::http::auth::{InProjects, May};
use crate::http::error::ApiError;
use crate::http::query::Query;
use crate::platform::app::Broker;

/// In which form the way to the nodes is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Form {
    /// All of it, as JSON.
    #[default]
    Json,
    /// The entries for `~/.ssh/config` alone, as text.
    SshConfig,
    /// The known-hosts file alone, as text.
    KnownHosts,
    /// The host file for `mpirun` alone, as text.
    Hostfile,
    /// How `torchrun` begins on each node, a line a node, as text.
    Torchrun,
}

/// In which form.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AskAccess {
    /// The form.
    #[param(inline)]
    format: Option<Form>,
}

/// How to reach the nodes that were handed off: host, port, user and host keys, when they were last reached,
/// the order of their GPUs and network adapters, and files for `ssh`, `mpirun` and `torchrun`. It contains no
/// secret: the private half of an installed key grants the access.
#[utoipa::path(
    tag = "reservations",
    params(("id" = ReservationId, Path, description = "The reservation"), AskAccess),
    responses((
        status = 200, description = "The way to its nodes",
        content((Access = "application/json"), (String = "text/plain"))
    ))
)]
#[get("/v1/reservations/{id}/access")]
pub(crate) async fn reservation_access(
    broker: web::Data<Broker>,
    who: May<ReadReservations, InProjects>,
    id: web::Path<ReservationId>,
    query: Query<AskAccess>,
) -> Result<HttpResponse, ApiError> {
    let reservation = reserve::find(&broker, &who.reach(), *id).await?;
    let leases = broker
        .store()
        .leases()
        .of(who.tenant)
        .of_reservation(*id)
        .await?;
    let mut nodes: Vec<NodeAccess> = Vec::new();
    for lease in &leases {
        if lease.state == LeaseState::HandedOff {
            nodes.extend(nodes_of(lease, known_nodes(&broker, lease).await?));
        }
    }
    if nodes.is_empty() {
        return Err(ApiError::not_handed_off(format!(
            "the reservation is {}; its nodes can be reached from the hand-off until the release",
            reservation.state
        )));
    }
    let access = Access::new(*id, nodes);
    let text = match query.format.unwrap_or_default() {
        Form::Json => return Ok(HttpResponse::Ok().json(access)),
        Form::SshConfig => access.ssh_config,
        Form::KnownHosts => access.known_hosts,
        Form::Hostfile => access.hostfile,
        Form::Torchrun => access.torchrun.commands.join("\n") + "\n",
    };
    Ok(HttpResponse::Ok()
        .content_type("text/plain; charset=utf-8")
        .body(text))
}

fn nodes_of(lease: &Lease, known: Vec<KnownNode>) -> impl Iterator<Item = NodeAccess> {
    let shown = lease.provider_nodes.iter().zip(known);
    (lease.node_base..)
        .zip(shown)
        .map(|(node, (shown, known))| {
            let host_key = |key| {
                let line = crate::flow::reach::line_of(key);
                HostKey::at(&shown.host, shown.port, &line, fingerprint(key))
            };
            NodeAccess {
                node,
                lease_id: lease.id,
                host: shown.host.clone(),
                port: shown.port,
                user: shown.user.clone(),
                host_keys: known.keys.iter().map(host_key).collect(),
                host_key_source: known.source,
                private_address: shown.private_address.clone(),
                gpus: lease.offer.gpus.as_whole().unwrap_or(1),
                gpu_order: known.gpu_order,
                nic_order: known.nic_order,
                last_reachable_at: known.reach.as_ref().and_then(|row| row.last_reachable_at),
                unreachable_since: known.reach.as_ref().and_then(|row| row.unreachable_since),
            }
        })
}
