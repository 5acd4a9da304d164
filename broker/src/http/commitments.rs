//! `/v1/commitments`: capacity that a tenant has paid for at a provider. Plans take it first, at its
//! remaining cost.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, delete, get, post, web};
use chrono::{DateTime, Utc};
use market::capacity::{CapacityFault, Commitment, OpenCommitment, OwnScope};
use market::ids::{CommitmentId, ProviderId};
use market::money::Money;
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::access::{ReadCapacity, WriteCapacity};
use super::auth::May;
use super::body::Body;
use super::error::ApiError;
use super::idempotency::{self, IdempotencyHeader, answer, completion, gone};
use super::names::check_name;
use super::page::{Cursors, Page, WhichPage};
use super::query::{NoParameters, Query};
use crate::flow::ingest::catch_up;
use crate::platform::app::Broker;

/// Capacity that is paid for, and the part of it that is left.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct CommitmentView {
    /// Its id.
    id: CommitmentId,
    /// The tenant's name for it.
    name: String,
    /// Where it was paid for.
    provider: ProviderId,
    /// Which on-demand offers it is good for.
    #[serde(flatten)]
    scope: OwnScope,
    /// Nodes that it is for at a time.
    nodes: u32,
    /// Nodes of them that no reservation has taken; none once it has expired.
    nodes_left: u32,
    /// Node-hours that it is for; `null`: as many as there are until it expires.
    node_hours: Option<u32>,
    /// Node-hours that no reservation has used or set aside.
    node_hours_left: Option<f64>,
    /// US dollars that a node still costs an hour.
    price_usd_node_hour: Money,
    /// When it expires.
    expires_at: DateTime<Utc>,
    /// When it was registered.
    created_at: DateTime<Utc>,
}

impl CommitmentView {
    fn at(open: &OpenCommitment, now: DateTime<Utc>) -> Self {
        let commitment = open.commitment.clone();
        let expired = commitment.expires_at <= now;
        Self {
            id: commitment.id,
            name: commitment.name,
            provider: commitment.provider,
            scope: commitment.scope,
            nodes: commitment.nodes,
            nodes_left: if expired { 0 } else { open.nodes_left },
            node_hours: commitment.node_hours,
            node_hours_left: open.node_seconds_left.map(|left| left as f64 / 3_600.0),
            price_usd_node_hour: commitment.price_per_node_hour,
            expires_at: commitment.expires_at,
            created_at: commitment.created_at,
        }
    }
}

/// Capacity that is paid for, to be taken first from now on.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddCommitment {
    /// Its name: the number of a contract, say.
    #[schema(min_length = 1, max_length = 100)]
    name: String,
    /// Where it was paid for.
    provider: ProviderId,
    /// The provider's own name for the thing; this or `gpu`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    sku: Option<String>,
    /// The GPU; this or `sku`.
    #[serde(default)]
    gpu: Option<market::gpu::Gpu>,
    /// GPUs of one node; nodes of every size by default.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_024)]
    gpus: Option<u32>,
    /// The country that it stands in; any by default.
    #[serde(default)]
    country: Option<market::place::Country>,
    /// The region as the provider writes it; any by default.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200)]
    region: Option<String>,
    /// Nodes that it is for at a time.
    #[schema(minimum = 1, maximum = 100_000)]
    nodes: u32,
    /// Node-hours that are left of it; by default as many as there are until it expires.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1_000_000_000)]
    node_hours: Option<u32>,
    /// US dollars that a node still costs an hour.
    #[serde(default = "nothing")]
    #[schema(default = json!("0"))]
    price_usd_node_hour: Money,
    /// When it expires.
    expires_at: DateTime<Utc>,
}

impl AddCommitment {
    /// The commitment as it is kept.
    ///
    /// Errors: [`CapacityFault`].
    pub(crate) fn into_commitment(
        self,
        id: CommitmentId,
        now: DateTime<Utc>,
    ) -> Result<Commitment, CapacityFault> {
        let commitment = Commitment {
            id,
            name: self.name,
            provider: self.provider,
            scope: OwnScope {
                sku: self.sku,
                gpu: self.gpu,
                gpus: self.gpus,
                country: self.country,
                region: self.region,
            },
            nodes: self.nodes,
            node_hours: self.node_hours,
            price_per_node_hour: self.price_usd_node_hour,
            expires_at: self.expires_at,
            created_at: now,
        };
        commitment.check(now)?;
        Ok(commitment)
    }
}

const fn nothing() -> Money {
    Money::usd_units(0)
}

impl From<CapacityFault> for ApiError {
    fn from(fault: CapacityFault) -> Self {
        Self::invalid_body(fault.to_string())
    }
}

