//! `/v1/providers`: whose supply is read, how fresh it is, and how it is connected.
//!
//! Everyone who plans may look, and a provider at itself; an administrator changes. A credential goes in
//! and never comes out: an administrator sees its last four characters and when it was entered.

mod change;
mod check;
mod quarantine;

use std::collections::BTreeMap;

use actix_web::{get, web};
use chrono::{DateTime, Utc};
use market::acceptance::{AcceptanceRecord, Reliability};
use market::catalog::Skipped;
use market::identity::{ResourceFamily, Scope};
use market::ids::{LeaseId, ProviderId};
use market::provider_facts::{Certification, Operator, ProviderFacts, StorageOnRecord};
use matcher::Snapshot;
use serde::{Deserialize, Serialize};
use store::leases::Lease;
use store::providers::{Provider, Quarantine, SealedCredential};

use super::access::ReadProviders;
use super::auth::{May, OfProviders, Principal};
use super::error::ApiError;
use super::page::{Cursors, Page, limit};
use crate::flow::providers::LinkError;
use crate::platform::app::Broker;

pub(crate) use change::{add_provider, change_provider};
pub(crate) use check::check_provider;
pub(crate) use quarantine::{end_quarantine, quarantine_provider, show_quarantine};

/// Where a provider's credential comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConnectedBy {
    /// The configuration of the service, which wins.
    Configuration,
    /// It was entered at run time.
    Entry,
    /// There is none: it is in price lists alone, or is not connected any more.
    Nothing,
}

/// A credential, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct CredentialMark {
    /// Its last four characters; empty for one too short to show any.
    hint: String,
    /// When it was entered.
    set_at: DateTime<Utc>,
}

impl From<SealedCredential> for CredentialMark {
    fn from(credential: SealedCredential) -> Self {
        Self {
            hint: credential.hint,
            set_at: credential.set_at,
        }
    }
}

/// Why and for how long nothing new is sold at a provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct QuarantineView {
    /// Why.
    reason: String,
    /// Since when.
    since: DateTime<Utc>,
    /// When it ends by itself.
    until: DateTime<Utc>,
}

impl From<&Quarantine> for QuarantineView {
    fn from(quarantine: &Quarantine) -> Self {
        Self {
            reason: quarantine.reason.clone(),
            since: quarantine.since,
            until: quarantine.until,
        }
    }
}

/// A record of a catalogue that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct UnreadRecord {
    /// The provider's own name for the thing; `null` where that could not be read either.
    sku: Option<String>,
    /// Why it could not be read.
    why: String,
}

impl From<&Skipped> for UnreadRecord {
    fn from(record: &Skipped) -> Self {
        Self {
            sku: record.sku.clone(),
            why: record.why.clone(),
        }
    }
}

/// A machine that runs though its lease is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct ReturnedMachine {
    /// The lease, which was given up because its provider did not show it.
    lease_id: LeaseId,
    /// Since when it is known to run.
    since: DateTime<Utc>,
}

/// A provider, and how far its supply is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct ProviderItem {
    /// Its id.
    id: ProviderId,
    /// Whether its offers are sold and its catalogue is read.
    enabled: bool,
    /// Whether its offers can be ordered here; those of price lists cannot.
    orderable: bool,
    /// Where its credential comes from.
    connected_by: ConnectedBy,
    /// For an administrator: the credential that was entered at run time; else `null`.
    credential: Option<CredentialMark>,
    /// For an administrator: its interface's address, when it is not the adapter's; else `null`.
    base_url: Option<String>,
    /// The operator, where that is on record here; else `null`, and no policy on operators admits the
    /// provider.
    operator: Option<Operator>,
    /// Its certifications, as far as evidence is on record here.
    certifications: Vec<Certification>,
    /// How fast it promised the storage of its machines to be, as far as that is on record here.
    storage: Vec<StorageOnRecord>,
    /// The record of the orders of the last 30 days there, as a forecast for the next one.
    reliability: Reliability,
    /// For an administrator: how those orders ended, of all tenants; else `null`.
    acceptance: Option<AcceptanceRecord>,
    /// Why nothing new is sold there at present; `null` while it is.
    quarantine: Option<QuarantineView>,
    /// For an administrator: machines that were in tenants' hands, were given up because the provider did not
    /// show them, and run again. Each waits for `broker sweep --end-returned LEASE`; else `null`.
    returned: Option<Vec<ReturnedMachine>>,
    /// Whether its last reading is within its freshness limit. A reading made for orders is not fresh once
    /// the provider is not connected any more.
    fresh: bool,
    /// Past this age its offers are not matched; `null` for price lists, which have no limit.
    /// Units: seconds.
    #[schema(minimum = 0, maximum = 9_007_199_254_740_991_u64)]
    freshness_limit_seconds: Option<u64>,
    /// When its catalogue was last asked for.
    last_attempt_at: Option<DateTime<Utc>>,
    /// When its catalogue was last read. Offers that the reading could not include are older.
    last_read_at: Option<DateTime<Utc>>,
    /// When its catalogue was last read as a whole.
    last_complete_at: Option<DateTime<Utc>>,
    /// Why the last attempt changed nothing; `null` when it did.
    stale_reason: Option<String>,
    /// Records that its last reading could not read, each with why (500 at most). Offers that may be
    /// among them stay as they were, and grow old.
    #[schema(max_items = 500)]
    unread: Vec<UnreadRecord>,
    /// Offers that its last reading held.
    #[schema(minimum = 0, maximum = 4_294_967_295_u64)]
    live_offers: u32,
    /// Records of that reading that are no offer, by reason (of the first 500).
    #[schema(value_type = BTreeMap<String, u64>)]
    skipped_by_reason: BTreeMap<String, u64>,
}

