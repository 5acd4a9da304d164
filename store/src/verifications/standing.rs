//! How far the nodes of several orders are: counts, verdicts and keys, without what they said and without
//! their documents. A look at a gang reads these, and as many statements however many orders it has.
//!
//! Of each order the newest verification counts, which was sent with it; those of nodes in use are none.

use market::attestation::Verdict;
use market::ids::{AttestationId, LeaseId, VerificationId};
use sea_orm::sea_query::{Expr, SelectStatement};
use sea_orm::{ColumnTrait, EntityTrait, QueryFilter, QueryOrder, QuerySelect, QueryTrait};

use super::{AllVerifications, NodeSession};
use crate::StoreError;
use crate::entity::column::{Text, Word};
use crate::entity::{attestations, gang_checks, node_sessions, verifications};

/// What the nodes of orders came to, each alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Alone {
    /// Nodes that passed.
    pub passed: u64,
    /// The worst of the verdicts that are no pass.
    pub fell: Option<Verdict>,
}

/// What a signed result says, without the document.
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
    /// The address that the node said it has.
    pub host: String,
    /// The agent's key.
    pub agent_key: String,
}

impl AllVerifications<'_> {
    /// What the nodes of these orders came to, each alone.
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

    /// What the signed results about the nodes of an order say, in the order of its nodes.
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

    /// What the nodes came to that are measured together under the verification of this order, once they
    /// have been.
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

    /// What the node whose agent has this key came to alone; `None` where it has not come to the end, or
    /// there is none.
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

    /// The verifications of these orders that count, of those that were sent.
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

    /// The sessions of all nodes of these verifications that have enrolled, with all that was said.
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

/// The ids of the verifications that count of these orders.
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
