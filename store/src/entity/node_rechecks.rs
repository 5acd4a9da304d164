//! The result of each re-check of a node in use.

use market::attestation::{FindingCode, Verdict};
use market::ids::{AttestationId, LeaseId, ReservationId, TenantId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text, Word};
use crate::node_reports::Follows;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "node_rechecks")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub attestation_id: Text<AttestationId>,
    pub tenant_id: Text<TenantId>,
    pub reservation_id: Text<ReservationId>,
    pub lease_id: Text<LeaseId>,
    pub node_index: i32,
    pub node: i32,
    pub verdict: Word<Verdict>,
    pub failed: Json<Vec<FindingCode>>,
    pub pinned_set_changed: bool,
    pub follows: Word<Follows>,
    pub checked_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
