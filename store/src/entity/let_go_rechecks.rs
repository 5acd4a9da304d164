//! The short row that stays of a re-check that passed and was deleted, appended.

use market::attestation::Verdict;
use market::ids::{AttestationId, LeaseId, TenantId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text, Word};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "let_go_rechecks")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub attestation_id: Text<AttestationId>,
    pub tenant_id: Text<TenantId>,
    pub lease_id: Text<LeaseId>,
    pub node_index: i32,
    pub verdict: Word<Verdict>,
    pub checked_at: Moment,
    pub let_go_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
