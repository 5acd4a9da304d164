//! Verifications of leases: enrolled nodes, the progress of each, and the signed results.
//!
//! The verifier defines the meaning of the steps; a node's session is a document to the store. Each step is
//! guarded by the step before, so that a step sent twice, or by two nodes with one token, counts once.

mod attestations;
mod clock;
mod gangs;
mod interrupted;
mod refused;
mod standing;
mod steps;

use chrono::{DateTime, Utc};
use market::attestation::Verdict;
use market::ids::{AttestationId, LeaseId, ReservationId, TenantId, VerificationId};
use sea_orm::sea_query::Expr;
use sea_orm::{
    ColumnTrait, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter, QueryOrder,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::StoreError;
use crate::entity::column::{Moment, Text, Word};
use crate::entity::{node_sessions, verifications};
use crate::rechecks::NewRecheck;
use crate::scope::tenant_scoped;
use crate::sealed::{SealedColumn, SealedFor};
use crate::sightings::NewSighting;
use crate::tx::transaction;

pub use attestations::{KeptAttestation, NewAttestation};
pub use gangs::{GangCheck, GangResult, GangStep};
pub use interrupted::{CutOff, Interruption};
pub use refused::RefusedMessage;
pub use standing::{Alone, EnrolledAgent, Outcome};

/// The credential that opens the nodes of a verification. Sealed for the id of the verification.
pub(crate) const SEALED: SealedColumn = SealedColumn {
    table: "verifications",
    key: "id",
    column: "sealed_push",
    purpose: SealedFor::WordIn("id"),
};

/// The state of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerificationState {
    /// Its nodes may enrol and send steps.
    Open,
    /// Every node passed.
    Passed,
    /// A node failed, or did not finish in time.
    Failed,
    /// It is no longer needed.
    Abandoned,
}

/// A verification of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// Its id.
    pub id: VerificationId,
    /// The lease.
    pub lease_id: LeaseId,
    /// The reservation that the lease serves.
    pub reservation_id: ReservationId,
    /// The tenant that the lease serves.
    pub tenant_id: TenantId,
    /// The hash of the token by which nodes enrol.
    pub enrol_hash: String,
    /// How many nodes must pass.
    pub nodes: u32,
    /// Its state.
    pub state: VerificationState,
    /// When it was opened.
    pub created_at: DateTime<Utc>,
    /// Until when every node must have finished.
    pub deadline: DateTime<Utc>,
    /// When it ended.
    pub closed_at: Option<DateTime<Utc>>,
    /// The credential that opens its nodes to the agent that is pushed onto them, sealed; gone when it has
    /// ended.
    pub sealed_push: Option<Vec<u8>>,
    /// The node of the lease, from 0, that is in use and re-checked; `None` for a verification before a
    /// hand-off.
    pub recheck_node: Option<u32>,
}

/// A verification to open, for a lease of the reservation at hand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVerification {
    /// Its id.
    pub id: VerificationId,
    /// The lease.
    pub lease_id: LeaseId,
    /// The hash of the token by which nodes enrol, at most 64 characters.
    pub enrol_hash: String,
    /// How many nodes must pass.
    pub nodes: u32,
    /// Until when every node must have finished.
    pub deadline: DateTime<Utc>,
    /// The credential that opens its nodes to the agent that is pushed onto them, sealed.
    pub sealed_push: Option<Vec<u8>>,
}

/// One node's part in a verification.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeSession {
    /// The verification.
    pub verification_id: VerificationId,
    /// The node's number within its lease, from 0.
    pub node_index: u32,
    /// The node's own address, as it reported it.
    pub host: String,
    /// The agent's key, which identifies the node.
    pub agent_key: String,
    /// The last step that was done.
    pub step: u8,
    /// The conversation so far, in the verifier's own form.
    pub session: Value,
    /// When the node enrolled.
    pub started_at: DateTime<Utc>,
    /// Whether it may receive its order: of several nodes none may before all have enrolled.
    pub has_begun: bool,
    /// When its last step was done.
    pub updated_at: DateTime<Utc>,
    /// The message of its next step that was refused because too many arrived at once.
    pub refused: Option<RefusedMessage>,
    /// The result, at the end.
    pub verdict: Option<Verdict>,
    /// The signed result, at the end.
    pub attestation_id: Option<AttestationId>,
}

/// A node that enrols.
#[derive(Debug, Clone, PartialEq)]
pub struct NewNodeSession {
    /// The node's number within its lease, from 0: that of the address that it reported.
    pub node_index: u32,
    /// The node's own address, as it reported it.
    pub host: String,
    /// The agent's key, which identifies the node.
    pub agent_key: String,
    /// The number of the enrolment step.
    pub step: u8,
    /// The conversation so far, in the verifier's own form.
    pub session: Value,
}

