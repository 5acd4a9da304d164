//! The nodes of a lease, or of all leases of a gang, that are measured together: their progress, for any
//! replica that they call next. It is stored under the verification of the first.
//!
//! The state is the verifier's document. Each step is guarded by the version before, so that two simultaneous
//! answers do not overwrite each other.

use std::time::Duration;

use chrono::{DateTime, Utc};
use market::attestation::Verdict;
use market::ids::VerificationId;
use sea_orm::sea_query::{Expr, ExprTrait as _, OnConflict};
use sea_orm::{ColumnTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter};
use serde_json::Value;

use super::clock::database_time;
use super::{AllVerifications, NewAttestation, VerificationState, attestations};
use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::{gang_checks, verifications};
use crate::tx::transaction;
use crate::{StoreError, reservations};

/// The progress of nodes of a lease that are measured together.
#[derive(Debug, Clone, PartialEq)]
pub struct GangCheck {
    /// Counts the steps.
    pub version: i32,
    /// The number of the present measurement; its time is limited.
    pub stage: u32,
    /// The whole state, in the verifier's own form.
    pub state: Value,
    /// The result, at the end.
    pub verdict: Option<Verdict>,
}

/// The next step of nodes that are measured together.
#[derive(Debug, Clone, PartialEq)]
pub struct GangStep {
    /// The version that it follows.
    pub from: i32,
    /// The number of the present measurement.
    pub stage: u32,
    /// The whole state, in the verifier's own form.
    pub state: Value,
    /// The result, if this is the end.
    pub verdict: Option<Verdict>,
    /// At the end, the signed results of the nodes.
    pub attestations: Vec<GangResult>,
}

/// The signed result of a node that was measured with others.
#[derive(Debug, Clone, PartialEq)]
pub struct GangResult {
    /// The verification of its own order; the gang's is that of the first.
    pub verification_id: VerificationId,
    /// Its number within its lease.
    pub node_index: u32,
    /// The result.
    pub attestation: NewAttestation,
}

impl TryFrom<gang_checks::Model> for GangCheck {
    type Error = StoreError;

    fn try_from(row: gang_checks::Model) -> Result<Self, StoreError> {
        Ok(Self {
            version: row.version,
            stage: u32::try_from(row.stage).map_err(StoreError::corrupt)?,
            state: row.state.0,
            verdict: row.verdict.map(|verdict| verdict.0),
        })
    }
}

impl AllVerifications<'_> {
    /// The progress of nodes of a verification that are measured together.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn gang_check(&self, id: VerificationId) -> Result<Option<GangCheck>, StoreError> {
        let row = gang_checks::Entity::find_by_id(Text(id))
            .one(&self.store.read)
            .await?;
        row.map(GangCheck::try_from).transpose()
    }

    /// Begins to measure the nodes of a verification together, at version 0 and stage 0; returns whether this
    /// call was the first.
    ///
    /// Errors: [`StoreError::Stale`] when the verification is over.
    pub async fn begin_gang_check(
        &self,
        id: VerificationId,
        state: &Value,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        transaction!(self.store, |tx| begin(tx, id, state, now).await)
    }

    /// Saves a step. The last one saves the signed results with it and makes the reservation due at once.
    ///
    /// Errors: [`StoreError::Stale`] when another step was faster, there is a result already, or the
    /// verification is over.
    pub async fn keep_gang_step(
        &self,
        id: VerificationId,
        step: &GangStep,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        transaction!(self.store, |tx| keep(tx, id, step, now).await)
    }

    /// How long the present stage has lasted by the clock of the database, which all replicas share;
    /// `None` where nothing is measured, or where the clock was set back meanwhile.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn gang_stage_lasted(
        &self,
        id: VerificationId,
    ) -> Result<Option<Duration>, StoreError> {
        let row = gang_checks::Entity::find_by_id(Text(id))
            .one(&self.store.read)
            .await?;
        let Some(row) = row else { return Ok(None) };
        let now = database_time(&self.store.read).await?;
        Ok((now.at() - row.stage_began_at.at()).to_std().ok())
    }
}

async fn open_verification(
    tx: &DatabaseTransaction,
    id: VerificationId,
) -> Result<verifications::Model, StoreError> {
    let verification = verifications::Entity::find_by_id(Text(id)).one(tx).await?;
    verification
        .filter(|row| row.state.0 == VerificationState::Open)
        .ok_or(StoreError::Stale)
}

async fn begin(
    tx: &DatabaseTransaction,
    id: VerificationId,
    state: &Value,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    open_verification(tx, id).await?;
    let row = gang_checks::Model {
        verification_id: Text(id),
        version: 0,
        stage: 0,
        stage_began_at: database_time(tx).await?,
        state: Json(state.clone()),
        verdict: None,
        started_at: now.into(),
        ended_at: None,
    };
    let mut unless_begun = OnConflict::column(gang_checks::Column::VerificationId);
    let inserted = gang_checks::Entity::insert(row.into_active_model())
        .on_conflict(unless_begun.do_nothing().to_owned())
        .exec_without_returning(tx)
        .await?;
    Ok(inserted == 1)
}

async fn keep(
    tx: &DatabaseTransaction,
    id: VerificationId,
    step: &GangStep,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    use gang_checks::Column;
    let verification = open_verification(tx, id).await?;
    if step.verdict.is_some() {
        // First, because workers also lock the reservation before its verification.
        reservations::nudge(tx, verification.reservation_id.0, now).await?;
    }
    let stage = i32::try_from(step.stage).map_err(StoreError::corrupt)?;
    let began_at = Expr::case(
        Expr::col(Column::Stage).eq(stage),
        Expr::col(Column::StageBeganAt),
    )
    .finally(Expr::value(database_time(tx).await?));
    let ended_at = step.verdict.map(|_| Moment::from(now));
    let written = gang_checks::Entity::update_many()
        .col_expr(Column::Version, Expr::value(step.from + 1))
        .col_expr(Column::StageBeganAt, began_at.into())
        .col_expr(Column::Stage, Expr::value(stage))
        .col_expr(Column::State, Expr::value(Json(step.state.clone())))
        .col_expr(Column::Verdict, Expr::value(step.verdict.map(Word)))
        .col_expr(Column::EndedAt, Expr::value(ended_at))
        .filter(Column::VerificationId.eq(Text(id)))
        .filter(Column::Version.eq(step.from))
        .filter(Column::Verdict.is_null())
        .exec(tx)
        .await?;
    if written.rows_affected != 1 {
        return Err(StoreError::Stale);
    }
    let mut of_node = verification;
    for result in &step.attestations {
        if of_node.id.0 != result.verification_id {
            of_node = open_verification(tx, result.verification_id).await?;
        }
        let node_index = i32::try_from(result.node_index).map_err(StoreError::corrupt)?;
        attestations::append(tx, &of_node, node_index, &result.attestation, now).await?;
    }
    Ok(())
}
