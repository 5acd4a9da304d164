//! `/v1/credits`: amounts that tenants need not pay. An administrator gives them; tenants read their own.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, get, post, web};
use chrono::{DateTime, Utc};
use market::credit::Credit;
use market::ids::{CreditId, TenantId, TransactionId};
use market::money::Money;
use pricing::postings::credit_transaction;
use serde::{Deserialize, Serialize};

use super::access::{ReadSpending, WriteSpending};
use super::auth::May;
use super::body::Body;
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion};
use super::page::{Cursors, Page, WhichPage};
use super::query::{NoParameters, Query};
use crate::platform::app::Broker;

/// A credit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct CreditView {
    /// Its id.
    id: CreditId,
    /// US dollars that the tenant need not pay.
    amount_usd: Money,
    /// The reason.
    reason: String,
    /// When it was given.
    granted_at: DateTime<Utc>,
}

impl From<&Credit> for CreditView {
    fn from(credit: &Credit) -> Self {
        Self {
            id: credit.id,
            amount_usd: credit.amount,
            reason: credit.reason.clone(),
            granted_at: credit.granted_at,
        }
    }
}

/// A credit to give.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantCredit {
    /// US dollars, above 0 and at most 1000000.
    amount_usd: Money,
    /// The reason; the tenant reads it too.
    #[schema(min_length = 1, max_length = 200)]
    reason: String,
}

/// Lists the tenant's credits, the newest first.
#[utoipa::path(
    tag = "reports",
    params(WhichPage),
    responses((status = 200, description = "A page of credits", body = Page<CreditView>))
)]
#[get("/v1/credits")]
pub(crate) async fn list_credits(
    broker: web::Data<Broker>,
    who: May<ReadSpending>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<CreditView>>, ApiError> {
    let credits = broker.store().credits().of(who.tenant).list().await?;
    let cursors = Cursors::of(broker.keys(), "credits", &who.tenant);
    let page = cursors.page_of(&credits, &query, |row| row.id)?;
    Ok(web::Json(page.map(CreditView::from)))
}

/// Gives a tenant a credit: for an administrator, and for good.
///
/// It is booked against the tenant's debt and changes no charge.
#[utoipa::path(
    tag = "reports",
    params(("tenant" = inline(TenantId), Query, description = "The tenant that need not pay"), IdempotencyHeader),
    request_body = GrantCredit,
    responses((status = 201, description = "The credit", body = CreditView))
)]
#[post("/v1/credits")]
pub(crate) async fn grant_credit(
    broker: web::Data<Broker>,
    who: May<WriteSpending>,
    request: HttpRequest,
    _: Query<NoParameters>,
    body: Body<GrantCredit>,
) -> Result<HttpResponse, ApiError> {
    if !who.tenant_named {
        return Err(ApiError::invalid_parameter(
            "a credit is given to a tenant by name: add `?tenant=` with its id",
        ));
    }
    let asked = body.value;
    let credit = Credit::try_new(
        CreditId::from_uuid(broker.new_uuid()),
        who.tenant,
        asked.amount_usd,
        asked.reason,
        who.api_key_id()?,
        broker.now(),
    )
    .map_err(|refusal| ApiError::invalid_body(refusal.to_string()))?;
    let booking = credit_transaction(&credit, TransactionId::from_uuid(broker.new_uuid()))
        .map_err(|error| ApiError::broken(&error))?;
    let render = |credit: &Credit| answer(StatusCode::CREATED, &CreditView::from(credit));
    idempotency::once(&broker, &who, &request, &body.bytes, async |mark| {
        let credits = broker.store().credits().of(who.tenant);
        credits
            .grant(&credit, &booking, completion(mark, &render))
            .await?;
        Ok(render(&credit))
    })
    .await
}
