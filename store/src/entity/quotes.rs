//! Quotes.

use market::ids::{PlanId, QuoteId, ReservationId, TenantId};
use market::quote::QuoteLine;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "quotes")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<QuoteId>,
    pub tenant_id: Text<TenantId>,
    pub plan_id: Text<PlanId>,
    pub lines: Json<Vec<QuoteLine>>,
    pub state: String,
    pub taken_by: Option<Text<ReservationId>>,
    pub created_at: Moment,
    pub expires_at: Moment,
    pub starts_at: Option<Moment>,
    pub follows: Option<Text<QuoteId>>,
    pub staging_seconds: Option<i64>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
