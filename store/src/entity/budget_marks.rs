//! Notices and actions of a budget in a period.

use chrono::NaiveDate;
use market::ids::BudgetId;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "budget_marks")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub budget_id: Text<BudgetId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub period_start: Text<NaiveDate>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub mark: String,
    pub at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
