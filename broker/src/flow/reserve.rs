//! The reservation: a quote is taken and its capacity set aside, then confirmed, cancelled or
//! released. The stock is checked in the transaction that writes the hold.
//!
//! After `confirm`, [`crate::flow::fulfil`] acts at the providers.

mod command;
mod error;
mod on_record;
mod one_call;
mod pair;

use chrono::{DateTime, TimeDelta, Utc};
use market::demand::{Ceiling, Demand, DemandKind};
use market::fabric::FabricWanted;
use market::identity::{Projects, TenantScope};
use market::ids::{PrincipalId, ProjectId, QuoteId, ReservationId, SshKeyId, TenantId};
use market::offer::Offer;
use market::quote::{Quote, QuoteLine, most_per_hour};
use market::reservation::ReservationState;
use market::tags::{Attribution, Tags, check_tags};
use pricing::quote::check_ceiling;
use store::hold::NewReservation;
use store::idempotency::Completion;
use store::reservations::Reservation;
use store::{Conflict, StoreError};

pub use command::{cancel, confirm, confirm_all, event_of_wish, extend, release, stop};
pub use error::ReserveError;
pub use one_call::{in_one_call, pair_in_one_call};
pub use pair::hold_pair;
use pair::run_of;

use crate::flow::cooldown;
use crate::flow::plan::{self, PlanMemory};
use crate::flow::quote;
use crate::flow::verify;
use crate::platform::app::Broker;
use crate::platform::metrics;

/// The longest name of a reservation. Units: characters.
pub const NAME_CHARS: usize = 100;

/// The tenant's settings beside the quote.
#[derive(Debug, Clone, Default)]
pub struct Particulars {
    /// The tenant's name for it; the kind of the demand by default.
    pub name: Option<String>,
    /// The project; by default the first of those within reach.
    pub project_id: Option<ProjectId>,
    /// The SSH keys for its machines; all of the tenant's by default.
    pub ssh_key_ids: Option<Vec<SshKeyId>>,
    /// Free tags, beside those of the demand.
    pub tags: Tags,
    /// The fixed fields for finance.
    pub attribution: Attribution,
    /// The ceiling for the price of a replacement; that of the demand by default.
    pub ceiling: Option<Ceiling>,
    /// The principal who places it, and who may change it from then on.
    pub created_by: Option<PrincipalId>,
    /// Whether it is confirmed in the same call.
    pub auto_confirm: bool,
    /// The reservation after which it starts; by default the one that took the quote of its run.
    pub follows: Option<ReservationId>,
}

/// Takes a quote and sets its capacity aside, or a later start, which sets nothing aside.
///
/// Errors: [`ReserveError`]; nothing is written then.
pub async fn hold(
    broker: &Broker,
    whose: &TenantScope,
    quote_id: QuoteId,
    particulars: Particulars,
    completion: Option<Completion<'_, Reservation>>,
) -> Result<Reservation, ReserveError> {
    let ended = take(broker, whose, quote_id, particulars, completion).await;
    metrics::hold_ended(outcome(&ended));
    ended
}

/// The metrics' word for the end of taking a quote.
fn outcome<T>(ended: &Result<T, ReserveError>) -> &'static str {
    use ReserveError as E;
    match ended {
        Ok(_) => "held",
        Err(E::OutOfStock(_)) => "out_of_stock",
        Err(E::ProviderClosed(_)) => "provider_closed",
        Err(E::CoolingDown(_)) => "cooling_down",
        Err(E::OutsidePolicy { .. }) => "outside_policy",
        Err(E::QuoteLapsed(_)) => "quote_lapsed",
        Err(E::QuoteTaken(_)) => "quote_taken",
        Err(E::AboveCeiling(_)) => "above_ceiling",
        Err(E::Store(_) | E::Quote(_) | E::Plan(_)) => "failed",
        Err(_) => "invalid",
    }
}

/// Refuses tags that lack a required one, and fields too when they are given again.
///
/// Errors: [`ReserveError::TagsMissing`], naming all that is missing.
pub(crate) async fn carries_required(
    broker: &Broker,
    tenant: TenantId,
    tags: &Tags,
    attribution: Option<&Attribution>,
) -> Result<(), ReserveError> {
    let required = broker.store().tenants().required_tags(tenant).await?;
    let tags = required.missing_tags(tags);
    let fields = attribution.map_or_else(Vec::new, |given| required.missing_fields(given));
    let tags = tags.iter().map(|key| format!("the tag `{key}`"));
    let fields = fields.iter().map(|field| format!("`attribution.{field}`"));
    let missing: Vec<_> = tags.chain(fields).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(ReserveError::TagsMissing(format!(
        "the tenant requires {} of every reservation; give each a value",
        missing.join(" and ")
    )))
}

async fn take(
    broker: &Broker,
    whose: &TenantScope,
    quote_id: QuoteId,
    particulars: Particulars,
    completion: Option<Completion<'_, Reservation>>,
) -> Result<Reservation, ReserveError> {
    let now = broker.now();
    let quote = quote::find_kept(broker, whose, quote_id).await?.quote;
    let follows = run_of(broker, whose, &quote, particulars.follows).await?;
    let mut new = draft(broker, whose, quote, particulars, now).await?;
    new.follows = follows;
    let mine = broker.store().reservations().of(whose.tenant);
    let held = mine.place_hold(new, now, completion).await;
    placed(broker, whose.tenant, held, quote_id).await
}

