//! `/v1/provider-accounts`: the prices that a tenant agreed with a provider. They replace the list prices in
//! the tenant's plans and quotes. Credentials of tenants are not kept here.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use chrono::{DateTime, Utc};
use market::capacity::{BookPrice, CapacityFault, OwnScope, ProviderAccount};
use market::ids::{ProviderAccountId, ProviderId};
use market::money::Rate;
use serde::{Deserialize, Serialize};

use super::access::{ReadCapacity, WriteCapacity};
use super::auth::May;
use super::body::Body;
use super::commitments::{check_provider, take_up};
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion, gone};
use super::names::check_name;
use super::page::{Cursors, Page, WhichPage};
use super::query::{NoParameters, Query};
use crate::platform::app::Broker;

/// An agreed price. The first price of an account that holds and means an offer counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceRow {
    /// The provider's own name for the thing; this or `gpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    sku: Option<String>,
    /// The GPU; this or `sku`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gpu: Option<market::gpu::Gpu>,
    /// GPUs of one node; nodes of every size by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1_024)]
    gpus: Option<u32>,
    /// The country that it stands in; any by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    country: Option<market::place::Country>,
    /// The region as the provider writes it; any by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 200)]
    region: Option<String>,
    /// US dollars per GPU-hour, above 0.
    price_usd_gpu_hour: Rate,
    /// The start of its validity; unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    valid_from: Option<DateTime<Utc>>,
    /// The end of its validity; unlimited by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    valid_until: Option<DateTime<Utc>>,
}

impl From<PriceRow> for BookPrice {
    fn from(row: PriceRow) -> Self {
        Self {
            scope: OwnScope {
                sku: row.sku,
                gpu: row.gpu,
                gpus: row.gpus,
                country: row.country,
                region: row.region,
            },
            rate: row.price_usd_gpu_hour,
            valid_from: row.valid_from,
            valid_until: row.valid_until,
        }
    }
}

impl From<BookPrice> for PriceRow {
    fn from(price: BookPrice) -> Self {
        let scope = price.scope;
        Self {
            sku: scope.sku,
            gpu: scope.gpu,
            gpus: scope.gpus,
            country: scope.country,
            region: scope.region,
            price_usd_gpu_hour: price.rate,
            valid_from: price.valid_from,
            valid_until: price.valid_until,
        }
    }
}

/// The terms agreed with a provider.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct ProviderAccountView {
    /// Its id.
    id: ProviderAccountId,
    /// The tenant's name for it.
    name: String,
    /// The provider.
    provider: ProviderId,
    /// The prices.
    #[schema(max_items = 200)]
    prices: Vec<PriceRow>,
    /// When it was registered.
    created_at: DateTime<Utc>,
}

impl From<&ProviderAccount> for ProviderAccountView {
    fn from(account: &ProviderAccount) -> Self {
        let prices = account.prices.iter().cloned();
        Self {
            id: account.id,
            name: account.name.clone(),
            provider: account.provider.clone(),
            prices: prices.map(PriceRow::from).collect(),
            created_at: account.created_at,
        }
    }
}

/// The terms agreed with a provider, in force from now on.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddProviderAccount {
    /// Its name: the number of a contract, say.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// The provider.
    provider: ProviderId,
    /// The prices, most particular first.
    #[schema(min_items = 1, max_items = 200)]
    prices: Vec<PriceRow>,
}

impl AddProviderAccount {
    /// The account as it is kept.
    ///
    /// Errors: [`CapacityFault`].
    pub(crate) fn into_account(
        self,
        id: ProviderAccountId,
        now: DateTime<Utc>,
    ) -> Result<ProviderAccount, CapacityFault> {
        let account = ProviderAccount {
            id,
            name: self.name,
            provider: self.provider,
            prices: self.prices.into_iter().map(BookPrice::from).collect(),
            created_at: now,
        };
        account.check(now)?;
        Ok(account)
    }
}

