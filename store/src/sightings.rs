//! The GPUs that were seen in each lease: a node's GPUs are stored with its step of the verification, and
//! looked up when another node shows one of them.
//!
//! Ids and serial numbers are stored in lower case, without surrounding blanks, so that different spellings
//! match.

use chrono::{DateTime, Utc};
use market::attestation::FindingCode;
use market::ids::{LeaseId, OfferId, ProviderId};
use market::lease::LeaseState;
use sea_orm::sea_query::OnConflict;
use sea_orm::{
    ColumnTrait, Condition, DatabaseTransaction, EntityTrait, IntoActiveModel, QueryFilter,
    QueryOrder, QuerySelect,
};

use crate::StoreError;
use crate::entity::column::{Json, Text};
use crate::entity::gpu_sightings::{Column, Entity, Model};
use crate::entity::leases;
use crate::scope::service_wide;

/// How many sightings of a node's GPUs are compared: the latest.
const MOST: u64 = 1_000;

/// A GPU that a node of a lease shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSighting {
    /// Its id, at most 128 characters.
    pub uuid: String,
    /// The serial number of its board, at most 128 characters, if it is unique.
    pub serial: Option<String>,
    /// The model name, at most 128 characters.
    pub name: String,
    /// Its memory, MiB.
    pub memory_mib: u32,
    /// The checks that its node failed, if they quarantined the GPU.
    pub failed: Vec<FindingCode>,
}

/// A GPU as it was seen in a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sighting {
    /// The lease.
    pub lease_id: LeaseId,
    /// The lease's present state.
    pub state: LeaseState,
    /// The provider that it was bought from.
    pub provider: ProviderId,
    /// The offer.
    pub offer: OfferId,
    /// Whether that machine belonged to somebody other than a company that runs a cloud.
    pub of_peers: bool,
    /// The GPU as it was shown.
    pub gpu: NewSighting,
    /// When it was first seen there.
    pub first_seen_at: DateTime<Utc>,
    /// When it was last seen there.
    pub last_seen_at: DateTime<Utc>,
}

service_wide!(Sightings, sightings, "GPUs that were seen in leases");

impl Sightings<'_> {
    /// Sightings of GPUs with one of these ids or serial numbers in leases other than `but`, the latest
    /// first, at most a thousand.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn of(
        &self,
        gpus: &[NewSighting],
        but: LeaseId,
    ) -> Result<Vec<Sighting>, StoreError> {
        let uuids = gpus.iter().map(|gpu| plain(&gpu.uuid));
        let serials = gpus.iter().filter_map(|gpu| gpu.serial.as_deref());
        let one_of_them = Condition::any()
            .add(Column::Uuid.is_in(uuids))
            .add(Column::Serial.is_in(serials.map(plain)));
        let rows = Entity::find()
            .filter(one_of_them)
            .filter(Column::LeaseId.ne(Text(but)))
            .order_by_desc(Column::LastSeenAt)
            .order_by_desc(Column::LeaseId)
            .limit(MOST)
            .all(&self.store.read)
            .await?;
        let ids = rows.iter().map(|row| row.lease_id.clone());
        let of_rows = leases::Entity::find().filter(leases::Column::Id.is_in(ids));
        let leases = of_rows.all(&self.store.read).await?;
        let shown = |row: Model| {
            let lease = leases.iter().find(|lease| lease.id == row.lease_id)?;
            Some(read(row, lease))
        };
        rows.into_iter().filter_map(shown).collect()
    }
}

fn read(row: Model, lease: &leases::Model) -> Result<Sighting, StoreError> {
    Ok(Sighting {
        lease_id: row.lease_id.0,
        state: lease.state.0,
        provider: row.provider_id.0,
        offer: row.offer_id.0,
        of_peers: lease.offer.0.particulars.operator.is_peer(),
        gpu: NewSighting {
            uuid: row.uuid,
            serial: row.serial,
            name: row.name,
            memory_mib: u32::try_from(row.memory_mib).map_err(StoreError::corrupt)?,
            failed: row.failed.0,
        },
        first_seen_at: row.first_seen_at.at(),
        last_seen_at: row.last_seen_at.at(),
    })
}

/// The stored form of a GPU's id or serial number.
fn plain(text: &str) -> String {
    text.trim().to_ascii_lowercase()
}

/// Stores the GPUs that a node of a lease shows, within the transaction of its step. Earlier ids that it no
/// longer shows stay.
pub(crate) async fn keep(
    tx: &DatabaseTransaction,
    lease: &Text<LeaseId>,
    node_index: i32,
    shown: &[NewSighting],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    if shown.is_empty() {
        return Ok(());
    }
    let lease = leases::Entity::find_by_id(lease.clone())
        .one(tx)
        .await?
        .ok_or(StoreError::NotFound { what: "lease" })?;
    for gpu in shown {
        let row = Model {
            lease_id: lease.id.clone(),
            node_index,
            uuid: plain(&gpu.uuid),
            serial: gpu.serial.as_deref().map(plain),
            name: gpu.name.clone(),
            memory_mib: i32::try_from(gpu.memory_mib).unwrap_or(i32::MAX),
            provider_id: lease.provider_id.clone(),
            offer_id: lease.offer_id.clone(),
            failed: Json(gpu.failed.clone()),
            first_seen_at: now.into(),
            last_seen_at: now.into(),
        };
        let mut again = OnConflict::columns([Column::LeaseId, Column::NodeIndex, Column::Uuid]);
        let changing = [
            Column::Serial,
            Column::Name,
            Column::MemoryMib,
            Column::Failed,
            Column::LastSeenAt,
        ];
        Entity::insert(row.into_active_model())
            .on_conflict(again.update_columns(changing).to_owned())
            .exec_without_returning(tx)
            .await?;
    }
    Ok(())
}
