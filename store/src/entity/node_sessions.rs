//! One node's part in a verification.

use market::attestation::Verdict;
use market::ids::{AttestationId, VerificationId};
use market::verification::Digest;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};
use serde_json::Value;

use super::column::{Json, Moment, Text, Word};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "node_sessions")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub verification_id: Text<VerificationId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub node_index: i32,
    pub host: String,
    pub agent_key: String,
    pub step: i32,
    pub session: Json<Value>,
    pub started_at: Moment,
    pub updated_at: Moment,
    /// By the database's own clock.
    pub answered_at: Option<Moment>,
    /// Of a message that was refused since then, because too many arrived at once.
    pub refused_digest: Option<Text<Digest>>,
    /// By the database's own clock.
    pub refused_first_at: Option<Moment>,
    /// By the database's own clock.
    pub refused_last_at: Option<Moment>,
    pub verdict: Option<Word<Verdict>>,
    pub attestation_id: Option<Text<AttestationId>>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
