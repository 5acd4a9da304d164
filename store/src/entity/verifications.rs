//! Verifications of leases.

use market::ids::{LeaseId, ReservationId, TenantId, VerificationId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text, Word};
use crate::verifications::VerificationState;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "verifications")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<VerificationId>,
    pub lease_id: Text<LeaseId>,
    pub reservation_id: Text<ReservationId>,
    pub tenant_id: Text<TenantId>,
    pub enrol_hash: String,
    pub nodes: i32,
    pub state: Word<VerificationState>,
    pub created_at: Moment,
    pub deadline: Moment,
    pub closed_at: Option<Moment>,
    pub sealed_push: Option<Vec<u8>>,
    pub recheck_node: Option<i32>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