/// The result of an enrolment.
#[derive(Debug, Clone, PartialEq)]
pub struct Enrolment {
    /// The node's session.
    pub node: NodeSession,
    /// Whether the session is new. An agent that enrols again, after a lost answer, gets its present session.
    pub fresh: bool,
    /// The keys of the nodes that begin because of this: all of the verification when it was the last one
    /// missing, else none.
    pub begun: Vec<String>,
}

/// A node's next step.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeStep {
    /// The agent that takes it: another one may have replaced it by now.
    pub agent_key: String,
    /// The last completed step before.
    pub from: u8,
    /// The step completed now.
    pub to: u8,
    /// The conversation so far, in the verifier's own form.
    pub session: Value,
    /// The signed result, if this ends the node's part.
    pub attestation: Option<NewAttestation>,
    /// The GPUs that the node shows by now, if the step reports new ones.
    pub sightings: Vec<NewSighting>,
    /// The stored part of the result, if the node is in use.
    pub recheck: Option<NewRecheck>,
}

impl Verification {
    /// Whether it has several nodes, none of which receives its order before all have enrolled. A node in use
    /// is re-checked by itself.
    #[must_use]
    pub const fn begins_together(&self) -> bool {
        self.nodes > 1 && self.recheck_node.is_none()
    }
}

impl TryFrom<verifications::Model> for Verification {
    type Error = StoreError;

    fn try_from(row: verifications::Model) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.0,
            lease_id: row.lease_id.0,
            reservation_id: row.reservation_id.0,
            tenant_id: row.tenant_id.0,
            enrol_hash: row.enrol_hash,
            nodes: u32::try_from(row.nodes).map_err(StoreError::corrupt)?,
            state: row.state.0,
            created_at: row.created_at.at(),
            deadline: row.deadline.at(),
            closed_at: row.closed_at.map(Moment::at),
            sealed_push: row.sealed_push,
            recheck_node: (row.recheck_node)
                .map(|node| u32::try_from(node).map_err(StoreError::corrupt))
                .transpose()?,
        })
    }
}

impl TryFrom<node_sessions::Model> for NodeSession {
    type Error = StoreError;

    fn try_from(row: node_sessions::Model) -> Result<Self, StoreError> {
        let refused = RefusedMessage::of(&row);
        Ok(Self {
            verification_id: row.verification_id.0,
            node_index: u32::try_from(row.node_index).map_err(StoreError::corrupt)?,
            host: row.host,
            agent_key: row.agent_key,
            step: u8::try_from(row.step).map_err(StoreError::corrupt)?,
            session: row.session.0,
            started_at: row.started_at.at(),
            has_begun: row.answered_at.is_some(),
            updated_at: row.updated_at.at(),
            refused,
            verdict: row.verdict.map(|verdict| verdict.0),
            attestation_id: row.attestation_id.map(|id| id.0),
        })
    }
}

tenant_scoped!(
    Verifications,
    verifications,
    TenantVerifications,
    AllVerifications,
    "verifications"
);

