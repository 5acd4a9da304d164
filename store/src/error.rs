//! What can go wrong, said so that a caller knows what to do next.

use chrono::{DateTime, SecondsFormat, Utc};
use market::hold_rules::REFUSED_AFTER;
use market::ids::{CommitmentId, OfferId, ProviderId};
use market::spending::{BudgetExceeded, LimitExceeded};
use sea_orm::{DbErr, RuntimeErr, SqlErr, SqlxError};

use crate::cancelled::WITHIN_HOURS;
use crate::failure;
use crate::settings::DatabaseMode;

/// A write that meets something already there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The quote was taken by another reservation.
    #[error("the quote was already taken")]
    QuoteTaken,
    /// The quote's time ran out.
    #[error("the quote has lapsed")]
    QuoteLapsed,
    /// The hold lapsed, and what was placed since counts it no more.
    #[error("the hold has lapsed")]
    HoldLapsed,
    /// The ledger holds another transaction under this idempotency key.
    #[error("the ledger holds another transaction under the key `{key}`")]
    LedgerKey {
        /// The key.
        key: String,
    },
    /// The verification has no node of this number.
    #[error("the verification is of {nodes} nodes, and this is not one of them")]
    VerificationFull {
        /// How many nodes it is for.
        nodes: u32,
    },
    /// Conversations with the node were cut off too often: no other challenge is drawn for it.
    #[error("conversations with the node were interrupted {times} times already")]
    InterruptedTooOften {
        /// How often they were.
        times: usize,
    },
    /// The node in use was looked at not long ago.
    #[error("the node was looked at not long ago; look again in {again_in_seconds} seconds")]
    RecheckedLately {
        /// When it may be looked at again. Units: seconds from now.
        again_in_seconds: u64,
    },
    /// A node has committed the agent's key before, in whichever verification.
    #[error("the key of the agent was committed before")]
    AgentKeyCommitted,
    /// The verification is over.
    #[error("the verification is over")]
    VerificationClosed,
    /// Something may still run for the reservation, so it cannot be closed.
    #[error("the reservation has leases that are not gone")]
    LiveLeases,
    /// The tenant has as many of them as it may.
    #[error("a tenant may have {most} {what}; delete one first")]
    TooMany {
        /// What there are too many of, in words.
        what: &'static str,
        /// How many there may be.
        most: u64,
    },
    /// The tenant keeps as many of them as it may.
    #[error("a tenant may have {most} {what}; {instead}")]
    NoRoom {
        /// What there are too many of, in words.
        what: &'static str,
        /// How many there may be.
        most: u64,
        /// What makes room, in words.
        instead: &'static str,
    },
    /// Nodes of the reservation were reported as often as they may be.
    #[error(
        "nodes of a reservation may be reported {most} times in {hours} hours; report again later"
    )]
    TooManyReports {
        /// How many there may be.
        most: u64,
        /// Within how long. Units: hours.
        hours: i64,
        /// When there is room for another. Units: seconds from now.
        again_in_seconds: u64,
    },
    /// Too many holds of the tenant went unused within the last hour.
    #[error(
        "{} holds of the tenant lapsed or were cancelled within an hour, and none is placed before {}; reserve with `auto_confirm`, which this does not bind, or confirm what you hold",
        REFUSED_AFTER, again_at.to_rfc3339_opts(SecondsFormat::Secs, true)
    )]
    TooManyUnused {
        /// When one may be placed again.
        again_at: DateTime<Utc>,
        /// How long that is from now. Units: seconds.
        again_in_seconds: u64,
    },
    /// The tenant cancelled too many orders before their hand-off.
    #[error(
        "the tenant cancelled {cancelled} orders before their hand-off within {} hours, which cost the operator their machines, and {most} are let through; confirm again after {}, or have the limit `cancelled_orders` raised",
        WITHIN_HOURS, again_at.to_rfc3339_opts(SecondsFormat::Secs, true)
    )]
    TooManyCancelled {
        /// How many were.
        cancelled: usize,
        /// How many may be.
        most: u32,
        /// When one may be confirmed again.
        again_at: DateTime<Utc>,
        /// How long that is from now. Units: seconds.
        again_in_seconds: u64,
    },
    /// The tenant has as many budgets as it may.
    #[error("a tenant may have {most} budgets; delete one first")]
    TooManyBudgets {
        /// How many there may be.
        most: usize,
    },
    /// The tenant has made known as much of its own as it may.
    #[error("a tenant may have {most} {what}; withdraw one first")]
    OwnCapacityFull {
        /// What there are too many of, in words.
        what: &'static str,
        /// How many there may be.
        most: u64,
    },
    /// Less of a commitment is left than was quoted.
    #[error("less of commitment {commitment} is left than was quoted")]
    CommitmentUsed {
        /// Which one.
        commitment: CommitmentId,
    },
    /// The webhook endpoint is disabled.
    #[error("the webhook endpoint is disabled; enable it first")]
    EndpointDisabled,
    /// The API key is revoked, has expired or was rotated already.
    #[error("the API key is revoked, has expired or was rotated already")]
    KeyNotActive,
    /// Something is sold, held or may still run at the provider, and its credential is needed to end it.
    #[error("the provider is enabled, or holds or leases there are open")]
    ProviderInUse,
    /// Nothing is sold at the provider while it is disabled.
    #[error("{provider} is disabled, and nothing new is sold there")]
    ProviderDisabled {
        /// Which one.
        provider: ProviderId,
    },
    /// Nothing new is sold at the provider for a while.
    #[error("{provider} is in quarantine until {} ({reason}), and nothing new is sold there", until.to_rfc3339_opts(SecondsFormat::Secs, true))]
    ProviderQuarantined {
        /// Which one.
        provider: ProviderId,
        /// Why.
        reason: String,
        /// When it ends by itself.
        until: DateTime<Utc>,
    },
    /// A row with the same unique value exists.
    #[error("{what} exists already")]
    Exists {
        /// What exists, in words.
        what: &'static str,
    },
}

