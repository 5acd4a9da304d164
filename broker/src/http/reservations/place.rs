//! `POST /v1/reservations`: from a quote, or in one call from a demand.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, post, web};
use market::demand::{Ceiling, Demand};
use market::identity::TenantScope;
use market::ids::{ProjectId, QuoteId, SshKeyId};
use market::tags::{Attribution, Tags};
use serde::Deserialize;
use store::idempotency::Completion;
use store::reservations::Reservation;

use super::ReservationView;
use crate::flow::reserve::{self, Particulars, ReserveError};
use crate::http::access::WriteReservations;
use crate::http::auth::{InProjects, May};
use crate::http::body::Body;
use crate::http::error::ApiError;
use crate::http::idempotency::{self, IdempotencyHeader, answer, completion};
use crate::platform::app::Broker;

/// The subject of a reservation: a quote, or a demand whose best candidate is quoted in the same call.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlaceReservation {
    /// The quote to take; this or `demand`.
    #[serde(default)]
    quote_id: Option<QuoteId>,
    /// The demand; this or `quote_id`.
    #[serde(default)]
    demand: Option<Demand>,
    /// The limits that neither it nor a replacement may exceed; not beside the demand's own.
    #[serde(default)]
    ceiling: Option<Ceiling>,
    /// Confirm at once instead of holding; it then costs money once it is handed off.
    #[serde(default)]
    #[schema(default = false)]
    auto_confirm: bool,
    /// Its name; the kind of the demand by default.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// Its project; by default the tenant's first, or the one that the key is bound to. A key that is bound
    /// to several must name one.
    #[serde(default)]
    project_id: Option<ProjectId>,
    /// The SSH keys for its machines; all of the tenant's by default.
    #[serde(default)]
    #[schema(max_items = 100)]
    ssh_key_ids: Option<Vec<SshKeyId>>,
    /// Free tags, beside those of the demand.
    #[serde(default)]
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    tags: Tags,
    /// The fixed fields for finance.
    #[serde(default)]
    attribution: Attribution,
}

/// The subject of the reservation.
#[derive(Debug)]
enum Wanted {
    Quote(QuoteId),
    Demand(Box<Demand>),
}

impl PlaceReservation {
    fn split(self) -> Result<(Wanted, Particulars), ApiError> {
        check_attribution(&self.attribution)?;
        if self.ssh_key_ids.as_ref().is_some_and(|ids| ids.len() > 100) {
            return Err(ApiError::invalid_body(
                "`ssh_key_ids` may name at most 100 keys",
            ));
        }
        check_ceiling(self.ceiling.as_ref())?;
        let wanted = match (self.quote_id, self.demand) {
            (Some(quote), None) => Wanted::Quote(quote),
            (None, Some(demand)) => Wanted::Demand(Box::new(under(demand, self.ceiling.as_ref())?)),
            _ => {
                return Err(ApiError::invalid_body(
                    "give either `quote_id` or `demand`, and not both",
                ));
            }
        };
        let particulars = Particulars {
            name: self.name,
            project_id: self.project_id,
            ssh_key_ids: self.ssh_key_ids,
            tags: self.tags,
            attribution: self.attribution,
            ceiling: self.ceiling,
            created_by: None,
            auto_confirm: self.auto_confirm,
        };
        Ok((wanted, particulars))
    }
}

/// Puts the ceiling given beside a demand into it, so that the search keeps to it as well.
fn under(mut demand: Demand, ceiling: Option<&Ceiling>) -> Result<Demand, ApiError> {
    let Some(ceiling) = ceiling else {
        return Ok(demand);
    };
    let of_demand = match &mut demand {
        Demand::Gpus(demand) => &mut demand.ceiling,
        Demand::Train(demand) => &mut demand.ceiling,
        Demand::ServeRealtime(demand) => &mut demand.ceiling,
        Demand::ServeBatch(demand) => &mut demand.ceiling,
        Demand::Hybrid(demand) => &mut demand.ceiling,
    };
    if of_demand.is_some() {
        return Err(ApiError::invalid_body(
            "give `ceiling` once: in the demand or beside it",
        ));
    }
    *of_demand = Some(ceiling.clone());
    Ok(demand)
}

fn check_ceiling(ceiling: Option<&Ceiling>) -> Result<(), ApiError> {
    let Some(ceiling) = ceiling else {
        return Ok(());
    };
    let rate = ceiling
        .usd_per_gpu_hour
        .map(|rate| rate.money_per_gpu_hour());
    if [rate, ceiling.usd_per_hour]
        .into_iter()
        .flatten()
        .all(|money| money.is_positive())
    {
        return Ok(());
    }
    Err(ApiError::invalid_body("a ceiling must be above zero"))
}

fn check_attribution(attribution: &Attribution) -> Result<(), ApiError> {
    let Attribution {
        owner,
        cost_centre,
        environment,
        purchase_order,
    } = attribution;
    let fields = [
        ("owner", owner),
        ("cost_centre", cost_centre),
        ("environment", environment),
        ("purchase_order", purchase_order),
    ];
    for (field, value) in fields {
        if let Some(value) = value {
            crate::http::names::check_name(&format!("attribution.{field}"), value)?;
        }
    }
    Ok(())
}

/// Reserves: sets the capacity of a quote aside, or plans, quotes and sets aside in one call.
///
/// A hold costs nothing and lapses unless it is confirmed.
#[utoipa::path(
    tag = "reservations",
    params(IdempotencyHeader),
    request_body = PlaceReservation,
    responses((status = 201, description = "The reservation", body = ReservationView))
)]
#[post("/v1/reservations")]
pub(crate) async fn place_reservation(
    broker: web::Data<Broker>,
    who: May<WriteReservations, InProjects>,
    request: HttpRequest,
    body: Body<PlaceReservation>,
) -> Result<HttpResponse, ApiError> {
    let (wanted, mut particulars) = body.value.split()?;
    particulars.created_by = Some(who.id);
    let render = |row: &Reservation| answer(StatusCode::CREATED, &ReservationView::from(row));
    idempotency::once(&broker, &who, &request, &body.bytes, async |mark| {
        let completion = completion(mark, &render);
        let placed = place(&broker, &who.reach(), wanted, particulars, completion).await?;
        Ok(render(&placed))
    })
    .await
}

async fn place(
    broker: &Broker,
    whose: &TenantScope,
    wanted: Wanted,
    particulars: Particulars,
    completion: Option<Completion<'_, Reservation>>,
) -> Result<Reservation, ReserveError> {
    match wanted {
        Wanted::Quote(quote) => reserve::hold(broker, whose, quote, particulars, completion).await,
        Wanted::Demand(demand) => {
            reserve::in_one_call(broker, whose, *demand, particulars, completion).await
        }
    }
}
