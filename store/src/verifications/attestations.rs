//! The signed results of verifications: appended, never changed.

use chrono::{DateTime, Utc};
use market::attestation::Verdict;
use market::ids::{AttestationId, LeaseId, TenantId, VerificationId};
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter,
    QueryOrder, QuerySelect, QueryTrait,
};

use super::{AllVerifications, TenantVerifications};
use crate::StoreError;
use crate::entity::column::{Text, Word};
use crate::entity::{attestations, verifications};

/// A signed result to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAttestation {
    /// Its id.
    pub id: AttestationId,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether anything about it was simulated.
    pub simulated: bool,
    /// The countersigned document, a compact JWS.
    pub jws: String,
}

/// A stored signed result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAttestation {
    /// Its id.
    pub id: AttestationId,
    /// The verification.
    pub verification_id: VerificationId,
    /// The tenant that the lease served.
    pub tenant_id: TenantId,
    /// The lease.
    pub lease_id: LeaseId,
    /// The node's number within its lease.
    pub node_index: u32,
    /// The verdict.
    pub verdict: Verdict,
    /// Whether anything about it was simulated.
    pub simulated: bool,
    /// The countersigned document, a compact JWS.
    pub jws: String,
    /// When it was signed.
    pub created_at: DateTime<Utc>,
}

impl TryFrom<attestations::Model> for KeptAttestation {
    type Error = StoreError;

    fn try_from(row: attestations::Model) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.id.0,
            verification_id: row.verification_id.0,
            tenant_id: row.tenant_id.0,
            lease_id: row.lease_id.0,
            node_index: u32::try_from(row.node_index).map_err(StoreError::corrupt)?,
            verdict: row.verdict.0,
            simulated: row.simulated,
            jws: row.jws,
            created_at: row.created_at.at(),
        })
    }
}

impl TenantVerifications<'_> {
    /// A signed result about a machine that served the tenant.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn attestation(
        &self,
        id: AttestationId,
    ) -> Result<Option<KeptAttestation>, StoreError> {
        let row = attestations::Entity::find_by_id(Text(id))
            .filter(attestations::Column::TenantId.eq(Text(self.tenant)))
            .one(&self.store.read)
            .await?;
        row.map(KeptAttestation::try_from).transpose()
    }

    /// The signed results about a lease that serves the tenant, in the order of its nodes; without those of
    /// re-checks.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn attestations_of(
        &self,
        lease: LeaseId,
    ) -> Result<Vec<KeptAttestation>, StoreError> {
        let wanted = Condition::all()
            .add(attestations::Column::TenantId.eq(Text(self.tenant)))
            .add(attestations::Column::LeaseId.eq(Text(lease)));
        attestations_where(self.store, lease, wanted).await
    }
}

impl AllVerifications<'_> {
    /// The signed results about a lease, in the order of its nodes; without those of re-checks.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn attestations_of(
        &self,
        lease: LeaseId,
    ) -> Result<Vec<KeptAttestation>, StoreError> {
        let wanted = Condition::all().add(attestations::Column::LeaseId.eq(Text(lease)));
        attestations_where(self.store, lease, wanted).await
    }
}

async fn attestations_where(
    store: &crate::Store,
    lease: LeaseId,
    wanted: Condition,
) -> Result<Vec<KeptAttestation>, StoreError> {
    let rechecks = verifications::Entity::find()
        .select_only()
        .column(verifications::Column::Id)
        .filter(verifications::Column::LeaseId.eq(Text(lease)))
        .filter(verifications::Column::RecheckNode.is_not_null())
        .into_query();
    let rows = attestations::Entity::find()
        .filter(wanted)
        .filter(attestations::Column::VerificationId.not_in_subquery(rechecks))
        .order_by_asc(attestations::Column::NodeIndex)
        .order_by_asc(attestations::Column::Id)
        .all(&store.read)
        .await?;
    rows.into_iter().map(KeptAttestation::try_from).collect()
}

/// Stores a result, within the transaction of the node's last step.
pub(super) async fn append(
    tx: &DatabaseTransaction,
    verification: &verifications::Model,
    node_index: i32,
    result: &NewAttestation,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let row = attestations::Model {
        id: Text(result.id),
        verification_id: verification.id.clone(),
        tenant_id: verification.tenant_id.clone(),
        lease_id: verification.lease_id.clone(),
        node_index,
        verdict: Word(result.verdict),
        simulated: result.simulated,
        jws: result.jws.clone(),
        created_at: now.into(),
    };
    attestations::Entity::insert(row.into_active_model())
        .exec_without_returning(tx)
        .await?;
    Ok(())
}
