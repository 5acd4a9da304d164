//! `GET /v1/attestations/{id}`: the countersigned result of a node's verification.

use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::attestation::{Attestation, Verdict};
use market::identity::TenantScope;
use market::ids::{AttestationId, LeaseId, VerificationId};
use market::lease::LeaseState;
use serde::Serialize;
use store::rechecks::LetGo;

use super::access::ReadAttestations;
use super::auth::{InProjects, May};
use super::error::ApiError;
use crate::flow::reserve::{self, ReserveError};
use crate::flow::verify::read_document;
use crate::platform::app::Broker;

/// A signed result, and its content.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct AttestationBody {
    /// Its id.
    id: AttestationId,
    /// The verification.
    verification_id: VerificationId,
    /// The lease.
    lease_id: LeaseId,
    /// The node's number within its lease.
    #[schema(minimum = 0, maximum = 100_000)]
    node_index: u32,
    /// The result.
    verdict: Verdict,
    /// Whether any part of it was simulated. If so, it is no evidence about a real machine.
    simulated: bool,
    /// The countersigned document, a compact JWS. Its key is in `/.well-known/jwks.json`.
    jws: String,
    /// The document's content.
    document: Attestation,
    /// When it was signed.
    created_at: DateTime<Utc>,
}

/// One attestation about a machine that served the tenant.
///
/// The document of a re-check that the node passed is kept for a while. Afterwards the answer is 410
/// `attestation_let_go`, with the time and the verdict of the re-check.
#[utoipa::path(
    tag = "verifications",
    params(("id" = AttestationId, Path, description = "The attestation")),
    responses((status = 200, description = "The attestation", body = AttestationBody))
)]
#[get("/v1/attestations/{id}")]
pub(crate) async fn show_attestation(
    broker: web::Data<Broker>,
    who: May<ReadAttestations, InProjects>,
    id: web::Path<AttestationId>,
) -> Result<web::Json<AttestationBody>, ApiError> {
    let store = broker.store();
    let all = store.verifications().of(who.tenant);
    let Some(kept) = all.attestation(*id).await? else {
        let gone = store.rechecks().of(who.tenant).let_go(*id).await?;
        let gone = gone.ok_or_else(|| unknown(*id))?;
        may_read(&broker, &who.reach(), (*id, gone.lease_id)).await?;
        return Err(let_go(*id, &gone));
    };
    may_read(&broker, &who.reach(), (*id, kept.lease_id)).await?;
    let document = read_document(&kept.jws)?;
    Ok(web::Json(AttestationBody {
        id: kept.id,
        verification_id: kept.verification_id,
        lease_id: kept.lease_id,
        node_index: kept.node_index,
        verdict: kept.verdict,
        simulated: kept.simulated,
        jws: kept.jws,
        document,
        created_at: kept.created_at,
    }))
}

/// Refuses callers who may not see the reservation that the machine served: the machine belongs to that
/// reservation's project. Nobody reads it before the hand-off, because it names the node's address, which the
/// tenant may not use until then.
async fn may_read(
    broker: &Broker,
    whose: &TenantScope,
    (id, lease): (AttestationId, LeaseId),
) -> Result<(), ApiError> {
    let leases = broker.store().leases().of(whose.tenant);
    let lease = leases.find(lease).await?.ok_or_else(|| unknown(id))?;
    let served = reserve::find(broker, whose, lease.reservation_id).await;
    served.map_err(|error| match error {
        ReserveError::Unknown(_) => unknown(id),
        other => other.into(),
    })?;
    if lease.state.is_standing() && lease.state != LeaseState::HandedOff {
        return Err(ApiError::not_handed_off(format!(
            "the node of attestation {id} was not handed over yet; its verdict stands in \
             GET /v1/reservations/{}/nodes",
            lease.reservation_id
        )));
    }
    Ok(())
}

/// The answer about a document that was deleted.
fn let_go(id: AttestationId, gone: &LetGo) -> ApiError {
    let day = |at: DateTime<Utc>| at.format("%Y-%m-%d");
    let (checked, dropped) = (day(gone.checked_at), day(gone.let_go_at));
    ApiError::attestation_let_go(format!(
        "{id} was a re-check of a node in use on {checked}, with verdict `{}`; its document was \
         deleted on {dropped}",
        gone.verdict
    ))
}

fn unknown(id: AttestationId) -> ApiError {
    ApiError::not_found(format!("there is no attestation {id} here"))
}
