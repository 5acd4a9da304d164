//! A conversation with a node that was cut off on our side.

use market::ids::VerificationId;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "interrupted_sessions")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub verification_id: Text<VerificationId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub agent_key: String,
    pub node_index: i32,
    pub step: i32,
    pub started_at: Moment,
    pub interrupted_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
