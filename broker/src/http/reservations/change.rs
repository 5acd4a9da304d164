//! The actions of a tenant on a reservation: relabel, confirm, cancel, release, extend.

use std::collections::BTreeSet;

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, patch, post, web};
use chrono::{DateTime, Utc};
use market::demand::check::latest_end;
use market::ids::ReservationId;
use market::tags::{Tags, check_tags};
use serde::Deserialize;
use store::reservations::{Labels, Reservation};

use super::{ReservationView, SeveralReservations};
use crate::flow::reserve;
use crate::http::access::WriteReservations;
use crate::http::auth::{InProjects, May, Principal};
use crate::http::body::{Body, NoBody};
use crate::http::error::ApiError;
use crate::http::idempotency::{self, IdempotencyHeader, answer, completion};
use crate::http::names::check_name;
use crate::platform::app::Broker;

fn render(row: &Reservation) -> store::idempotency::Answer {
    answer(StatusCode::OK, &ReservationView::from(row))
}

/// Admits the callers who may change a reservation: its maker, and administrators.
///
/// Errors: `not_found`, also for another tenant's; `not_yours`.
pub(super) async fn may_change(
    broker: &Broker,
    who: &Principal,
    id: ReservationId,
) -> Result<(), ApiError> {
    let found = reserve::find(broker, &who.reach(), id).await?;
    who.may_change(found.created_by)
}

/// New labels; fields that are left out stay.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Relabel {
    /// The name.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// All the free tags.
    #[serde(default)]
    #[schema(value_type = Option<std::collections::BTreeMap<String, String>>)]
    tags: Option<Tags>,
}

/// Changes the name or the tags. Charges already made keep the old ones.
#[utoipa::path(
    tag = "reservations",
    params(("id" = ReservationId, Path, description = "The reservation"), IdempotencyHeader),
    request_body = Relabel,
    responses((status = 200, description = "The reservation", body = ReservationView))
)]
#[patch("/v1/reservations/{id}")]
pub(crate) async fn relabel_reservation(
    broker: web::Data<Broker>,
    who: May<WriteReservations, InProjects>,
    request: HttpRequest,
    id: web::Path<ReservationId>,
    body: Body<Relabel>,
) -> Result<HttpResponse, ApiError> {
    let Relabel { name, tags } = body.value;
    if name.is_none() && tags.is_none() {
        return Err(ApiError::invalid_body("give `name`, `tags` or both"));
    }
    if let Some(name) = &name {
        check_name("name", name)?;
    }
    if let Some(tags) = &tags {
        check_tags(tags).map_err(|error| ApiError::invalid_body(error.to_string()))?;
    }
    may_change(&broker, &who, *id).await?;
    if let Some(tags) = &tags {
        reserve::carries_required(&broker, who.tenant, tags, None).await?;
    }
    let labels = Labels { name, tags };
    idempotency::once(&broker, &who, &request, &body.bytes, async |mark| {
        let mine = broker.store().reservations().of(who.tenant);
        let row = mine
            .update_labels(*id, labels, completion(mark, &render))
            .await?;
        Ok(render(&row))
    })
    .await
}

/// Confirms a hold. From the hand-off on it costs money. A later start is scheduled by it.
#[utoipa::path(
    tag = "reservations",
    params(("id" = ReservationId, Path, description = "The reservation"), IdempotencyHeader),
    responses((status = 200, description = "The reservation", body = ReservationView))
)]
#[post("/v1/reservations/{id}/confirm")]
pub(crate) async fn confirm_reservation(
    broker: web::Data<Broker>,
    who: May<WriteReservations, InProjects>,
    request: HttpRequest,
    id: web::Path<ReservationId>,
    _: NoBody,
) -> Result<HttpResponse, ApiError> {
    may_change(&broker, &who, *id).await?;
    idempotency::once(&broker, &who, &request, b"", async |mark| {
        let row = reserve::confirm(&broker, who.tenant, *id, completion(mark, &render)).await?;
        Ok(render(&row))
    })
    .await
}

/// The holds to confirm together.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConfirmSeveral {
    /// Their ids, each once, such as those of a run and its fleet.
    #[schema(min_items = 1, max_items = 10)]
    ids: Vec<ReservationId>,
}

