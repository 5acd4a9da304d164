//! The result of each order at a provider.

use market::ids::{LeaseId, OfferId, ProviderId};
use market::lease::LeaseEvent;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text, Word};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "attempts")]
pub struct Model {
    #[sea_orm(primary_key)]
    pub id: i64,
    pub offer_id: Text<OfferId>,
    pub provider_id: Text<ProviderId>,
    pub lease_id: Text<LeaseId>,
    pub outcome: Word<LeaseEvent>,
    pub note: Option<String>,
    pub at: Moment,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
