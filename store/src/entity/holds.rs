//! The nodes that a reservation sets aside of each offer before its leases exist.

use market::ids::{OfferId, ReservationId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::Text;

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "holds")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub reservation_id: Text<ReservationId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub line: i32,
    pub offer_id: Text<OfferId>,
    pub nodes: i32,
    pub live: bool,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
