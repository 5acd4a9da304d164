//! Settings of the whole database that are made once.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use sea_orm::sea_query::OnConflict;
use sea_orm::{EntityTrait, IntoActiveModel};
use uuid::Uuid;

use crate::StoreError;
use crate::entity::settings;
use crate::scope::service_wide;

const MODE: &str = "mode";
const DEPLOYMENT: &str = "deployment";

/// Whether a database is about the real world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DatabaseMode {
    /// Real providers, real machines, real money.
    Production,
    /// Everything in it is simulated.
    Simulation,
}

impl fmt::Display for DatabaseMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Production => "production",
            Self::Simulation => "simulation",
        })
    }
}

impl FromStr for DatabaseMode {
    type Err = StoreError;

    fn from_str(word: &str) -> Result<Self, StoreError> {
        match word {
            "production" => Ok(Self::Production),
            "simulation" => Ok(Self::Simulation),
            other => Err(StoreError::corrupt(format!(
                "`{other}` is no mode of a database"
            ))),
        }
    }
}

service_wide!(Settings, settings, "settings of the whole database");

impl Settings<'_> {
    /// The mode that the database was made for; `None` while it is not set.
    ///
    /// Errors: [`StoreError::Database`], [`StoreError::Corrupt`].
    pub async fn mode(&self) -> Result<Option<DatabaseMode>, StoreError> {
        let row = settings::Entity::find_by_id(MODE)
            .one(&self.store.read)
            .await?;
        row.map(|row| row.value.parse()).transpose()
    }

    /// Sets the mode for the life of the database; setting the same mode again is allowed.
    ///
    /// Errors: [`StoreError::ModeMismatch`] when it was made for the other one.
    pub async fn settle_mode(
        &self,
        wanted: DatabaseMode,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        let settled: DatabaseMode = self.settle(MODE, wanted.to_string(), now).await?.parse()?;
        if settled == wanted {
            Ok(())
        } else {
            Err(StoreError::ModeMismatch {
                is: settled,
                wanted,
            })
        }
    }

    /// The name of this database's deployment, which becomes `proposed` when it has none yet. All its
    /// replicas share it, and no other deployment has it.
    ///
    /// Errors: [`StoreError::Database`].
    pub async fn settle_deployment(
        &self,
        proposed: Uuid,
        now: DateTime<Utc>,
    ) -> Result<String, StoreError> {
        let proposed = proposed.simple().to_string();
        self.settle(DEPLOYMENT, proposed, now).await
    }

    /// Writes a setting unless it has a value; returns the value that it has then.
    async fn settle(
        &self,
        name: &str,
        value: String,
        now: DateTime<Utc>,
    ) -> Result<String, StoreError> {
        let row = settings::Model {
            name: name.to_owned(),
            value,
            set_at: now.into(),
        };
        settings::Entity::insert(row.into_active_model())
            .on_conflict(
                OnConflict::column(settings::Column::Name)
                    .do_nothing()
                    .to_owned(),
            )
            .exec_without_returning(&self.store.write)
            .await?;
        let row = settings::Entity::find_by_id(name)
            .one(&self.store.write)
            .await?;
        row.map(|row| row.value)
            .ok_or(StoreError::NotFound { what: "setting" })
    }
}
