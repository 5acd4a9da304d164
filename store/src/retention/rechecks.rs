//! Re-checks of nodes in use that passed: they had no consequence. Of each deleted one a short row stays,
//! with its time and verdict.

use chrono::{DateTime, Utc};
use market::attestation::Verdict;
use market::ids::{AttestationId, VerificationId};
use sea_orm::sea_query::{Alias, Expr, ExprTrait, Query, SimpleExpr};
use sea_orm::{
    ColumnTrait, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder, QuerySelect, QueryTrait,
};

use super::Retention;
use crate::StoreError;
use crate::entity::column::{Moment, Text, Word};
use crate::entity::{
    agent_keys, attestations, interrupted_sessions, let_go_rechecks, node_rechecks, node_sessions,
    verifications,
};
use crate::tx::transaction;

impl Retention<'_> {
    /// Deletes up to `limit` re-checks of nodes in use that passed before `before`, each with its signed
    /// document; returns how many. The last one of each node stays, and so does every one that did not pass.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn prune_rechecks(
        &self,
        (before, now): (DateTime<Utc>, DateTime<Utc>),
        limit: u64,
    ) -> Result<u64, StoreError> {
        use node_rechecks::{Column, Entity};
        let passed = [Verdict::Pass, Verdict::PassWithWarnings].map(Word);
        let old = Entity::find()
            .filter(Column::CheckedAt.lt(Moment::from(before)))
            .filter(Column::Verdict.is_in(passed))
            .filter(was_followed())
            .order_by_asc(Column::CheckedAt)
            .limit(limit)
            .lock_exclusive();
        transaction!(self.store, |tx| {
            let rows = old.clone().all(tx).await?;
            if rows.is_empty() {
                return Ok(0);
            }
            let ids: Vec<Text<AttestationId>> =
                rows.iter().map(|row| row.attestation_id.clone()).collect();
            let stays = rows.into_iter().map(|row| {
                let_go_rechecks::Model {
                    attestation_id: row.attestation_id,
                    tenant_id: row.tenant_id,
                    lease_id: row.lease_id,
                    node_index: row.node_index,
                    verdict: row.verdict,
                    checked_at: row.checked_at,
                    let_go_at: now.into(),
                }
                .into_active_model()
            });
            // The database refuses to delete anything else.
            let_go_rechecks::Entity::insert_many(stays)
                .exec_without_returning(tx)
                .await?;
            Entity::delete_many()
                .filter(Column::AttestationId.is_in(ids.clone()))
                .exec(tx)
                .await?;
            let gone =
                attestations::Entity::delete_many().filter(attestations::Column::Id.is_in(ids));
            Ok(gone.exec(tx).await?.rows_affected)
        })
    }

    /// Deletes up to `limit` keys that nodes in use committed before `before`; returns how many.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn prune_agent_keys(
        &self,
        before: DateTime<Utc>,
        limit: u64,
    ) -> Result<u64, StoreError> {
        use agent_keys::{Column, Entity};
        let old = Entity::find()
            .select_only()
            .column(Column::AgentKey)
            .filter(Column::Recheck.eq(true))
            .filter(Column::CommittedAt.lt(Moment::from(before)))
            .order_by_asc(Column::CommittedAt)
            .limit(limit)
            .into_query();
        let gone = Entity::delete_many()
            .filter(Column::AgentKey.in_subquery(old))
            .exec(&self.store.write)
            .await?;
        Ok(gone.rows_affected)
    }

    /// Deletes up to `limit` verifications of nodes in use that were over before `before` and of which no
    /// document, no key and no interruption is stored, with their nodes' sessions; returns how many.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn prune_recheck_verifications(
        &self,
        before: DateTime<Utc>,
        limit: u64,
    ) -> Result<u64, StoreError> {
        use verifications::{Column, Entity};
        let over = Entity::find()
            .select_only()
            .column(Column::Id)
            .filter(Column::RecheckNode.is_not_null())
            .filter(Column::ClosedAt.lt(Moment::from(before)))
            .filter(has_document().not())
            .filter(has_key().not())
            .filter(was_interrupted().not())
            .order_by_asc(Column::ClosedAt)
            .limit(limit)
            .lock_exclusive();
        transaction!(self.store, |tx| {
            let ids: Vec<Text<VerificationId>> = over.clone().into_tuple().all(tx).await?;
            if ids.is_empty() {
                return Ok(0);
            }
            node_sessions::Entity::delete_many()
                .filter(node_sessions::Column::VerificationId.is_in(ids.clone()))
                .exec(tx)
                .await?;
            let gone = Entity::delete_many().filter(Column::Id.is_in(ids));
            Ok(gone.exec(tx).await?.rows_affected)
        })
    }
}

/// Whether a later re-check of the same node is stored. Ids of results grow in the order of their creation.
fn was_followed() -> SimpleExpr {
    use node_rechecks::{Column, Entity};
    let later = Alias::new("later");
    let of_later = |column| Expr::col((later.clone(), column));
    let looks = Query::select()
        .expr(Expr::val(1))
        .from_as(Entity, later.clone())
        .and_where(of_later(Column::LeaseId).equals((Entity, Column::LeaseId)))
        .and_where(of_later(Column::NodeIndex).equals((Entity, Column::NodeIndex)))
        .and_where(of_later(Column::AttestationId).gt(Expr::col((Entity, Column::AttestationId))))
        .to_owned();
    Expr::exists(looks)
}

/// Whether a document of a verification is stored.
fn has_document() -> SimpleExpr {
    use attestations::{Column, Entity};
    let id = (verifications::Entity, verifications::Column::Id);
    let lease = (verifications::Entity, verifications::Column::LeaseId);
    let documents = Entity::find()
        .select_only()
        .column(Column::Id)
        .filter(Expr::col((Entity, Column::LeaseId)).equals(lease))
        .filter(Expr::col((Entity, Column::VerificationId)).equals(id))
        .into_query();
    Expr::exists(documents)
}

/// Whether a key that was committed in a verification is stored.
fn has_key() -> SimpleExpr {
    use agent_keys::{Column, Entity};
    let id = (verifications::Entity, verifications::Column::Id);
    let keys = Entity::find()
        .select_only()
        .column(Column::AgentKey)
        .filter(Expr::col((Entity, Column::VerificationId)).equals(id))
        .into_query();
    Expr::exists(keys)
}

/// Whether a conversation of a verification was interrupted; the trace of that stays.
fn was_interrupted() -> SimpleExpr {
    use interrupted_sessions::{Column, Entity};
    let id = (verifications::Entity, verifications::Column::Id);
    let traces = Entity::find()
        .select_only()
        .column(Column::AgentKey)
        .filter(Expr::col((Entity, Column::VerificationId)).equals(id))
        .into_query();
    Expr::exists(traces)
}
