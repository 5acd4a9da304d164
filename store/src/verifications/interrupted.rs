//! Conversations that were cut off on our side, when no replica answered for longer than a step may
//! take.
//!
//! The node begins anew and draws another challenge. A host that could have itself cut off at will
//! would draw until it finds a challenge that suits it, so that each new beginning is kept and a
//! node gets only a few.

use chrono::{DateTime, Utc};
use market::ids::VerificationId;
use sea_orm::{
    ColumnTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter, QuerySelect,
};

use crate::entity::column::Text;
use crate::entity::{interrupted_sessions, node_sessions};
use crate::{Conflict, StoreError};

/// How often a node may begin anew within one verification: enough for a rolling restart of
/// three replicas.
const MOST: usize = 3;

/// Ends the agent's conversation that has no result yet and still stands where it was looked at, and
/// keeps a trace of it; says whether there was one.
pub(super) async fn end(
    tx: &DatabaseTransaction,
    id: VerificationId,
    agent_key: &str,
    step: u8,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    use node_sessions::Column;
    let session = node_sessions::Entity::find()
        .filter(Column::VerificationId.eq(Text(id)))
        .filter(Column::AgentKey.eq(agent_key))
        .filter(Column::Step.eq(i32::from(step)))
        .filter(Column::Verdict.is_null())
        .lock_exclusive()
        .one(tx)
        .await?;
    let Some(session) = session else {
        return Ok(false);
    };
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
    Ok(true)
}

/// Refuses a node that was interrupted too often since then, within the transaction that enrols it.
pub(super) async fn may_begin_anew(
    tx: &DatabaseTransaction,
    id: VerificationId,
    node_index: i32,
    since: DateTime<Utc>,
) -> Result<(), StoreError> {
    let traces = interrupted_sessions::Entity::find()
        .filter(interrupted_sessions::Column::VerificationId.eq(Text(id)))
        .all(tx)
        .await?;
    let of_node = traces
        .iter()
        .filter(|trace| trace.node_index == node_index && trace.interrupted_at.at() >= since);
    let times = of_node.count();
    if times > MOST {
        return Err(Conflict::InterruptedTooOften { times }.into());
    }
    Ok(())
}