impl AllVerifications<'_> {
    /// The verification with this id.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn find(&self, id: VerificationId) -> Result<Option<Verification>, StoreError> {
        let row = verifications::Entity::find_by_id(Text(id))
            .one(&self.store.read)
            .await?;
        row.map(Verification::try_from).transpose()
    }

    /// The verifications of a lease, in the order of their opening.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn of_lease(&self, lease: LeaseId) -> Result<Vec<Verification>, StoreError> {
        let rows = verifications::Entity::find()
            .filter(verifications::Column::LeaseId.eq(Text(lease)))
            .order_by_asc(verifications::Column::Id)
            .all(&self.store.read)
            .await?;
        rows.into_iter().map(Verification::try_from).collect()
    }

    /// The newest verification of a lease, the only one that counts: the order was sent with its token.
    /// Re-checks of nodes in use are not included.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn newest_of(&self, lease: LeaseId) -> Result<Option<Verification>, StoreError> {
        let row = verifications::Entity::find()
            .filter(verifications::Column::LeaseId.eq(Text(lease)))
            .filter(verifications::Column::RecheckNode.is_null())
            .order_by_desc(verifications::Column::Id)
            .one(&self.store.read)
            .await?;
        row.map(Verification::try_from).transpose()
    }

    /// The sessions of the nodes that have enrolled, in the order of enrolment.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn nodes(&self, id: VerificationId) -> Result<Vec<NodeSession>, StoreError> {
        let rows = node_sessions::Entity::find()
            .filter(node_sessions::Column::VerificationId.eq(Text(id)))
            .order_by_asc(node_sessions::Column::NodeIndex)
            .all(&self.store.read)
            .await?;
        rows.into_iter().map(NodeSession::try_from).collect()
    }

    /// The session of the node whose agent has this key, within a verification.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn node_by_key(
        &self,
        id: VerificationId,
        agent_key: &str,
    ) -> Result<Option<NodeSession>, StoreError> {
        let row = node_sessions::Entity::find()
            .filter(node_sessions::Column::VerificationId.eq(Text(id)))
            .filter(node_sessions::Column::AgentKey.eq(agent_key))
            .one(&self.store.read)
            .await?;
        row.map(NodeSession::try_from).transpose()
    }

    /// Enrols a node under its number. It replaces an agent of the node that only waits for the others; that
    /// one's conversation is cut off. Several nodes all begin when the last one enrols: from then on
    /// [`Self::since_answer`] counts, for each of them.
    ///
    /// Errors: [`StoreError::NotFound`];
    /// [`Conflict::VerificationClosed`](crate::Conflict::VerificationClosed);
    /// [`Conflict::Exists`](crate::Conflict::Exists) when another agent has enrolled for this node and has
    /// begun; [`Conflict::AgentKeyCommitted`](crate::Conflict::AgentKeyCommitted) when a node has committed
    /// the agent's key before, here or elsewhere;
    /// [`Conflict::RecheckedLately`](crate::Conflict::RecheckedLately) for a node in use;
    /// [`Conflict::VerificationFull`](crate::Conflict::VerificationFull) for a number beyond the nodes that
    /// were leased; [`Conflict::InterruptedTooOften`](crate::Conflict::InterruptedTooOften), in which case
    /// the waiting agent stays.
    pub async fn enrol(
        &self,
        id: VerificationId,
        node: &NewNodeSession,
        now: DateTime<Utc>,
    ) -> Result<Enrolment, StoreError> {
        transaction!(self.store, |tx| steps::enrol(tx, id, node, now).await)
    }

    /// Ends a node's conversation that has no result yet, because it can no longer be timed, so that the node
    /// may enrol again. Those of the lease's other nodes end with it, because they begin together, unless one
    /// of them has answered step 2 or has its result. A trace of each stays, and counts.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn interrupt(
        &self,
        id: VerificationId,
        agent_key: &str,
        step: u8,
        now: DateTime<Utc>,
    ) -> Result<Interruption, StoreError> {
        transaction!(self.store, |tx| interrupted::end(
            tx, id, agent_key, step, now
        )
        .await)
    }

    /// Saves a node's step. The last one saves the signed result with it and makes the reservation due at
    /// once.
    ///
    /// Errors: [`StoreError::Stale`] when this agent is not at `step.from`, has its result already, or the
    /// verification is over; [`Conflict::VerificationClosed`](crate::Conflict::VerificationClosed) when a
    /// node is no longer in use.
    pub async fn advance(
        &self,
        id: VerificationId,
        node_index: u32,
        step: &NodeStep,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        transaction!(self.store, |tx| steps::advance(
            tx, id, node_index, step, now
        )
        .await)
    }
}

/// Opens verifications of a reservation's leases, within the transaction that saves the leases.
pub(crate) async fn open(
    tx: &DatabaseTransaction,
    reservation: &crate::entity::reservations::Model,
    new: &[NewVerification],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    for verification in new {
        let row = verifications::Model {
            id: Text(verification.id),
            lease_id: Text(verification.lease_id),
            reservation_id: reservation.id.clone(),
            tenant_id: reservation.tenant_id.clone(),
            enrol_hash: verification.enrol_hash.clone(),
            nodes: i32::try_from(verification.nodes).map_err(StoreError::corrupt)?,
            state: Word(VerificationState::Open),
            created_at: now.into(),
            deadline: verification.deadline.into(),
            closed_at: None,
            sealed_push: verification.sealed_push.clone(),
            recheck_node: None,
        };
        verifications::Entity::insert(row.into_active_model())
            .exec_without_returning(tx)
            .await?;
    }
    Ok(())
}

/// Ends verifications, within the transaction that draws the conclusion, and deletes the credentials of their
/// nodes; those that have already ended stay as they are.
pub(crate) async fn close(
    tx: &DatabaseTransaction,
    closed: &[(VerificationId, VerificationState)],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    for (id, state) in closed {
        verifications::Entity::update_many()
            .col_expr(verifications::Column::State, Expr::value(Word(*state)))
            .col_expr(
                verifications::Column::ClosedAt,
                Expr::value(Moment::from(now)),
            )
            .col_expr(
                verifications::Column::SealedPush,
                Expr::value(None::<Vec<u8>>),
            )
            .filter(verifications::Column::Id.eq(Text(*id)))
            .filter(verifications::Column::State.eq(Word(VerificationState::Open)))
            .exec(tx)
            .await?;
    }
    Ok(())
}
