//! The progress of the nodes of several orders: counts, verdicts and keys, without their sessions and
//! documents. A review of a gang reads these, with the same number of statements for any number of orders.
//!
//! Of each order the newest verification counts, which was sent with it; re-checks of nodes in use do not.

use market::attestation::Verdict;
use market::ids::{AttestationId, LeaseId, VerificationId};
use sea_orm::sea_query::{Expr, SelectStatement};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect, QueryTrait};

use super::{AllVerifications, NodeSession};
use crate::StoreError;
use crate::entity::column::{Text, Word};
use crate::entity::{attestations, gang_checks, node_sessions, verifications};

/// The results of the nodes of some orders, each node alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alone {
    /// Nodes that passed.
    pub passed: u64,
    /// The worst of the verdicts that are no pass.
    pub fell: Option<Verdict>,
}

/// A signed result, without the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The result.
    pub attestation_id: AttestationId,
    /// The node's number within its lease, from 0.
    pub node_index: u32,
    /// The verdict.
    pub verdict: Verdict,
}

/// A node that has enrolled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolledAgent {
    /// The verification.
    pub verification_id: VerificationId,
    /// The node's number within its lease, from 0.
    pub node_index: u32,
    /// The node's own address, as it reported it.
    pub host: String,
    /// The agent's key.
    pub agent_key: String,
}

