//! The sum charged on each day, stored beside the charges.

use chrono::NaiveDate;
use market::ids::{ProjectId, TenantId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::Text;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "spent_days")]
pub struct Model {
    pub tenant_id: Text<TenantId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub project_id: Text<ProjectId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub day: Text<NaiveDate>,
    pub amount_units: i64,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