/// The reservation that a quote would become.
async fn draft(
    broker: &Broker,
    whose: &TenantScope,
    quote: Quote,
    particulars: Particulars,
    now: DateTime<Utc>,
) -> Result<NewReservation, ReserveError> {
    if quote.has_lapsed(now) {
        return Err(ReserveError::QuoteLapsed(quote.id));
    }
    check_leases(broker, &quote.lines)?;
    let record = plan::find(broker, whose, quote.plan_id).await?;
    let half = quote.lines.iter().find_map(|line| line.half);
    let demand = record.demand.of_half(half);
    let shared = demand.shared();
    let mut tags = shared.tags.clone();
    tags.extend(particulars.tags);
    check_tags(&tags)?;
    carries_required(broker, whose.tenant, &tags, Some(&particulars.attribution)).await?;
    let mut lines = quote.lines;
    let ceiling = particulars.ceiling.or_else(|| shared.ceiling.cloned());
    match quote.starts_at {
        // A bound below today's price is allowed: the price may fall until it is ordered.
        Some(_) => {
            pricing::quote::bound(&mut lines, ceiling.as_ref())
                .map_err(ReserveError::AboveCeiling)?;
            // A bound that no sum can hold could never be counted.
            most_per_hour(&lines, ceiling.as_ref())
                .map_err(|error| ReserveError::AboveCeiling(error.into()))?;
        }
        None => {
            may_sell(
                broker,
                whose.tenant,
                &demand,
                (&lines, ceiling.as_ref()),
                now,
            )
            .await?
        }
    }
    let window = shared.window;
    let starts_at = quote.starts_at;
    let wanted = verify::level_of(broker, &demand)?;
    let offers = lines.iter().map(|line| &line.offer);
    Ok(NewReservation {
        id: ReservationId::from_uuid(broker.new_uuid()),
        created_by: particulars.created_by,
        project_id: project(broker, whose, particulars.project_id).await?,
        name: name(particulars.name, demand.kind())?,
        plan_id: quote.plan_id,
        quote_id: quote.id,
        verification: verify::level_at(broker, wanted, offers).await?,
        gang: falls_as_one(&demand, &lines),
        lines,
        ceiling,
        ssh_public_keys: ssh_keys(broker, whose.tenant, particulars.ssh_key_ids).await?,
        tags,
        attribution: particulars.attribution,
        starts_at: starts_at.or_else(|| window?.starts_after(now)),
        follows: None,
        window_end: match starts_at {
            Some(starts_at) => Some(
                window
                    .cloned()
                    .unwrap_or_default()
                    .given_up_after(starts_at),
            ),
            None => window.and_then(|window| window.given_up_at(now)),
        },
        confirmed_at_once: particulars.auto_confirm,
        hold_expires_at: now + TimeDelta::seconds(broker.config().sales.hold_seconds.into()),
        demand,
    })
}

/// Makes sure that what is ordered now may be sold: the records of its sellers, cool-downs and the ceiling.
///
/// Errors: [`ReserveError::OutsidePolicy`], [`ReserveError::CoolingDown`], [`ReserveError::AboveCeiling`].
pub(crate) async fn may_sell(
    broker: &Broker,
    tenant: TenantId,
    demand: &Demand,
    (lines, ceiling): (&[QuoteLine], Option<&Ceiling>),
    now: DateTime<Utc>,
) -> Result<(), ReserveError> {
    let sellers = lines.iter().map(|line| &line.offer);
    let ends_by = demand.ends_by(now);
    let until = ends_by.unwrap_or_else(|| demand.handed_off_by(now));
    on_record::check(broker, demand, sellers, until)?;
    let offers = lines.iter().map(|line| line.offer.offer_id);
    if let Some(resting) = cooldown::first_resting(broker, tenant, offers).await? {
        broker.memory::<PlanMemory>().met_gone(tenant);
        return Err(resting.into());
    }
    match ceiling {
        Some(ceiling) => check_ceiling(lines, ceiling).map_err(ReserveError::AboveCeiling),
        None => Ok(()),
    }
}

/// Wakes those who wait for news of a tenant's reservations: workers, listeners, plans.
pub(crate) async fn announce(broker: &Broker, tenant: TenantId) {
    broker.nudge();
    broker.ring_events();
    plan::holds_changed(broker, tenant).await;
}

/// Announces what was placed; else says why nothing was.
async fn placed<T>(
    broker: &Broker,
    tenant: TenantId,
    placed: Result<T, StoreError>,
    quote_id: QuoteId,
) -> Result<T, ReserveError> {
    if placed.is_ok() {
        announce(broker, tenant).await;
    }
    placed.map_err(|error| match error {
        StoreError::Conflict(Conflict::QuoteTaken) => ReserveError::QuoteTaken(quote_id),
        StoreError::Conflict(Conflict::QuoteLapsed) => ReserveError::QuoteLapsed(quote_id),
        out @ StoreError::OutOfStock { .. } => {
            broker.memory::<PlanMemory>().met_gone(tenant);
            ReserveError::OutOfStock(out)
        }
        StoreError::Conflict(
            closed @ (Conflict::ProviderDisabled { .. } | Conflict::ProviderQuarantined { .. }),
        ) => ReserveError::ProviderClosed(closed),
        other => ReserveError::Store(other),
    })
}

