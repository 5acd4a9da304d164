//! The writes of a node's enrolment and of each of its steps.

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
    // So that two agents never enrol for one node, and the last two never mistake each other for missing.
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
            begun: Vec::new(),
        });
    }
    let node_index = i32::try_from(node.node_index).map_err(StoreError::corrupt)?;
    may_enrol(tx, &verification, (&enrolled, node_index), now).await?;
    commit_key(tx, &verification, &node.agent_key, now).await?;
    let awaited = match verification.recheck_node {
        Some(_) => 1,
        None => verification.nodes,
    };
    // This node has only the session of the replaced agent, or of an earlier re-check.
    let is_sibling = |one: &node_sessions::Model| one.node_index != node_index;
    let siblings: Vec<_> = enrolled.into_iter().filter(is_sibling).collect();
    let begun_at = match usize::try_from(awaited) == Ok(siblings.len() + 1) {
        true => Some(clock::database_time(tx).await?),
        false => None,
    };
    let row = node_sessions::Model {
        verification_id: Text(id),
        node_index,
        host: node.host.clone(),
        agent_key: node.agent_key.clone(),
        step: i32::from(node.step),
        session: Json(node.session.clone()),
        started_at: now.into(),
        updated_at: now.into(),
        answered_at: begun_at,
        refused_digest: None,
        refused_first_at: None,
        refused_last_at: None,
        verdict: None,
        attestation_id: None,
    };
    node_sessions::Entity::insert(row.clone().into_active_model())
        .exec_without_returning(tx)
        .await?;
    let mut begun = Vec::new();
    if let Some(begun_at) = begun_at {
        begun = let_begin(tx, id, (&siblings, begun_at)).await?;
        begun.push(node.agent_key.clone());
    }
    Ok(Enrolment {
        node: NodeSession::try_from(row)?,
        fresh: true,
        begun,
    })
}

/// Refuses a node that has no place among the enrolled ones.
async fn may_enrol(
    tx: &DatabaseTransaction,
    verification: &verifications::Model,
    (enrolled, node_index): (&[node_sessions::Model], i32),
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    if verification.state.0 != VerificationState::Open {
        return Err(Conflict::VerificationClosed.into());
    }
    if node_index >= verification.nodes {
        let nodes = u32::try_from(verification.nodes).map_err(StoreError::corrupt)?;
        return Err(Conflict::VerificationFull { nodes }.into());
    }
    let before = enrolled.iter().find(|known| known.node_index == node_index);
    if verification.recheck_node.is_some() {
        return rechecks::begin_anew(tx, verification, before, now).await;
    }
    if let Some(waiting) = before {
        take_place_of(tx, waiting, now).await?;
    }
    interrupted::may_begin_anew(tx, verification.id.0, node_index).await
}

/// Ends the conversation of a node that only waits for the others: its agent died, and another one was
/// started. The new agent's enrolment holds the lock of the verification, so that the old one cannot begin
/// meanwhile.
///
/// It was shown nothing, and the others wait on as before, so a node gains nothing by this. Neither does a
/// node that enrols for its neighbour, as any holder of the lease's token could before that one arrives. The
/// limit ([`interrupted::may_begin_anew`]) is for two agents that run on one node by mistake: each would
/// replace the other again and leave another key for good.
async fn take_place_of(
    tx: &DatabaseTransaction,
    waiting: &node_sessions::Model,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    if waiting.answered_at.is_some() {
        return Err(Conflict::Exists {
            what: "a session of this node",
        }
        .into());
    }
    interrupted::cut(tx, waiting.clone(), now).await
}

/// Lets those of these nodes begin that have waited for the last one. Returns their keys.
async fn let_begin(
    tx: &DatabaseTransaction,
    id: VerificationId,
    (nodes, begun_at): (&[node_sessions::Model], Moment),
) -> Result<Vec<String>, StoreError> {
    use node_sessions::Column;
    let waiting = nodes.iter().filter(|one| one.answered_at.is_none());
    let keys: Vec<String> = waiting.map(|one| one.agent_key.clone()).collect();
    if !keys.is_empty() {
        node_sessions::Entity::update_many()
            .col_expr(Column::AnsweredAt, Expr::value(Some(begun_at)))
            .filter(Column::VerificationId.eq(Text(id)))
            .filter(Column::AgentKey.is_in(&keys))
            .exec(tx)
            .await?;
    }
    Ok(keys)
}

/// Stores a node's committed key, if nobody has committed it. A caller cannot distinguish two nodes with one
/// key, and one could answer for the other.
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
        // First, because workers also lock the reservation before its verification.
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
        .col_expr(Column::RefusedDigest, Expr::value(None::<String>))
        .col_expr(Column::RefusedFirstAt, Expr::value(None::<Moment>))
        .col_expr(Column::RefusedLastAt, Expr::value(None::<Moment>))
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