impl AllVerifications<'_> {
    /// The results of the nodes of these orders, each node alone.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn alone(&self, leases: &[LeaseId]) -> Result<Alone, StoreError> {
        use node_sessions::{Column, Entity};
        let counts: Vec<(Word<Verdict>, i64)> = Entity::find()
            .select_only()
            .column(Column::Verdict)
            .expr(Expr::cust("COUNT(*)"))
            .filter(Column::VerificationId.in_subquery(newest(leases)))
            .filter(Column::Verdict.is_not_null())
            .group_by(Column::Verdict)
            .into_tuple()
            .all(&self.store.read)
            .await?;
        let mut alone = Alone::default();
        for (Word(verdict), nodes) in counts {
            if verdict.is_pass() {
                alone.passed += u64::try_from(nodes).map_err(StoreError::corrupt)?;
            } else if alone.fell != Some(Verdict::Fail) {
                alone.fell = Some(verdict);
            }
        }
        Ok(alone)
    }

    /// Whether a signed result about a node of these orders is no pass.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn any_failed(&self, leases: &[LeaseId]) -> Result<bool, StoreError> {
        use attestations::{Column, Entity};
        let no_pass = [Verdict::Fail, Verdict::Inconclusive].map(Word);
        let failed: Option<Text<AttestationId>> = Entity::find()
            .select_only()
            .column(Column::Id)
            .filter(Column::LeaseId.is_in(leases.iter().copied().map(Text)))
            .filter(Column::VerificationId.in_subquery(newest(leases)))
            .filter(Column::Verdict.is_in(no_pass))
            .limit(1)
            .into_tuple()
            .one(&self.store.read)
            .await?;
        Ok(failed.is_some())
    }

    /// The signed results about the nodes of an order, without documents, in the order of its nodes.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn outcomes_of(&self, lease: LeaseId) -> Result<Vec<Outcome>, StoreError> {
        use attestations::{Column, Entity};
        let rows: Vec<(Text<AttestationId>, i32, Word<Verdict>)> = Entity::find()
            .select_only()
            .columns([Column::Id, Column::NodeIndex, Column::Verdict])
            .filter(Column::LeaseId.eq(Text(lease)))
            .filter(Column::VerificationId.in_subquery(newest(&[lease])))
            .order_by_asc(Column::NodeIndex)
            .order_by_asc(Column::Id)
            .into_tuple()
            .all(&self.store.read)
            .await?;
        let outcome = |(Text(attestation_id), node, Word(verdict))| {
            Ok(Outcome {
                attestation_id,
                node_index: u32::try_from(node).map_err(StoreError::corrupt)?,
                verdict,
            })
        };
        rows.into_iter().map(outcome).collect()
    }

    /// The result of the nodes that are measured together under the verification of this order, once there is
    /// one.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn gang_verdict(&self, first: LeaseId) -> Result<Option<Verdict>, StoreError> {
        use gang_checks::{Column, Entity};
        let verdict: Option<Word<Verdict>> = Entity::find()
            .select_only()
            .column(Column::Verdict)
            .filter(Column::VerificationId.in_subquery(newest(&[first])))
            .filter(Column::Verdict.is_not_null())
            .into_tuple()
            .one(&self.store.read)
            .await?;
        Ok(verdict.map(|Word(verdict)| verdict))
    }

    /// The result of the node whose agent has this key, measured alone; `None` where it has none yet, or
    /// there is no such node.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn verdict_of_agent(
        &self,
        id: VerificationId,
        agent_key: &str,
    ) -> Result<Option<Verdict>, StoreError> {
        use node_sessions::{Column, Entity};
        let verdict: Option<Word<Verdict>> = Entity::find()
            .select_only()
            .column(Column::Verdict)
            .filter(Column::VerificationId.eq(Text(id)))
            .filter(Column::AgentKey.eq(agent_key))
            .filter(Column::Verdict.is_not_null())
            .into_tuple()
            .one(&self.store.read)
            .await?;
        Ok(verdict.map(|Word(verdict)| verdict))
    }

    /// The verifications that count for these orders, for those that have one.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn newest_of_each(
        &self,
        leases: &[LeaseId],
    ) -> Result<Vec<(LeaseId, VerificationId)>, StoreError> {
        use verifications::{Column, Entity};
        let rows: Vec<(Text<LeaseId>, Text<VerificationId>)> = Entity::find()
            .select_only()
            .columns([Column::LeaseId, Column::Id])
            .filter(Column::Id.in_subquery(newest(leases)))
            .into_tuple()
            .all(&self.store.read)
            .await?;
        let ids = rows.into_iter().map(|(lease, id)| (lease.0, id.0));
        Ok(ids.collect())
    }

    /// The nodes of these verifications that have enrolled.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn agents_of(
        &self,
        ids: &[VerificationId],
    ) -> Result<Vec<EnrolledAgent>, StoreError> {
        use node_sessions::{Column, Entity};
        let rows: Vec<(Text<VerificationId>, i32, String, String)> = Entity::find()
            .select_only()
            .columns([
                Column::VerificationId,
                Column::NodeIndex,
                Column::Host,
                Column::AgentKey,
            ])
            .filter(Column::VerificationId.is_in(ids.iter().copied().map(Text)))
            .into_tuple()
            .all(&self.store.read)
            .await?;
        let agent = |(Text(verification_id), node, host, agent_key)| {
            Ok(EnrolledAgent {
                verification_id,
                node_index: u32::try_from(node).map_err(StoreError::corrupt)?,
                host,
                agent_key,
            })
        };
        rows.into_iter().map(agent).collect()
    }

    /// The sessions of all enrolled nodes of these verifications, with their messages.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn nodes_of(&self, ids: &[VerificationId]) -> Result<Vec<NodeSession>, StoreError> {
        use node_sessions::{Column, Entity};
        let rows = Entity::find()
            .filter(Column::VerificationId.is_in(ids.iter().copied().map(Text)))
            .order_by_asc(Column::NodeIndex)
            .all(&self.store.read)
            .await?;
        rows.into_iter().map(NodeSession::try_from).collect()
    }
}

/// The ids of the verifications that count for these orders.
fn newest(leases: &[LeaseId]) -> SelectStatement {
    use verifications::{Column, Entity};
    // Ids grow in the order in which verifications are opened.
    Entity::find()
        .select_only()
        .expr(Column::Id.max())
        .filter(Column::LeaseId.is_in(leases.iter().copied().map(Text)))
        .filter(Column::RecheckNode.is_null())
        .group_by(Column::LeaseId)
        .into_query()
}