/// How providers are shown to one caller.
struct Shown<'a> {
    broker: &'a Broker,
    to_admin: bool,
    /// Leases whose machines have returned, for an administrator.
    returned: Vec<Lease>,
}

impl<'a> Shown<'a> {
    async fn to(broker: &'a Broker, who: &Principal) -> Result<Self, ApiError> {
        let to_admin = who.grant.reaches(ResourceFamily::Providers) == Scope::Write;
        let leases = broker.store().leases().across_tenants();
        let returned = match to_admin {
            true => leases.returned().await?,
            false => Vec::new(),
        };
        Ok(Self {
            broker,
            to_admin,
            returned,
        })
    }

    fn returned_to(&self, provider: &ProviderId) -> Vec<ReturnedMachine> {
        let machine = |lease: &Lease| {
            Some(ReturnedMachine {
                lease_id: lease.id,
                since: lease.returned_at?,
            })
        };
        let leases = self.returned.iter();
        let its = leases.filter(|lease| lease.offer.provider == *provider);
        its.filter_map(machine).collect()
    }

    fn item(&self, provider: Provider) -> ProviderItem {
        let (snapshot, now) = (self.broker.snapshot(), self.broker.now());
        let connected_by = if is_configured(self.broker, &provider.id) {
            ConnectedBy::Configuration
        } else if provider.credential.is_some() {
            ConnectedBy::Entry
        } else {
            ConnectedBy::Nothing
        };
        let mut skipped_by_reason = BTreeMap::new();
        for skipped in &provider.skipped {
            *skipped_by_reason
                .entry(skipped.reason.as_str().to_owned())
                .or_default() += skipped.rows;
        }
        let ProviderFacts {
            operator,
            certifications,
            storage,
        } = self.broker.config().facts_of(&provider.id);
        let acceptance = (snapshot.provider(&provider.id))
            .map_or_else(AcceptanceRecord::default, |view| view.acceptance);
        let for_admin = |base_url: Option<String>| base_url.filter(|_| self.to_admin);
        ProviderItem {
            fresh: is_fresh(&snapshot, &provider, now),
            freshness_limit_seconds: snapshot
                .provider(&provider.id)
                .and_then(|view| view.freshness_limit_seconds),
            quarantine: provider.quarantine_at(now).map(QuarantineView::from),
            returned: Some(self.returned_to(&provider.id)).filter(|_| self.to_admin),
            orderable: connected_by != ConnectedBy::Nothing,
            connected_by,
            credential: provider
                .credential
                .filter(|_| self.to_admin)
                .map(CredentialMark::from),
            base_url: for_admin(provider.base_url),
            operator,
            certifications,
            storage,
            reliability: acceptance.reliability(),
            acceptance: Some(acceptance).filter(|_| self.to_admin),
            id: provider.id,
            enabled: provider.enabled,
            last_attempt_at: provider.last_attempt_at,
            last_read_at: provider.last_read_at,
            last_complete_at: provider.last_complete_at,
            unread: (provider.skipped.iter())
                .filter(|record| record.is_unread())
                .map(UnreadRecord::from)
                .collect(),
            stale_reason: provider.stale_reason,
            live_offers: provider.live_offers,
            skipped_by_reason,
        }
    }
}

/// Whether the configuration connects a provider.
fn is_configured(broker: &Broker, id: &ProviderId) -> bool {
    broker.provider_set(|set| set.is_given(id))
}

