//! Plans.

use std::collections::BTreeSet;

use market::demand::Demand;
use market::ids::{PlanId, ProjectId, TenantId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};
use serde_json::Value;

use super::column::{Json, Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "plans")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub id: Text<PlanId>,
    pub tenant_id: Text<TenantId>,
    pub demand: Json<Demand>,
    pub generation: i64,
    pub candidates: Json<Value>,
    pub rejections: Json<Value>,
    pub created_at: Moment,
    pub projects: Option<Json<BTreeSet<ProjectId>>>,
    pub decided_from: Option<Json<Value>>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
