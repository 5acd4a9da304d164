//! Errors, worded so that a caller knows what to do next.

use chrono::{DateTime, SecondsFormat, Utc};
use market::hold_rules::REFUSED_AFTER;
use market::ids::{CommitmentId, OfferId, ProviderId, ReservationId};
use market::spending::{BudgetExceeded, LimitExceeded};
use sea_orm::{DbErr, RuntimeErr, SqlErr, SqlxError};

use crate::cancelled::WITHIN_HOURS;
use crate::failure;
use crate::settings::DatabaseMode;

/// A write that conflicts with an existing row or state.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// The quote was taken by another reservation.
    #[error("the quote was already taken")]
    QuoteTaken,
    /// The quote has lapsed.
    #[error("the quote has lapsed")]
    QuoteLapsed,
    /// The hold lapsed, and holds placed since no longer count it.
    #[error("the hold has lapsed")]
    HoldLapsed,
    /// The ledger has another transaction under this idempotency key.
    #[error("the ledger holds another transaction under the key `{key}`")]
    LedgerKey {
        /// The key.
        key: String,
    },
    /// The verification has no node with this number.
    #[error("the verification is of {nodes} nodes, and this is not one of them")]
    VerificationFull {
        /// How many nodes it is for.
        nodes: u32,
    },
    /// Conversations with the node were cut off too often: it gets no other challenge.
    #[error("conversations with the node were interrupted {times} times already")]
    InterruptedTooOften {
        /// How often.
        times: usize,
    },
    /// The node in use was re-checked recently.
    #[error("the node was re-checked recently; try again in {again_in_seconds} seconds")]
    RecheckedLately {
        /// When it may be re-checked again. Units: seconds from now.
        again_in_seconds: u64,
    },
    /// A node has committed the agent's key before, in any verification.
    #[error("the key of the agent was committed before")]
    AgentKeyCommitted,
    /// The verification is over.
    #[error("the verification is over")]
    VerificationClosed,
    /// Something may still be running for the reservation, so it cannot be closed.
    #[error("the reservation has leases that are not gone")]
    LiveLeases,
    /// The tenant has the most of them allowed.
    #[error("a tenant may have {most} {what}; delete one first")]
    TooMany {
        /// The name of the things, in the plural.
        what: &'static str,
        /// The most that are allowed.
        most: u64,
    },
    /// The tenant stores the most of them allowed.
    #[error("a tenant may have {most} {what}; {instead}")]
    NoRoom {
        /// The name of the things, in the plural.
        what: &'static str,
        /// The most that are allowed.
        most: u64,
        /// How to make room, in words.
        instead: &'static str,
    },
    /// Nodes of the reservation were reported as often as allowed.
    #[error(
        "nodes of a reservation may be reported {most} times in {hours} hours; report again later"
    )]
    TooManyReports {
        /// The most that are allowed.
        most: u64,
        /// The period. Units: hours.
        hours: i64,
        /// When another is allowed. Units: seconds from now.
        again_in_seconds: u64,
    },
    /// Too many holds of the tenant went unused within the last hour.
    #[error(
        "{} holds of the tenant lapsed or were cancelled within an hour, and none is placed before {}; reserve with `auto_confirm`, to which this limit does not apply, or confirm what you hold",
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
        "the tenant cancelled {cancelled} orders before their hand-off within {} hours, which cost the operator their machines, and {most} are allowed; confirm again after {}, or have the limit `cancelled_orders` raised",
        WITHIN_HOURS, again_at.to_rfc3339_opts(SecondsFormat::Secs, true)
    )]
    TooManyCancelled {
        /// How many it cancelled.
        cancelled: usize,
        /// How many are allowed.
        most: u32,
        /// When one may be confirmed again.
        again_at: DateTime<Utc>,
        /// How long that is from now. Units: seconds.
        again_in_seconds: u64,
    },
    /// The tenant has the most budgets allowed.
    #[error("a tenant may have {most} budgets; delete one first")]
    TooManyBudgets {
        /// The most that are allowed.
        most: usize,
    },
    /// The tenant has registered as much of its own capacity as allowed.
    #[error("a tenant may have {most} {what}; withdraw one first")]
    OwnCapacityFull {
        /// The name of the things, in the plural.
        what: &'static str,
        /// The most that are allowed.
        most: u64,
    },
    /// Less of a commitment is left than quoted.
    #[error("less of commitment {commitment} is left than was quoted")]
    CommitmentUsed {
        /// The commitment.
        commitment: CommitmentId,
    },
    /// The run that a fleet is to follow is over or ending.
    #[error(
        "reservation {run} is over or ending, so nothing can follow it; leave out `follows` and set `window.start_earliest`, or plan the pair again"
    )]
    RunOver {
        /// The run.
        run: ReservationId,
    },
    /// The run that a fleet is to follow ends after the latest start of the fleet.
    #[error(
        "reservation {run} ends too late for what is to follow it, which must start by {}; give it a later latest start",
        latest.to_rfc3339_opts(SecondsFormat::Secs, true)
    )]
    RunTooLate {
        /// The run.
        run: ReservationId,
        /// The latest start of the fleet.
        latest: DateTime<Utc>,
    },
    /// As many fleets follow a run as may.
    #[error("{most} reservations follow {run} already, and no more may; cancel one first")]
    TooManyFollowers {
        /// The run.
        run: ReservationId,
        /// How many may.
        most: u64,
    },
    /// The fleet that follows a run cannot start as late as an extension would have it.
    #[error(
        "reservation {fleet} follows it and must start by {latest}{why}; extend to {most} at the latest, or cancel {fleet} first",
        latest = latest.to_rfc3339_opts(SecondsFormat::Secs, true),
        most = most.to_rfc3339_opts(SecondsFormat::Secs, true),
        why = if *.ordered { ", and its machines are ordered" } else { "" }
    )]
    FleetFollows {
        /// The fleet.
        fleet: ReservationId,
        /// Its latest start.
        latest: DateTime<Utc>,
        /// The latest end of the run.
        most: DateTime<Utc>,
        /// Whether the machines of the fleet are ordered already.
        ordered: bool,
    },
    /// The webhook endpoint is disabled.
    #[error("the webhook endpoint is disabled; enable it first")]
    EndpointDisabled,
    /// The API key is revoked, has expired or was already rotated.
    #[error("the API key is revoked, has expired or was rotated already")]
    KeyNotActive,
    /// The provider sells, or has holds or leases that need its credential to end.
    #[error("the provider is enabled, or holds or leases there are open")]
    ProviderInUse,
    /// Nothing is sold at the provider while it is disabled.
    #[error("{provider} is disabled, and nothing new is sold there")]
    ProviderDisabled {
        /// The provider.
        provider: ProviderId,
    },
    /// The provider is suspended: nothing new is sold there for a while.
    #[error("{provider} is suspended until {} ({reason}), and nothing new is sold there", until.to_rfc3339_opts(SecondsFormat::Secs, true))]
    ProviderQuarantined {
        /// The provider.
        provider: ProviderId,
        /// The reason.
        reason: String,
        /// When it ends by itself.
        until: DateTime<Utc>,
    },
    /// A row with the same unique value exists.
    #[error("{what} exists already")]
    Exists {
        /// The name of the existing thing.
        what: &'static str,
    },
}