/// Why the store did not do as asked. Nothing was written, but where it is [`StoreError::OutcomeUnknown`].
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Someone else went on with it meanwhile: read it again, or drop the result.
    #[error("someone else went on with it meanwhile")]
    Stale,
    /// There is no such thing within the tenant, or at all.
    #[error("there is no such {what}")]
    NotFound {
        /// What was looked for, in words.
        what: &'static str,
    },
    /// Something already there stands against it.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The offer has not so many nodes left: take the next candidate.
    #[error("offer {offer} has {free} nodes left, not {wanted}")]
    OutOfStock {
        /// The offer.
        offer: OfferId,
        /// How many nodes were asked for.
        wanted: u32,
        /// How many are left, as far as known.
        free: u32,
    },
    /// A limit of the tenant or the project would be passed.
    #[error(transparent)]
    LimitExceeded(#[from] Box<LimitExceeded>),
    /// A blocking budget of the tenant or the project would be passed.
    #[error(transparent)]
    BudgetExceeded(#[from] Box<BudgetExceeded>),
    /// The database was made for another mode, and keeps it for life.
    #[error("this database was made for {is}, not for {wanted}; use another database")]
    ModeMismatch {
        /// The mode it was made for.
        is: DatabaseMode,
        /// The mode asked for.
        wanted: DatabaseMode,
    },
    /// The schema was rewritten on 28 November 2026, and no migration leads there from the one before.
    #[error(
        "this database was made by a version from before 28 November 2026 (it has `{change}`), which this one cannot upgrade; nothing was changed: use the version that made it, or keep it aside and start with a new data directory or an empty PostgreSQL database"
    )]
    OlderSchema {
        /// The first change that the database has and this program does not.
        change: String,
    },
    /// A newer program has changed the schema.
    #[error(
        "this database was upgraded by a newer version (it has `{change}`); nothing was changed: use that version"
    )]
    NewerSchema {
        /// The first change that the database has and this program does not.
        change: String,
    },
    /// What is stored cannot be read: it was not written by this program, or by a newer one.
    #[error("a stored value cannot be read: {detail}")]
    Corrupt {
        /// Which value, and why.
        detail: String,
    },
    /// What is to name a PostgreSQL database does not. It is not shown: it may hold a password.
    #[error(
        "its URL is not of the form postgres://user:password@host:port/name; write special characters of a password as %XX"
    )]
    NoPostgresUrl,
    /// The database could not be opened or reached in the first place.
    #[error("{place} cannot be opened: {why}")]
    Unopened {
        /// Which database, and where, without user and password.
        place: String,
        /// Why, and what to look at.
        why: String,
    },
    /// The database cannot take or answer anything just now: it is lost, stopping, full or busy.
    /// The same may well succeed later.
    #[error("the database cannot do it just now")]
    Unavailable {
        /// What the database said.
        #[source]
        source: DbErr,
    },
    /// The answer to a COMMIT was lost: everything was written, or nothing was.
    #[error("the answer to a commit was lost, so that nobody knows whether it was written")]
    OutcomeUnknown {
        /// What became of the connection.
        #[source]
        source: DbErr,
    },
    /// The database refused.
    #[error("the database could not do it")]
    Database {
        /// What the database said.
        #[source]
        source: DbErr,
    },
}

impl From<DbErr> for StoreError {
    fn from(source: DbErr) -> Self {
        match source {
            DbErr::Type(detail) | DbErr::Json(detail) => Self::Corrupt { detail },
            DbErr::Query(RuntimeErr::SqlxError(cause))
                if matches!(*cause, SqlxError::ColumnDecode { .. }) =>
            {
                Self::corrupt(cause)
            }
            source if failure::is_passing(&source) => Self::Unavailable { source },
            source => Self::Database { source },
        }
    }
}

impl StoreError {
    pub(crate) fn corrupt(detail: impl std::fmt::Display) -> Self {
        Self::Corrupt {
            detail: detail.to_string(),
        }
    }

    /// Turns the breach of a unique index into the conflict that it stands for.
    pub(crate) fn unique(self, conflict: impl FnOnce() -> Conflict) -> Self {
        match &self {
            Self::Database { source }
                if matches!(source.sql_err(), Some(SqlErr::UniqueConstraintViolation(_))) =>
            {
                Self::Conflict(conflict())
            }
            _ => self,
        }
    }

    /// Whether the same transaction may well succeed when it is begun anew.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { source } if failure::is_transient(source))
    }
}
