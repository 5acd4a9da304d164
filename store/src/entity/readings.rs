//! Readings of catalogues; the generation is their order of commit.

use market::catalog::SkipReason;
use market::ids::ProviderId;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};
use std::collections::BTreeMap;

use super::column::{Json, Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "readings")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub generation: i64,
    pub provider_id: Text<ProviderId>,
    pub read_at: Moment,
    pub known_at: Moment,
    pub offers: i32,
    pub added: i32,
    pub changed: i32,
    pub withdrawn: i32,
    pub skipped_by_reason: Json<BTreeMap<SkipReason, u64>>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
