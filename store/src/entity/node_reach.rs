//! Reachability of nodes in the tenants' hands.

use market::ids::{LeaseId, TenantId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text, Word};
use crate::reach::ProbeFailure;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "node_reach")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub lease_id: Text<LeaseId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub node_index: i32,
    pub tenant_id: Text<TenantId>,
    #[sea_orm(column_type = "Text", nullable)]
    pub first_contact_key: Option<String>,
    pub probed_at: Moment,
    pub last_reachable_at: Option<Moment>,
    pub unreachable_since: Option<Moment>,
    pub failure: Option<Word<ProbeFailure>>,
    pub told: bool,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