fn unknown(id: &ProviderId) -> ApiError {
    ApiError::not_found(format!("there is no provider {id} here"))
}

/// A provider that must be there, and that the caller may see.
async fn find(broker: &Broker, who: &Principal, id: &ProviderId) -> Result<Provider, ApiError> {
    let found = broker.store().providers().find(id).await?;
    found
        .filter(|provider| who.grant.sees_provider(&provider.id))
        .ok_or_else(|| unknown(id))
}

impl From<LinkError> for ApiError {
    fn from(error: LinkError) -> Self {
        match error {
            LinkError::UnknownProvider(_) => Self::unknown_reference(error.to_string()),
            LinkError::Sealed(_) => Self::broken(&error),
            LinkError::Credential
            | LinkError::NotLoopback
            | LinkError::BaseUrl
            | LinkError::Connection(_) => Self::invalid_body(error.to_string()),
        }
    }
}

/// Which providers.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListProviders {
    /// The cursor of the page before.
    cursor: Option<String>,
    /// Items of a page.
    #[param(minimum = 1, maximum = 200, default = 50)]
    limit: Option<u32>,
}

/// Lists the providers by id; a key that is bound to one lists that one alone.
#[utoipa::path(
    tag = "providers",
    params(ListProviders),
    responses((status = 200, description = "A page of providers", body = Page<ProviderItem>))
)]
#[get("/v1/providers")]
pub(crate) async fn list_providers(
    broker: web::Data<Broker>,
    who: May<ReadProviders, OfProviders>,
    query: web::Query<ListProviders>,
) -> Result<web::Json<Page<ProviderItem>>, ApiError> {
    let limit = limit(query.limit)?;
    let cursors = Cursors::of(broker.keys(), "providers", &());
    let after: Option<ProviderId> = query
        .cursor
        .as_deref()
        .map(|cursor| cursors.open(cursor))
        .transpose()?;
    let providers = broker.store().providers().list().await?;
    let follows = |provider: &Provider| after.as_ref().is_none_or(|after| provider.id > *after);
    let seen = |provider: &Provider| who.grant.sees_provider(&provider.id);
    let rest = providers
        .into_iter()
        .filter(|one| seen(one) && follows(one));
    let items: Vec<_> = rest.take(limit + 1).collect();
    let page = cursors.page(items, limit, |provider: &Provider| provider.id.clone());
    let shown = Shown::to(&broker, &who).await?;
    Ok(web::Json(page.map(|provider| shown.item(provider))))
}

/// Shows a provider.
#[utoipa::path(
    tag = "providers",
    params(("id" = ProviderId, Path, description = "The provider")),
    responses((status = 200, description = "The provider", body = ProviderItem))
)]
#[get("/v1/providers/{id}")]
pub(crate) async fn show_provider(
    broker: web::Data<Broker>,
    who: May<ReadProviders, OfProviders>,
    id: web::Path<ProviderId>,
) -> Result<web::Json<ProviderItem>, ApiError> {
    let provider = find(&broker, &who, &id).await?;
    Ok(web::Json(Shown::to(&broker, &who).await?.item(provider)))
}

/// Whether a provider has offers that were read to be ordered, not only listed. Once it is not
/// connected any more nobody reads them, and they have no limit that they could be within.
fn could_be_ordered(snapshot: &Snapshot, id: &ProviderId) -> bool {
    let mut offers = snapshot.offers();
    offers.any(|offer| offer.orderable() && offer.provider() == id)
}

/// How far in the future a reading may seem to be and still be fresh. Units: seconds.
const MOST_AHEAD_SECONDS: i64 = 60;

/// Whether the last reading of a provider is within its freshness limit, if it has one.
pub(super) fn is_fresh(snapshot: &Snapshot, provider: &Provider, now: DateTime<Utc>) -> bool {
    let limit = snapshot
        .provider(&provider.id)
        .map(|view| view.freshness_limit_seconds);
    if limit == Some(None) && could_be_ordered(snapshot, &provider.id) {
        return false;
    }
    let age = provider
        .last_read_at
        // Of another replica's clock it may be ahead by a little.
        .filter(|at| (*at - now).num_seconds() <= MOST_AHEAD_SECONDS)
        .and_then(|at| u64::try_from((now - at).num_seconds().max(0)).ok());
    let is_within = |(limit, age): (Option<u64>, u64)| limit.is_none_or(|limit| age <= limit);
    provider.enabled && limit.zip(age).is_some_and(is_within)
}
