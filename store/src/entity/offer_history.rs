//! Each change of an offer, appended.

use market::ids::OfferId;
use market::offer::Offer;
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Json, Moment, Text, Word};
use crate::offers::OfferChange;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "offer_history")]
pub struct Model {
    #[sea_orm(primary_key)]
    pub id: i64,
    pub offer_id: Text<OfferId>,
    pub generation: i64,
    pub change: Word<OfferChange>,
    pub observed_at: Moment,
    pub known_at: Moment,
    pub body: Json<Offer>,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
