//! What a node's enrolment and each of its steps write.

use chrono::{DateTime, Utc};
use market::ids::VerificationId;
use sea_orm::sea_query::{Expr, OnConflict};
use sea_orm::{
    ColumnTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter, QuerySelect,
};

use super::{
    Enrolment, NewNodeSession, NodeSession, NodeStep, VerificationState, attestations, clock,
    interrupted,
};
use crate::entity::column::{Json, Moment, Text, Word};
use crate::entity::{agent_keys, node_sessions, verifications};
use crate::{Conflict, StoreError, rechecks, reservations, sightings};

pub(super) async fn enrol(
    tx: &DatabaseTransaction,
    id: VerificationId,
    node: &NewNodeSession,
    now: DateTime<Utc>,
) -> Result<Enrolment, StoreError> {
    // Locked, so that two agents never enrol for one node.
    let verification = verifications::Entity::find_by_id(Text(id))
        .lock_exclusive()
        .one(tx)
        .await?
        .ok_or(StoreError::NotFound {
            what: "verification",
        })?;
    let enrolled = node_sessions::Entity::find()
        .filter(node_sessions::Column::VerificationId.eq(Text(id)))
        .all(tx)
        .await?;
    if let Some(known) = enrolled
        .iter()
        .find(|known| known.agent_key == node.agent_key)
    {
        return Ok(Enrolment {
            node: NodeSession::try_from(known.clone())?,
            fresh: false,
        });
    }
    if verification.state.0 != VerificationState::Open {
        return Err(Conflict::VerificationClosed.into());
    }
    let node_index = i32::try_from(node.node_index).map_err(StoreError::corrupt)?;
    if node_index >= verification.nodes {
        let nodes = u32::try_from(verification.nodes).map_err(StoreError::corrupt)?;
        return Err(Conflict::VerificationFull { nodes }.into());
    }
    let before = enrolled.iter().find(|known| known.node_index == node_index);
    let traces_since = match (verification.recheck_node, before) {
        (None, Some(_)) => {
            return Err(Conflict::Exists {
                what: "a session of this node",
            }
            .into());
        }
        (None, None) => DateTime::<Utc>::MIN_UTC,
        (Some(_), before) => rechecks::begin_anew(tx, before, now).await?,
    };
    interrupted::may_begin_anew(tx, id, node_index, traces_since).await?;
    commit_key(tx, &verification, &node.agent_key, now).await?;
    let row = node_sessions::Model {
        verification_id: Text(id),
        node_index,
        host: node.host.clone(),
        agent_key: node.agent_key.clone(),
        step: i32::from(node.step),
        session: Json(node.session.clone()),
        started_at: now.into(),
        updated_at: now.into(),
        answered_at: Some(clock::database_time(tx).await?),
        verdict: None,
        attestation_id: None,
    };
    node_sessions::Entity::insert(row.clone().into_active_model())
        .exec_without_returning(tx)
        .await?;
    Ok(Enrolment {
        node: NodeSession::try_from(row)?,
        fresh: true,
    })
}

/// Keeps the key that a node commits, where nobody has committed it: two nodes of one key are one to
/// whoever asks for an answer under it, and one may answer for the other.
async fn commit_key(
    tx: &DatabaseTransaction,
    verification: &verifications::Model,
    agent_key: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let row = agent_keys::Model {
        agent_key: agent_key.to_owned(),
        verification_id: verification.id.clone(),
        recheck: verification.recheck_node.is_some(),
        committed_at: now.into(),
    };
    let mut unless_committed = OnConflict::column(agent_keys::Column::AgentKey);
    let inserted = agent_keys::Entity::insert(row.into_active_model())
        .on_conflict(unless_committed.do_nothing().to_owned())
        .exec_without_returning(tx)
        .await?;
    match inserted {
        0 => Err(Conflict::AgentKeyCommitted.into()),
        _ => Ok(()),
    }
}

pub(super) async fn advance(
    tx: &DatabaseTransaction,
    id: VerificationId,
    node_index: u32,
    step: &NodeStep,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    use node_sessions::Column;
    let verification = verifications::Entity::find_by_id(Text(id))
        .one(tx)
        .await?
        .filter(|row| row.state.0 == VerificationState::Open)
        .ok_or(StoreError::Stale)?;
    let node_index = i32::try_from(node_index).map_err(StoreError::corrupt)?;
    if step.attestation.is_some() {
        // First, because workers too lock the reservation before its verification.
        reservations::nudge(tx, verification.reservation_id.0, now).await?;
    }
    let verdict = step.attestation.as_ref().map(|result| Word(result.verdict));
    let attestation_id = step.attestation.as_ref().map(|result| Text(result.id));
    let answered_at = clock::database_time(tx).await?;
    let written = node_sessions::Entity::update_many()
        .col_expr(Column::Step, Expr::value(i32::from(step.to)))
        .col_expr(Column::Session, Expr::value(Json(step.session.clone())))
        .col_expr(Column::UpdatedAt, Expr::value(Moment::from(now)))
        .col_expr(Column::AnsweredAt, Expr::value(Some(answered_at)))
        .col_expr(Column::Verdict, Expr::value(verdict))
        .col_expr(Column::AttestationId, Expr::value(attestation_id))
        .filter(Column::VerificationId.eq(Text(id)))
        .filter(Column::NodeIndex.eq(node_index))
        .filter(Column::AgentKey.eq(&step.agent_key))
        .filter(Column::Step.eq(i32::from(step.from)))
        .filter(Column::Verdict.is_null())
        .exec(tx)
        .await?;
    if written.rows_affected != 1 {
        return Err(StoreError::Stale);
    }
    sightings::keep(tx, &verification.lease_id, node_index, &step.sightings, now).await?;
    let Some(result) = &step.attestation else {
        return Ok(());
    };
    attestations::append(tx, &verification, node_index, result, now).await?;
    match &step.recheck {
        Some(recheck) => {
            rechecks::keep(tx, &verification, (node_index, result), recheck, now).await
        }
        None => Ok(()),
    }
}