/// Finds a reservation within reach.
///
/// Errors: [`ReserveError::Unknown`], also for another tenant's reservation.
pub async fn find(
    broker: &Broker,
    whose: &TenantScope,
    id: ReservationId,
) -> Result<Reservation, ReserveError> {
    broker
        .store()
        .reservations()
        .of(whose.tenant)
        .find(id)
        .await?
        .filter(|row| whose.projects.has(row.project_id))
        .ok_or(ReserveError::Unknown(id))
}

/// How the nodes of an offer are split into leases: the nodes of each.
///
/// A provider that sells nodes one by one takes an order for each; one that rents several at once
/// takes as few as it can.
#[must_use]
pub fn lease_sizes(broker: &Broker, offer: &Offer, nodes: u32) -> Vec<u32> {
    let link = broker.provider(&offer.provider);
    let most = link
        .map_or(1, |link| link.adapter.nodes_per_lease(offer).max())
        .max(1);
    let mut left = nodes;
    let mut sizes = Vec::new();
    while left > 0 {
        let size = left.min(most);
        sizes.push(size);
        left -= size;
    }
    sizes
}

pub(crate) fn check_leases(broker: &Broker, lines: &[QuoteLine]) -> Result<(), ReserveError> {
    let leases = |line: &QuoteLine| lease_sizes(broker, &line.offer, line.nodes).len();
    let wanted: usize = lines.iter().map(leases).sum();
    let wanted = u32::try_from(wanted).unwrap_or(u32::MAX);
    let most = broker.config().sales.leases_per_reservation;
    if wanted > most {
        Err(ReserveError::TooManyLeases { wanted, most })
    } else {
        Ok(())
    }
}

/// Whether the nodes only make sense together: those of a training run do, and those for which a demand
/// asks to be joined. A fleet's do not.
pub(crate) fn falls_as_one(demand: &Demand, lines: &[QuoteLine]) -> bool {
    let joined_by = |fabric: FabricWanted| {
        let mut lines = lines.iter();
        fabric != FabricWanted::Any && lines.all(|line| fabric.accepts(line.offer.internode))
    };
    match demand {
        Demand::Train(_) => true,
        Demand::Gpus(gpus) => joined_by(gpus.joined_by()),
        Demand::ServeRealtime(_) | Demand::ServeBatch(_) | Demand::Hybrid(_) => false,
    }
}

/// The name to keep; the kind of the demand by default.
///
/// Errors: [`ReserveError::Name`].
pub fn name(given: Option<String>, kind: DemandKind) -> Result<String, ReserveError> {
    let name = given.unwrap_or_else(|| kind.as_str().to_owned());
    let chars = name.chars().count();
    if chars == 0 || chars > NAME_CHARS || name.chars().any(char::is_control) {
        return Err(ReserveError::Name);
    }
    Ok(name)
}

async fn project(
    broker: &Broker,
    whose: &TenantScope,
    wanted: Option<ProjectId>,
) -> Result<ProjectId, ReserveError> {
    let mut projects = broker.store().tenants().projects(whose.tenant).await?;
    projects.retain(|project| whose.projects.has(project.id));
    match wanted {
        Some(id) if projects.iter().any(|project| project.id == id) => Ok(id),
        Some(id) => Err(ReserveError::UnknownProject(id)),
        None if whose.projects != Projects::All && projects.len() > 1 => {
            Err(ReserveError::WhichProject)
        }
        // A tenant is made with its first project; it was made first.
        None => projects
            .iter()
            .min_by_key(|project| (project.created_at, project.id))
            .map(|project| project.id)
            .ok_or(ReserveError::Store(StoreError::NotFound {
                what: "project",
            })),
    }
}

async fn ssh_keys(
    broker: &Broker,
    tenant: TenantId,
    wanted: Option<Vec<SshKeyId>>,
) -> Result<Vec<String>, ReserveError> {
    let known = broker.store().ssh_keys().of(tenant).list().await?;
    let keys = match wanted {
        None => known.into_iter().map(|key| key.public_key).collect(),
        Some(wanted) => wanted
            .into_iter()
            .map(|id| {
                let key = known.iter().find(|key| key.id == id);
                key.map(|key| key.public_key.clone())
                    .ok_or(ReserveError::UnknownSshKey(id))
            })
            .collect::<Result<Vec<_>, _>>()?,
    };
    if keys.is_empty() {
        Err(ReserveError::NoSshKey)
    } else {
        Ok(keys)
    }
}

/// Whether the tenant may still change its mind before anything runs.
fn is_early(state: ReservationState) -> bool {
    use ReservationState as S;
    matches!(state, S::Held | S::Scheduled | S::Confirmed)
}
