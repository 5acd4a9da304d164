//! Why nothing was reserved, or a command was refused.

use chrono::{DateTime, Utc};
use market::ids::{ProjectId, ProviderId, QuoteId, ReservationId, SshKeyId};
use market::reservation::{IllegalReservationTransition, ReservationEvent, ReservationState};
use market::tags::TagError;
use matcher::NearestCounts;
use pricing::PriceError;
use store::{Conflict, StoreError};

use super::NAME_CHARS;
use crate::flow::cooldown::CoolingDown;
use crate::flow::plan::PlanError;
use crate::flow::quote::QuoteError;
use crate::flow::verify::TooDeep;

/// Why nothing was reserved, or a command was refused.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError {
    /// The plan behind an inline demand was not made.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The quote is not there, or none was made.
    #[error(transparent)]
    Quote(#[from] QuoteError),
    /// The quote lapsed.
    #[error("quote {0} has lapsed; ask for another")]
    QuoteLapsed(QuoteId),
    /// The quote was taken by another reservation.
    #[error("quote {0} was taken already; ask for another")]
    QuoteTaken(QuoteId),
    /// Somebody else took the capacity.
    #[error("the capacity was taken meanwhile ({0}); plan again")]
    OutOfStock(StoreError),
    /// Nothing new is sold at one of the providers.
    #[error("{0}; plan again")]
    ProviderClosed(Conflict),
    /// An offer failed several times since it was quoted.
    #[error(transparent)]
    CoolingDown(#[from] CoolingDown),
    /// By the records on a provider, it does not meet the policy, or no longer does.
    #[error("of {provider}: {lack}; the policy excludes it, so plan again")]
    OutsidePolicy {
        /// The provider.
        provider: ProviderId,
        /// The missing parts, in words.
        lack: String,
    },
    /// No candidate of the inline demand can be ordered under the ceiling.
    #[error(
        "no offer that can be ordered satisfies the demand; {rejected} offers were refused, see POST /v1/plans for the reasons{}",
        nearest.map_or(String::new(), |counts| format!("; nobody sells nodes with so many of these GPUs, but nodes with {counts}"))
    )]
    NothingMatches {
        /// How many offers were refused.
        rejected: usize,
        /// The nearest sizes of a node, where nobody sells the wanted one.
        nearest: Option<NearestCounts>,
    },
    /// The quotes are not those of one run and its fleet.
    #[error(
        "quotes {} and {} are not of one pair; quote a pair of a hybrid plan with POST /v1/quotes and its `pair`", .0[0], .0[1]
    )]
    NotAPair([QuoteId; 2]),
    /// The fleet's run is not reserved.
    #[error(
        "the fleet follows the run of quote {0}, which is not reserved; reserve it first, or both with `quotes`"
    )]
    RunFirst(QuoteId),
    /// The run to follow is not one of the tenant's reservations.
    #[error("there is no reservation {0} to follow")]
    UnknownRun(ReservationId),
    /// What starts at once follows nothing.
    #[error(
        "the quote is for a start now, or so soon that it is ordered now, so it cannot follow a reservation; give the demand a later `window.start_earliest` and quote again"
    )]
    StartsAtOnce,
    /// The tags cannot be used in a report.
    #[error(transparent)]
    Tags(#[from] TagError),
    /// Tags that the tenant requires are not there.
    #[error("{0}")]
    TagsMissing(String),
    /// The name cannot be used.
    #[error("a name is 1 to {NAME_CHARS} printable characters")]
    Name,
    /// The project is not one of the tenant's.
    #[error("there is no project {0}")]
    UnknownProject(ProjectId),
    /// The caller works in several projects and named none.
    #[error("give `project_id`: the key that you call with works in several projects")]
    WhichProject,
    /// The SSH key is not one of the tenant's.
    #[error("there is no SSH key {0}; add it with POST /v1/ssh-keys")]
    UnknownSshKey(SshKeyId),
    /// The quote costs more than the ceiling given with the reservation.
    #[error(transparent)]
    AboveCeiling(PriceError),
    /// More orders than one reservation may place.
    #[error(
        "this takes {wanted} machines ordered one by one, and a reservation has at most {most}; ask for fewer or larger nodes"
    )]
    TooManyLeases {
        /// How many it would take.
        wanted: u32,
        /// How many there may be.
        most: u32,
    },
    /// A deeper verification than may be asked for.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// Machines that nobody could log in to.
    #[error("there is no SSH key to install; add one with POST /v1/ssh-keys")]
    NoSshKey,
    /// There is no such reservation within the tenant.
    #[error("there is no reservation {0}")]
    Unknown(ReservationId),
    /// The state does not know the command.
    #[error("{illegal}{}", instead.map(|what| format!("; {what}")).unwrap_or_default())]
    Illegal {
        /// The attempted action.
        illegal: IllegalReservationTransition,
        /// An alternative, where there is one.
        instead: Option<&'static str>,
    },
    /// The hold lapsed before it was confirmed.
    #[error("the hold lapsed at {}; reserve again", .0.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))]
    HoldLapsed(DateTime<Utc>),
    /// The window is over: nothing in it can be ordered or changed any more.
    #[error("its window ended at {}; reserve again", .0.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))]
    WindowOver(DateTime<Utc>),
    /// The new end is not after the old one, or not in the future.
    #[error("the new end must lie after {}", .0.to_rfc3339_opts(chrono::SecondsFormat::Secs, true))]
    EndTooEarly(DateTime<Utc>),
    /// A reservation with an open end has nothing to extend.
    #[error("the reservation has an open end; there is nothing to extend")]
    OpenEnd,
    /// One of several reservations is refused, so nothing is done to any.
    #[error("reservation {id}: {refusal}; none was confirmed")]
    OneOfSeveral {
        /// Which.
        id: ReservationId,
        /// Why.
        refusal: Box<Self>,
    },
    /// The database did not answer.
    #[error("the reservation could not be kept")]
    Store(#[source] StoreError),
}

impl ReserveError {
    /// The refusal of one of several reservations.
    pub(super) fn of_one(id: ReservationId, refusal: Self) -> Self {
        Self::OneOfSeveral {
            id,
            refusal: Box::new(refusal),
        }
    }
}

impl From<IllegalReservationTransition> for ReserveError {
    fn from(illegal: IllegalReservationTransition) -> Self {
        use ReservationEvent as E;
        use ReservationState as S;
        use market::reservation::CloseReason as Why;
        let instead = match (illegal.state, illegal.event) {
            (S::Closed(Why::Expired), E::Confirm | E::ConfirmLater) => {
                Some("its hold lapsed; plan and reserve again")
            }
            (S::Closed(_), _) => Some("it is over; nothing needs to be done"),
            (S::Releasing(_), _) => {
                Some("it is being ended; `broker watch` tells when its machines are gone")
            }
            (S::Active | S::Repairing, E::Cancel) => {
                Some("release it: `broker release`, or POST /v1/reservations/{id}/release")
            }
            (_, E::ReleaseRequested) => {
                Some("cancel it: `broker cancel`, or POST /v1/reservations/{id}/cancel")
            }
            (_, E::Confirm | E::ConfirmLater) => {
                Some("it was confirmed before; read it to see how far it is")
            }
            _ => None,
        };
        Self::Illegal { illegal, instead }
    }
}

impl From<StoreError> for ReserveError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
