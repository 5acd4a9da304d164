//! Budgets.

use market::ids::{BudgetId, ProjectId, TenantId};
use market::spending::{BudgetMode, BudgetPeriod};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text, Word};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "budgets")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<BudgetId>,
    pub tenant_id: Text<TenantId>,
    pub project_id: Option<Text<ProjectId>>,
    pub period: Word<BudgetPeriod>,
    pub cap_units: i64,
    pub mode: Word<BudgetMode>,
    pub thresholds_percent: Json<Vec<u16>>,
    pub grace_seconds: i32,
    pub created_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
