//! Conversations that were cut off: on our side, when no replica answered for longer than a step may take, or
//! because another agent replaced one that only waited for the other nodes.
//!
//! After an interruption on our side the node starts again and draws another challenge, and so do all others
//! of its lease, which began with it. A host that could cut itself off at will would draw until it finds a
//! convenient challenge. So each restart is recorded, and a node gets only a few.

use chrono::{DateTime, Utc};
use market::ids::VerificationId;
use sea_orm::{
    ColumnTrait, ConnectionTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter,
    QueryOrder, QuerySelect,
};

use super::AllVerifications;
use crate::entity::column::Text;
use crate::entity::{interrupted_sessions, node_sessions};
use crate::{Conflict, StoreError};

/// How often a node may restart within one verification, for either reason: enough for a rolling restart of
/// three replicas.
const MOST: usize = 3;
/// The step after which a node has not yet committed to anything, unless it has its result.
const ENROLLED: i32 = 1;

/// The result of ending a conversation that can no longer be timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interruption {
    /// It has ended, with those of the lease's other nodes: all may start again.
    Ended,
    /// It has moved on, or does not exist.
    HasMoved,
    /// The lease has other nodes, and one of them, or this one, has answered step 2 or has its result. The
    /// conversation stays, because no node restarts alone.
    Stays,
}

/// A conversation that was cut off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutOff {
    /// The node's number within its lease, from 0.
    pub node_index: u32,
    /// The agent's key, which is no longer valid.
    pub agent_key: String,
}

impl AllVerifications<'_> {
    /// The conversations of a verification that were cut off, in the order of their nodes.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn cut_off(&self, id: VerificationId) -> Result<Vec<CutOff>, StoreError> {
        let traces = traces(&self.store.read, id).await?;
        let cut_off = |trace: interrupted_sessions::Model| {
            Ok(CutOff {
                node_index: u32::try_from(trace.node_index).map_err(StoreError::corrupt)?,
                agent_key: trace.agent_key,
            })
        };
        traces.into_iter().map(cut_off).collect()
    }

    /// Whether a conversation with this key was cut off in a verification. It reads one row, because the
    /// caller need not be a node.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn was_cut_off(
        &self,
        id: VerificationId,
        agent_key: &str,
    ) -> Result<bool, StoreError> {
        let key = (Text(id), agent_key.to_owned());
        let trace = interrupted_sessions::Entity::find_by_id(key)
            .one(&self.store.read)
            .await?;
        Ok(trace.is_some())
    }
}

async fn traces(
    db: &impl ConnectionTrait,
    id: VerificationId,
) -> Result<Vec<interrupted_sessions::Model>, StoreError> {
    use interrupted_sessions::Column;
    let traces = interrupted_sessions::Entity::find()
        .filter(Column::VerificationId.eq(Text(id)))
        .order_by_asc(Column::NodeIndex)
        .all(db)
        .await?;
    Ok(traces)
}

/// Ends the agent's conversation if it has no result yet and is still at the given step, with those of the
/// other nodes, and keeps a trace of each.
pub(super) async fn end(
    tx: &DatabaseTransaction,
    id: VerificationId,
    agent_key: &str,
    step: u8,
    now: DateTime<Utc>,
) -> Result<Interruption, StoreError> {
    // Locked, so that none of them advances meanwhile.
    let sessions = node_sessions::Entity::find()
        .filter(node_sessions::Column::VerificationId.eq(Text(id)))
        .order_by_asc(node_sessions::Column::NodeIndex)
        .lock_exclusive()
        .all(tx)
        .await?;
    let is_own = |session: &&node_sessions::Model| {
        let stands = session.step == i32::from(step) && session.verdict.is_none();
        session.agent_key == agent_key && stands
    };
    if !sessions.iter().any(|session| is_own(&session)) {
        return Ok(Interruption::HasMoved);
    }
    let has_gone_on =
        |session: &node_sessions::Model| session.step > ENROLLED || session.verdict.is_some();
    if sessions.len() > 1 && sessions.iter().any(has_gone_on) {
        return Ok(Interruption::Stays);
    }
    for session in sessions {
        cut(tx, session, now).await?;
    }
    Ok(Interruption::Ended)
}

/// Ends a conversation and keeps a trace of it. The caller's lock keeps it from advancing.
pub(super) async fn cut(
    tx: &DatabaseTransaction,
    session: node_sessions::Model,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    node_sessions::Entity::delete_by_id((session.verification_id.clone(), session.node_index))
        .exec(tx)
        .await?;
    let trace = interrupted_sessions::Model {
        verification_id: session.verification_id,
        agent_key: session.agent_key,
        node_index: session.node_index,
        step: session.step,
        started_at: session.started_at,
        interrupted_at: now.into(),
    };
    interrupted_sessions::Entity::insert(trace.into_active_model())
        .exec_without_returning(tx)
        .await?;
    Ok(())
}

/// Refuses a node that was interrupted too often, within the transaction that enrols it.
pub(super) async fn may_begin_anew(
    tx: &DatabaseTransaction,
    id: VerificationId,
    node_index: i32,
) -> Result<(), StoreError> {
    let traces = traces(tx, id).await?;
    let of_node = traces.iter().filter(|trace| trace.node_index == node_index);
    let times = of_node.count();
    if times > MOST {
        return Err(Conflict::InterruptedTooOften { times }.into());
    }
    Ok(())
}
