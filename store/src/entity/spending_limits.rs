//! Limits of tenants and projects.

use market::ids::{ProjectId, TenantId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "spending_limits")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub scope: String,
    pub tenant_id: Text<TenantId>,
    pub project_id: Option<Text<ProjectId>>,
    pub gpus: Option<i64>,
    pub units_per_hour: Option<i64>,
    pub open_holds: Option<i64>,
    pub held_nodes: Option<i64>,
    pub reservations: Option<i64>,
    pub cancelled_orders: Option<i64>,
    pub changed_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
