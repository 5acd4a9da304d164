//! The service's own signing keys, sealed.

use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Word};
use crate::signing_keys::KeyPurpose;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "signing_keys")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub kid: String,
    pub purpose: Word<KeyPurpose>,
    pub sealed_private: Vec<u8>,
    pub public: Vec<u8>,
    pub created_at: Moment,
    pub retired_at: Option<Moment>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
