//! `POST /v1/reservations`: from a quote, or in one call from a demand.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, post, web};
use market::demand::{Ceiling, Demand};
use market::ids::{ProjectId, QuoteId, ReservationId, SshKeyId};
use market::tags::{Attribution, Tags};
use serde::{Deserialize, Serialize};
use store::idempotency::Answer;
use store::reservations::Reservation;

use super::{ReservationView, SeveralReservations};
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
    /// The quote to take; this, `quotes` or `demand`.
    #[serde(default)]
    quote_id: Option<QuoteId>,
    /// The two quotes of a pair: both are taken or neither.
    #[serde(default)]
    #[schema(min_items = 2, max_items = 2)]
    quotes: Option<[QuoteId; 2]>,
    /// The demand; this, `quotes` or `quote_id`. A hybrid demand makes two reservations.
    #[serde(default)]
    demand: Option<Demand>,
    /// The limits that neither it nor a replacement may exceed; not beside the demand's own.
    #[serde(default)]
    ceiling: Option<Ceiling>,
    /// The reservation after which it starts, with a quote or a demand for a later start. The fleet of a pair
    /// follows its run without it.
    #[serde(default)]
    follows: Option<ReservationId>,
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
    Quotes([QuoteId; 2]),
    Demand(Box<Demand>),
    HybridDemand(Box<Demand>),
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
        let mut ceiling = self.ceiling;
        let wanted = match (self.quote_id, self.quotes, self.demand) {
            (Some(quote), None, None) => Wanted::Quote(quote),
            (None, Some(quotes), None) => {
                if ceiling.is_some() {
                    return Err(ApiError::invalid_body(
                        "`ceiling` cannot be given with `quotes`; plan again with a ceiling in the demand or in its halves",
                    ));
                }
                Wanted::Quotes(quotes)
            }
            (None, None, Some(demand)) => {
                let demand = Box::new(under(demand, ceiling.as_ref())?);
                match *demand {
                    Demand::Hybrid(_) => {
                        // It is part of both halves now, which may have lower ones.
                        ceiling = None;
                        Wanted::HybridDemand(demand)
                    }
                    _ => Wanted::Demand(demand),
                }
            }
            _ => {
                return Err(ApiError::invalid_body(
                    "give one of `quote_id`, `quotes` and `demand`, and not several",
                ));
            }
        };
        let is_pair = matches!(wanted, Wanted::Quotes(_) | Wanted::HybridDemand(_));
        if is_pair && self.follows.is_some() {
            return Err(ApiError::invalid_body(
                "the fleet of a pair follows its run; leave out `follows`",
            ));
        }
        let particulars = Particulars {
            name: self.name,
            project_id: self.project_id,
            ssh_key_ids: self.ssh_key_ids,
            tags: self.tags,
            attribution: self.attribution,
            ceiling,
            created_by: None,
            auto_confirm: self.auto_confirm,
            follows: self.follows,
        };
        Ok((wanted, particulars))
    }
}

/// Puts the ceiling given beside a demand into it, so that the search keeps to it as well.
fn under(mut demand: Demand, ceiling: Option<&Ceiling>) -> Result<Demand, ApiError> {
    let Some(ceiling) = ceiling else {
        return Ok(demand);
    };
    let of_demand = demand.ceiling_mut();
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

/// What `POST /v1/reservations` makes.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub(crate) enum ReservationOrPair {
    /// Of one quote, or of a demand of one kind.
    Reservation(Box<ReservationView>),
    /// Of a pair.
    Pair(SeveralReservations),
}

fn render(row: &Reservation) -> Answer {
    let placed = ReservationOrPair::Reservation(Box::new(row.into()));
    answer(StatusCode::CREATED, &placed)
}

fn render_pair(pair: &[Reservation; 2]) -> Answer {
    let placed = ReservationOrPair::Pair(SeveralReservations::of(pair));
    answer(StatusCode::CREATED, &placed)
}

/// Reserves: sets the capacity of a quote aside, or plans, quotes and sets aside in one call. Two quotes of a
/// pair, and a hybrid demand, make two reservations: the run, and the fleet that starts when it has ended.
///
/// A hold costs nothing and lapses unless it is confirmed. A later start sets nothing aside; once confirmed, it
/// is scheduled, and ordered in time.
#[utoipa::path(
    tag = "reservations",
    params(IdempotencyHeader),
    request_body = PlaceReservation,
    responses((status = 201, description = "The reservation, or both of a pair", body = ReservationOrPair))
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
    // Who follows a reservation may hold up its extension.
    if let Some(run) = particulars.follows {
        let found = reserve::find(&broker, &who.reach(), run).await;
        let found = found.map_err(|_| ReserveError::UnknownRun(run))?;
        who.may_change(found.created_by)?;
    }
    let (broker, reach) = (&**broker, who.reach());
    idempotency::once(broker, &who, &request, &body.bytes, async |mark| {
        let one = completion(mark, &render);
        let pair = completion(mark, &render_pair);
        Ok(match wanted {
            Wanted::Quote(quote) => {
                render(&reserve::hold(broker, &reach, quote, particulars, one).await?)
            }
            Wanted::Demand(demand) => {
                render(&reserve::in_one_call(broker, &reach, *demand, particulars, one).await?)
            }
            Wanted::Quotes(quotes) => {
                render_pair(&reserve::hold_pair(broker, &reach, quotes, particulars, pair).await?)
            }
            Wanted::HybridDemand(demand) => render_pair(
                &reserve::pair_in_one_call(broker, &reach, *demand, particulars, pair).await?,
            ),
        })
    })
    .await
}
