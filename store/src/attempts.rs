//! The result of each order at a provider, so that an offer that keeps failing is skipped for a while.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, TimeDelta, Utc};
use market::acceptance::AcceptanceRecord;
use market::cooling::EarlyFailure;
use market::ids::{LeaseId, OfferId, ProviderId, TenantId};
use market::lease::LeaseEvent;
use market::offer::Offer;
use sea_orm::{
    ActiveValue, ColumnTrait, Condition, DatabaseTransaction, EntityTrait, JoinType, QueryFilter,
    QueryOrder, QuerySelect, RelationDef, Select,
};

use crate::StoreError;
use crate::change::NewAttempt;
use crate::entity::attempts::{ActiveModel, Column, Entity, Model};
use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::leases;
use crate::scope::service_wide;

/// The provider, the offer, the outcome, and whether a machine had been handed over.
type Ended = (Text<ProviderId>, Text<OfferId>, Word<LeaseEvent>, bool);

/// How many of a provider's last passed orders are searched for one SKU.
const ORDERS_LOOKED_AT: u64 = 500;

/// The result of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attempt {
    /// The offer that was ordered.
    pub offer_id: OfferId,
    /// The provider.
    pub provider: ProviderId,
    /// The lease.
    pub lease_id: LeaseId,
    /// The outcome.
    pub outcome: LeaseEvent,
    /// The outcome in words.
    pub note: Option<String>,
    /// When.
    pub at: DateTime<Utc>,
}

impl From<Model> for Attempt {
    fn from(row: Model) -> Self {
        Self {
            offer_id: row.offer_id.0,
            provider: row.provider_id.0,
            lease_id: row.lease_id.0,
            outcome: row.outcome.0,
            note: row.note,
            at: row.at.at(),
        }
    }
}

service_wide!(Attempts, attempts, "orders that were sent to providers");

