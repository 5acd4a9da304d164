//! Signed results of verifications, appended.

use market::attestation::Verdict;
use market::ids::{AttestationId, LeaseId, TenantId, VerificationId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text, Word};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "attestations")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<AttestationId>,
    pub verification_id: Text<VerificationId>,
    pub tenant_id: Text<TenantId>,
    pub lease_id: Text<LeaseId>,
    pub node_index: i32,
    pub verdict: Word<Verdict>,
    pub simulated: bool,
    pub jws: String,
    pub created_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
