//! `GET /v1/reservations`.

use actix_web::{get, web};
use market::demand::DemandKind;
use market::ids::ProjectId;
use serde::{Deserialize, Serialize};
use store::reservations::ReservationFilter;

use super::{ReservationView, state_schema, state_words};
use crate::http::access::ReadReservations;
use crate::http::auth::{InProjects, May};
use crate::http::error::ApiError;
use crate::http::page::{Cursors, Page, limit};
use crate::http::query::Query;
use crate::platform::app::Broker;

/// Which reservations.
#[derive(Debug, Serialize, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListReservations {
    /// Only those in this state, such as `active`.
    #[param(schema_with = state_schema, required = false)]
    state: Option<String>,
    /// Only those that are not closed.
    #[serde(default)]
    #[param(default = false)]
    open_only: bool,
    /// Only those of this project.
    #[param(inline)]
    project_id: Option<ProjectId>,
    /// Only those of this kind of demand.
    #[param(inline)]
    kind: Option<DemandKind>,
    /// The cursor of the page before.
    #[serde(skip_serializing_if = "crate::http::page::left_out")]
    cursor: Option<String>,
    /// Items of a page.
    #[serde(skip_serializing_if = "crate::http::page::left_out")]
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// Lists the tenant's reservations, the newest first.
#[utoipa::path(
    tag = "reservations",
    params(ListReservations),
    responses((status = 200, description = "A page of reservations", body = Page<ReservationView>))
)]
#[get("/v1/reservations")]
pub(crate) async fn list_reservations(
    broker: web::Data<Broker>,
    who: May<ReadReservations, InProjects>,
    query: Query<ListReservations>,
) -> Result<web::Json<Page<ReservationView>>, ApiError> {
    let limit = limit(query.limit)?;
    if let Some(state) = &query.state
        && !state_words().contains(&state.as_str())
    {
        let words = state_words().join(", ");
        return Err(ApiError::invalid_parameter(format!(
            "`state` must be one of {words}"
        )));
    }
    let cursors = Cursors::of(broker.keys(), "reservations", &(who.tenant, &*query));
    let after = query
        .cursor
        .as_deref()
        .map(|cursor| cursors.open(cursor))
        .transpose()?;
    let filter = ReservationFilter {
        state: query.state.clone(),
        open_only: query.open_only,
        project: query.project_id,
        kind: query.kind,
        within: who.grant.projects.clone(),
    };
    let mine = broker.store().reservations().of(who.tenant);
    let found = mine.list(&filter, after, limit as u64 + 1).await?;
    let page = cursors.page(found, limit, |row| row.id);
    Ok(web::Json(page.map(|row| ReservationView::from(&row))))
}
