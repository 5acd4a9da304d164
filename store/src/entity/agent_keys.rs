//! Keys that agents have committed, appended.

use market::ids::VerificationId;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "agent_keys")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub agent_key: String,
    pub verification_id: Text<VerificationId>,
    /// Whether a node in use committed it.
    pub recheck: bool,
    pub committed_at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