impl Attempts<'_> {
    /// The results of the orders of a lease, in order.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn of_lease(&self, lease: LeaseId) -> Result<Vec<Attempt>, StoreError> {
        let rows = Entity::find()
            .filter(Column::LeaseId.eq(Text(lease)))
            .order_by_asc(Column::Id)
            .all(&self.store.read)
            .await?;
        Ok(rows.into_iter().map(Attempt::from).collect())
    }

    /// The outcomes of the orders at each provider since then. Each outcome counts once per reservation and
    /// offer, however many leases ended that way. Orders of other people's machines count for nobody's record:
    /// any of these people could spoil that of the marketplace.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn acceptance_since(
        &self,
        since: DateTime<Utc>,
    ) -> Result<BTreeMap<ProviderId, AcceptanceRecord>, StoreError> {
        let apart = self.offers_of_peers(since).await?;
        let handed_over = leases::Column::HandedOffAt.is_not_null();
        let ended: Vec<Ended> = sent_since(since)
            .column(Column::ProviderId)
            .column(Column::OfferId)
            .column(Column::Outcome)
            .column_as(handed_over.clone(), "handed_over")
            .group_by(Column::ProviderId)
            .group_by(Column::OfferId)
            .group_by(leases::Column::ReservationId)
            .group_by(Column::Outcome)
            .group_by(handed_over)
            .into_tuple()
            .all(&self.store.read)
            .await?;
        let mut records: BTreeMap<ProviderId, AcceptanceRecord> = BTreeMap::new();
        let ended = ended
            .into_iter()
            .filter(|(_, offer, ..)| !apart.contains(&offer.0));
        for (provider, _, outcome, handed_over) in ended {
            let record = records.entry(provider.0).or_default();
            record.count(outcome.0, handed_over, 1);
        }
        Ok(records)
    }

    /// The offers of other people's machines that were ordered since then.
    async fn offers_of_peers(&self, since: DateTime<Utc>) -> Result<BTreeSet<OfferId>, StoreError> {
        // As the particulars of an offer are written; the offers themselves need not be read.
        let written = |operator: &str| leases::Column::Offer.contains(operator);
        let of_peers = Condition::any()
            .add(written("\"operator\":\"peer\""))
            .add(written("\"operator\":\"peer:"));
        let ordered: Vec<Text<OfferId>> = sent_since(since)
            .column(Column::OfferId)
            .filter(of_peers)
            .distinct()
            .into_tuple()
            .all(&self.store.read)
            .await?;
        Ok(ordered.into_iter().map(|id| id.0).collect())
    }

    /// How long the last orders of a provider's SKU took from the order to the verdict that their nodes passed,
    /// the latest first, at most `most` of them.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn times_to_pass(
        &self,
        provider: &ProviderId,
        sku: &str,
        most: usize,
    ) -> Result<Vec<TimeDelta>, StoreError> {
        let passed: Vec<(Json<Offer>, Moment, Moment)> = Entity::find()
            .select_only()
            .join(JoinType::InnerJoin, its_lease())
            .column(leases::Column::Offer)
            .column(leases::Column::RequestedAt)
            .column(Column::At)
            .filter(Column::ProviderId.eq(Text(provider.clone())))
            .filter(Column::Outcome.eq(Word(LeaseEvent::Passed)))
            .order_by_desc(Column::Id)
            .limit(ORDERS_LOOKED_AT)
            .into_tuple()
            .all(&self.store.read)
            .await?;
        let of_sku = passed.into_iter().filter(|(offer, ..)| offer.0.sku == sku);
        let times = of_sku.map(|(_, requested, at)| at.at() - requested.at());
        Ok(times.take(most).collect())
    }

    /// For each offer, the reservations whose orders failed since then before their machines were handed
    /// over.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn early_failures_since(
        &self,
        since: DateTime<Utc>,
    ) -> Result<BTreeMap<OfferId, Vec<EarlyFailure>>, StoreError> {
        let is_failure = |event: &LeaseEvent| event.is_fall() && *event != LeaseEvent::Preempted;
        let falls = LeaseEvent::ALL.into_iter().filter(is_failure);
        let failed: Vec<(Text<OfferId>, Text<TenantId>, Moment)> = sent_since(since)
            .column(Column::OfferId)
            .column(leases::Column::TenantId)
            .column_as(Column::At.max(), "at")
            .filter(Column::Outcome.is_in(falls.map(Word)))
            .filter(leases::Column::HandedOffAt.is_null())
            .group_by(Column::OfferId)
            .group_by(leases::Column::ReservationId)
            .group_by(leases::Column::TenantId)
            .into_tuple()
            .all(&self.store.read)
            .await?;
        let mut of_offers: BTreeMap<OfferId, Vec<EarlyFailure>> = BTreeMap::new();
        for (offer, tenant, at) in failed {
            let (tenant_id, at) = (tenant.0, at.at());
            let failure = EarlyFailure { tenant_id, at };
            of_offers.entry(offer.0).or_default().push(failure);
        }
        Ok(of_offers)
    }
}

/// The lease of an order.
fn its_lease() -> RelationDef {
    Entity::belongs_to(leases::Entity)
        .from(Column::LeaseId)
        .to(leases::Column::Id)
        .into()
}

/// The outcomes since then of orders that were sent, with their leases. An order that we never sent is not
/// evidence about a provider.
fn sent_since(since: DateTime<Utc>) -> Select<Entity> {
    Entity::find()
        .select_only()
        .join(JoinType::InnerJoin, its_lease())
        .filter(Column::At.gte(Moment::from(since)))
        .filter(leases::Column::Attempts.gt(0))
}

/// Records the results of orders, within the transaction that draws the conclusion.
pub(crate) async fn record(
    tx: &DatabaseTransaction,
    attempts: &[NewAttempt],
) -> Result<(), StoreError> {
    for attempt in attempts {
        let lease = leases::Entity::find_by_id(Text(attempt.lease_id))
            .one(tx)
            .await?
            .ok_or(StoreError::NotFound { what: "lease" })?;
        let row = ActiveModel {
            id: ActiveValue::NotSet,
            offer_id: ActiveValue::Set(lease.offer_id),
            provider_id: ActiveValue::Set(lease.provider_id),
            lease_id: ActiveValue::Set(lease.id),
            outcome: ActiveValue::Set(Word(attempt.outcome)),
            note: ActiveValue::Set(attempt.note.clone()),
            at: ActiveValue::Set(attempt.at.into()),
        };
        Entity::insert(row).exec_without_returning(tx).await?;
    }
    Ok(())
}