/// Lists the tenant's provider accounts, the newest first: of two that mean one offer, it counts.
#[utoipa::path(
    tag = "capacity",
    params(WhichPage),
    responses((status = 200, description = "A page of accounts", body = Page<ProviderAccountView>))
)]
#[get("/v1/provider-accounts")]
pub(crate) async fn list_provider_accounts(
    broker: web::Data<Broker>,
    who: May<ReadCapacity>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<ProviderAccountView>>, ApiError> {
    let accounts = broker.store().provider_accounts().of(who.tenant);
    let cursors = Cursors::of(broker.keys(), "provider-accounts", &who.tenant);
    let page = cursors.page_of(accounts.list().await?, &query, |account| account.id)?;
    Ok(web::Json(
        page.map(|account| ProviderAccountView::from(&account)),
    ))
}

/// Registers agreed prices. From then on plans and quotes use them. For administrators, who name the tenant
/// with `?tenant=`: it shows that tenant's prices.
#[utoipa::path(
    tag = "capacity",
    params(IdempotencyHeader),
    request_body = AddProviderAccount,
    responses((status = 201, description = "The account", body = ProviderAccountView))
)]
#[post("/v1/provider-accounts")]
pub(crate) async fn add_provider_account(
    broker: web::Data<Broker>,
    who: May<WriteCapacity>,
    request: HttpRequest,
    body: Body<AddProviderAccount>,
) -> Result<HttpResponse, ApiError> {
    let asked = body.value;
    check_name("name", &asked.name)?;
    check_provider(&broker, &asked.provider)?;
    let id = ProviderAccountId::from_uuid(broker.new_uuid());
    let account = asked.into_account(id, broker.now())?;
    let render = |account: &ProviderAccount| {
        answer(StatusCode::CREATED, &ProviderAccountView::from(account))
    };
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        let accounts = broker.store().provider_accounts().of(who.tenant);
        let kept = accounts.add(account, completion(effect, &render)).await?;
        take_up(&broker).await;
        Ok(render(&kept))
    })
    .await
}

/// Shows a provider account.
#[utoipa::path(
    tag = "capacity",
    params(("id" = ProviderAccountId, Path, description = "The account")),
    responses((status = 200, description = "The account", body = ProviderAccountView))
)]
#[get("/v1/provider-accounts/{id}")]
pub(crate) async fn show_provider_account(
    broker: web::Data<Broker>,
    who: May<ReadCapacity>,
    id: web::Path<ProviderAccountId>,
    _: Query<NoParameters>,
) -> Result<web::Json<ProviderAccountView>, ApiError> {
    let accounts = broker.store().provider_accounts().of(who.tenant);
    let found = accounts.find(*id).await?;
    let unknown = || ApiError::not_found(format!("there is no provider account {id} here"));
    let account = found.ok_or_else(unknown)?;
    Ok(web::Json(ProviderAccountView::from(&account)))
}

/// Withdraws a provider account: list prices apply again. Existing quotes and reservations stay as they are.
#[utoipa::path(
    tag = "capacity",
    params(("id" = ProviderAccountId, Path, description = "The account"), IdempotencyHeader),
    responses((status = 204, description = "It is withdrawn"))
)]
#[delete("/v1/provider-accounts/{id}")]
pub(crate) async fn delete_provider_account(
    broker: web::Data<Broker>,
    who: May<WriteCapacity>,
    request: HttpRequest,
    id: web::Path<ProviderAccountId>,
    _: Query<NoParameters>,
) -> Result<HttpResponse, ApiError> {
    idempotency::once(&broker, &who, &request, b"", async |effect| {
        let accounts = broker.store().provider_accounts().of(who.tenant);
        let now = broker.now();
        accounts
            .withdraw(*id, now, completion(effect, &gone))
            .await?;
        take_up(&broker).await;
        Ok(gone(&()))
    })
    .await
}