/// Refuses a provider that nobody knows: nothing would ever be found to be of it.
///
/// Errors: `unknown_reference`.
pub(super) fn check_provider(broker: &Broker, provider: &ProviderId) -> Result<(), ApiError> {
    let known =
        broker.provider(provider).is_some() || broker.snapshot().provider(provider).is_some();
    if known {
        return Ok(());
    }
    Err(ApiError::unknown_reference(format!(
        "there is no provider `{provider}`; GET /v1/providers lists them"
    )))
}

/// Makes plans of this replica use the row that was just kept. The row is kept in any case: if the database
/// no longer answers, this replica learns of it as the others do.
pub(super) async fn take_up(broker: &Broker) {
    if let Err(error) = catch_up(broker).await {
        warn!(error = %crate::chain(&error), "Own capacity was changed and could not be read yet");
    }
}

/// Lists the tenant's commitments, the newest first.
#[utoipa::path(
    tag = "capacity",
    params(WhichPage),
    responses((status = 200, description = "A page of commitments", body = Page<CommitmentView>))
)]
#[get("/v1/commitments")]
pub(crate) async fn list_commitments(
    broker: web::Data<Broker>,
    who: May<ReadCapacity>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<CommitmentView>>, ApiError> {
    let now = broker.now();
    let commitments = broker
        .store()
        .commitments()
        .of(who.tenant)
        .list(now)
        .await?;
    let cursors = Cursors::of(broker.keys(), "commitments", &who.tenant);
    let page = cursors.page_of(commitments, &query, |open| open.commitment.id)?;
    Ok(web::Json(page.map(|open| CommitmentView::at(&open, now))))
}

/// Registers capacity that is paid for. From then on plans take it first. For administrators, who name the
/// tenant with `?tenant=`: it shows that tenant's prices.
#[utoipa::path(
    tag = "capacity",
    params(IdempotencyHeader),
    request_body = AddCommitment,
    responses((status = 201, description = "The commitment", body = CommitmentView))
)]
#[post("/v1/commitments")]
pub(crate) async fn add_commitment(
    broker: web::Data<Broker>,
    who: May<WriteCapacity>,
    request: HttpRequest,
    body: Body<AddCommitment>,
) -> Result<HttpResponse, ApiError> {
    let asked = body.value;
    check_name("name", &asked.name)?;
    check_provider(&broker, &asked.provider)?;
    let now = broker.now();
    let id = CommitmentId::from_uuid(broker.new_uuid());
    let commitment = asked.into_commitment(id, now)?;
    let render =
        |open: &OpenCommitment| answer(StatusCode::CREATED, &CommitmentView::at(open, now));
    idempotency::once(&broker, &who, &request, &body.bytes, async |effect| {
        let commitments = broker.store().commitments().of(who.tenant);
        let kept = commitments
            .add(commitment, completion(effect, &render))
            .await?;
        take_up(&broker).await;
        Ok(render(&kept))
    })
    .await
}

/// Shows a commitment.
#[utoipa::path(
    tag = "capacity",
    params(("id" = CommitmentId, Path, description = "The commitment")),
    responses((status = 200, description = "The commitment", body = CommitmentView))
)]
#[get("/v1/commitments/{id}")]
pub(crate) async fn show_commitment(
    broker: web::Data<Broker>,
    who: May<ReadCapacity>,
    id: web::Path<CommitmentId>,
    _: Query<NoParameters>,
) -> Result<web::Json<CommitmentView>, ApiError> {
    let now = broker.now();
    let commitments = broker.store().commitments().of(who.tenant);
    let found = commitments.find(*id, now).await?;
    let open =
        found.ok_or_else(|| ApiError::not_found(format!("there is no commitment {id} here")))?;
    Ok(web::Json(CommitmentView::at(&open, now)))
}

/// Withdraws a commitment: no plan takes it any more. Existing quotes and reservations stay as they are.
#[utoipa::path(
    tag = "capacity",
    params(("id" = CommitmentId, Path, description = "The commitment"), IdempotencyHeader),
    responses((status = 204, description = "It is withdrawn"))
)]
#[delete("/v1/commitments/{id}")]
pub(crate) async fn delete_commitment(
    broker: web::Data<Broker>,
    who: May<WriteCapacity>,
    request: HttpRequest,
    id: web::Path<CommitmentId>,
    _: Query<NoParameters>,
) -> Result<HttpResponse, ApiError> {
    idempotency::once(&broker, &who, &request, b"", async |effect| {
        let commitments = broker.store().commitments().of(who.tenant);
        let now = broker.now();
        commitments
            .withdraw(*id, now, completion(effect, &gone))
            .await?;
        take_up(&broker).await;
        Ok(gone(&()))
    })
    .await
}
