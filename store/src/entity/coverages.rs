//! The nodes of lines that commitments pay for.

use market::ids::{CommitmentId, ReservationId};
use sea_orm::entity::prelude::{
    ActiveModelBehavior, DeriveEntityModel, DerivePrimaryKey, DeriveRelation, EntityTrait,
    EnumIter, PrimaryKeyTrait,
};

use super::column::{Moment, Text};

#[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
#[sea_orm(table_name = "coverages")]
pub struct Model {
    #[sea_orm(primary_key, auto_increment = false)]
    pub reservation_id: Text<ReservationId>,
    #[sea_orm(primary_key, auto_increment = false)]
    pub line: i32,
    pub commitment_id: Text<CommitmentId>,
    pub nodes: i32,
    pub from_at: Moment,
    pub until_at: Moment,
    pub live: bool,
}

#[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
pub enum Relation {}

impl ActiveModelBehavior for ActiveModel {}
