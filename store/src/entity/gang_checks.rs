//! The progress of nodes of a lease that are measured together.

use market::attestation::Verdict;
use market::ids::VerificationId;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};
use serde_json::Value;

use super::column::{Json, Moment, Text, Word};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "gang_checks")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub verification_id: Text<VerificationId>,
    pub version: i32,
    pub stage: i32,
    /// By the database's own clock.
    pub stage_began_at: Moment,
    pub state: Json<Value>,
    pub verdict: Option<Word<Verdict>>,
    pub started_at: Moment,
    pub ended_at: Option<Moment>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
