//! `/v1/members`: who may act for a tenant.

use std::collections::BTreeMap;

use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::identity::Role;
use market::ids::{PrincipalId, ProviderId};
use serde::Serialize;
use store::api_keys::ApiKey;

use super::access::ReadIdentity;
use super::auth::May;
use super::error::ApiError;
use super::page::{Cursors, Page, WhichPage};
use super::query::Query;
use crate::platform::app::Broker;

/// Somebody who may act for a tenant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct Member {
    /// Its id: the same for all keys that followed one another, and `created_by` of its reservations.
    principal_id: PrincipalId,
    /// The name of its newest key.
    name: String,
    /// Its role.
    role: Role,
    /// The one provider that it reads, for the role `provider`; else `null`.
    provider_id: Option<ProviderId>,
    /// Keys of its that work now: more than one while one follows another.
    #[schema(minimum = 0)]
    usable_keys: u32,
    /// When its first key was made.
    since: DateTime<Utc>,
    /// When one of its keys was last used, to the minute.
    last_used_at: Option<DateTime<Utc>>,
}

/// Lists who may act for the tenant by API key, the newest first, also those whose keys are all over.
///
/// Logins of an outside issuer are for that issuer to list: the broker does not keep them.
#[utoipa::path(
    tag = "identity",
    params(WhichPage),
    responses((status = 200, description = "A page of members", body = Page<Member>))
)]
#[get("/v1/members")]
pub(crate) async fn list_members(
    broker: web::Data<Broker>,
    who: May<ReadIdentity>,
    query: Query<WhichPage>,
) -> Result<web::Json<Page<Member>>, ApiError> {
    let keys = broker.store().api_keys().of(who.tenant).list().await?;
    let members = members(keys, broker.now());
    let cursors = Cursors::of(broker.keys(), "members", &who.tenant);
    let newest_first = members.into_values().rev();
    let page = cursors.page_of(newest_first, &query, |member| member.principal_id)?;
    Ok(web::Json(page))
}

/// The principal of these keys, which come the newest first.
fn members(keys: Vec<ApiKey>, now: DateTime<Utc>) -> BTreeMap<PrincipalId, Member> {
    let mut members: BTreeMap<PrincipalId, Member> = BTreeMap::new();
    for key in keys {
        let usable = u32::from(key.is_usable(now));
        let member = members.entry(key.principal).or_insert_with(|| Member {
            principal_id: key.principal,
            name: key.name,
            role: key.role,
            provider_id: key.provider,
            usable_keys: 0,
            since: key.created_at,
            last_used_at: None,
        });
        member.usable_keys += usable;
        member.since = member.since.min(key.created_at);
        member.last_used_at = member.last_used_at.max(key.last_used_at);
    }
    members
}