/// Confirms several holds, such as those of a run and its fleet: all of them or none.
#[utoipa::path(
    tag = "reservations",
    params(IdempotencyHeader),
    request_body = ConfirmSeveral,
    responses((status = 200, description = "The reservations, in the order of `ids`", body = SeveralReservations))
)]
#[post("/v1/reservations/confirm")]
pub(crate) async fn confirm_reservations(
    broker: web::Data<Broker>,
    who: May<WriteReservations, InProjects>,
    request: HttpRequest,
    body: Body<ConfirmSeveral>,
) -> Result<HttpResponse, ApiError> {
    let ids = body.value.ids;
    let once: BTreeSet<_> = ids.iter().collect();
    if once.len() != ids.len() || !(1..=10).contains(&ids.len()) {
        return Err(ApiError::invalid_body(
            "`ids` names 1 to 10 reservations, each once",
        ));
    }
    for id in &ids {
        may_change(&broker, &who, *id).await?;
    }
    let render = |rows: &Vec<Reservation>| answer(StatusCode::OK, &SeveralReservations::of(rows));
    idempotency::once(&broker, &who, &request, &body.bytes, async |mark| {
        let completion = completion(mark, &render);
        let rows = reserve::confirm_all(&broker, who.tenant, &ids, completion).await?;
        Ok(render(&rows))
    })
    .await
}

/// Cancels before the hand-off, free of charge.
#[utoipa::path(
    tag = "reservations",
    params(("id" = ReservationId, Path, description = "The reservation"), IdempotencyHeader),
    responses((status = 200, description = "The reservation", body = ReservationView))
)]
#[post("/v1/reservations/{id}/cancel")]
pub(crate) async fn cancel_reservation(
    broker: web::Data<Broker>,
    who: May<WriteReservations, InProjects>,
    request: HttpRequest,
    id: web::Path<ReservationId>,
    _: NoBody,
) -> Result<HttpResponse, ApiError> {
    may_change(&broker, &who, *id).await?;
    idempotency::once(&broker, &who, &request, b"", async |mark| {
        let row = reserve::cancel(&broker, who.tenant, *id, completion(mark, &render)).await?;
        Ok(render(&row))
    })
    .await
}

/// Ends the tenant's use. Use is charged up to this moment and no further.
#[utoipa::path(
    tag = "reservations",
    params(("id" = ReservationId, Path, description = "The reservation"), IdempotencyHeader),
    responses((status = 200, description = "The reservation", body = ReservationView))
)]
#[post("/v1/reservations/{id}/release")]
pub(crate) async fn release_reservation(
    broker: web::Data<Broker>,
    who: May<WriteReservations, InProjects>,
    request: HttpRequest,
    id: web::Path<ReservationId>,
    _: NoBody,
) -> Result<HttpResponse, ApiError> {
    may_change(&broker, &who, *id).await?;
    idempotency::once(&broker, &who, &request, b"", async |mark| {
        let row = reserve::release(&broker, who.tenant, *id, completion(mark, &render)).await?;
        Ok(render(&row))
    })
    .await
}

/// The new end of a reservation.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Extend {
    /// Its new end: later than before, and within ten years.
    end: DateTime<Utc>,
}

/// Moves the end of an active reservation out, at the same rate.
#[utoipa::path(
    tag = "reservations",
    params(("id" = ReservationId, Path, description = "The reservation"), IdempotencyHeader),
    request_body = Extend,
    responses((status = 200, description = "The reservation", body = ReservationView))
)]
#[post("/v1/reservations/{id}/extend")]
pub(crate) async fn extend_reservation(
    broker: web::Data<Broker>,
    who: May<WriteReservations, InProjects>,
    request: HttpRequest,
    id: web::Path<ReservationId>,
    body: Body<Extend>,
) -> Result<HttpResponse, ApiError> {
    let end = body.value.end;
    if end > latest_end(broker.now()) {
        return Err(ApiError::invalid_body("`end` must be within ten years"));
    }
    may_change(&broker, &who, *id).await?;
    idempotency::once(&broker, &who, &request, &body.bytes, async |mark| {
        let row = reserve::extend(&broker, who.tenant, *id, end, completion(mark, &render)).await?;
        Ok(render(&row))
    })
    .await
}