/// Why the store refused. Nothing was written, except where it is [`StoreError::OutcomeUnknown`].
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another writer changed it meanwhile: read it again, or drop the result.
    #[error("another writer changed it meanwhile")]
    Stale,
    /// It does not exist within the tenant, or at all.
    #[error("there is no such {what}")]
    NotFound {
        /// The name of the thing.
        what: &'static str,
    },
    /// An existing row or state conflicts with it.
    #[error(transparent)]
    Conflict(#[from] Conflict),
    /// The offer does not have that many nodes left: take the next candidate.
    #[error("offer {offer} has {free} nodes left, not {wanted}")]
    OutOfStock {
        /// The offer.
        offer: OfferId,
        /// How many nodes were asked for.
        wanted: u32,
        /// How many are left, if known.
        free: u32,
    },
    /// A limit of the tenant or the project would be exceeded.
    #[error(transparent)]
    LimitExceeded(#[from] Box<LimitExceeded>),
    /// A blocking budget of the tenant or the project would be exceeded.
    #[error(transparent)]
    BudgetExceeded(#[from] Box<BudgetExceeded>),
    /// The database was made for another mode, which never changes.
    #[error("this database was made for {is}, not for {wanted}; use another database")]
    ModeMismatch {
        /// The mode it was made for.
        is: DatabaseMode,
        /// The mode asked for.
        wanted: DatabaseMode,
    },
    /// The schema was rewritten on 28 November 2026, and no migration leads to it from the one before.
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
    /// A stored value cannot be read: another program wrote it, or a newer version of this one.
    #[error("a stored value cannot be read: {detail}")]
    Corrupt {
        /// The value and the reason.
        detail: String,
    },
    /// The URL is no PostgreSQL URL. It is not shown, because it may contain a password.
    #[error(
        "its URL is not of the form postgres://user:password@host:port/name; write special characters of a password as %XX"
    )]
    NoPostgresUrl,
    /// The database could not be opened or reached in the first place.
    #[error("{place} cannot be opened: {why}")]
    Unopened {
        /// The database and its address, without user and password.
        place: String,
        /// The reason, and what to check.
        why: String,
    },
    /// The database cannot write or answer now: it is lost, stopping, full or busy. The same may succeed
    /// later.
    #[error("the database is unavailable")]
    Unavailable {
        /// The database's error.
        #[source]
        source: DbErr,
    },
    /// The answer to a COMMIT was lost: everything was written, or nothing was.
    #[error("the answer to a commit was lost, so its outcome is unknown")]
    OutcomeUnknown {
        /// The error of the connection.
        #[source]
        source: DbErr,
    },
    /// The database refused.
    #[error("the database refused the operation")]
    Database {
        /// The database's error.
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

    /// Turns the violation of a unique index into the conflict that it means.
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

    /// Whether the same transaction may succeed when it is retried.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { source } if failure::is_transient(source))
    }
}
