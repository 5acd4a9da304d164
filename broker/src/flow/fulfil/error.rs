//! Why a round on a reservation ended early.

use pricing::PriceError;
use store::StoreError;

/// Why a round ended early. Its findings up to then are saved; the next claim continues.
#[derive(Debug, thiserror::Error)]
pub enum FulfilError {
    /// The database did not answer, or another worker went on.
    #[error("the round could not be saved")]
    Store(#[from] StoreError),
    /// A charge or a cost could not be worked out.
    #[error("the round could not be booked")]
    Price(#[from] PriceError),
    /// A state was asked for an arrow that it does not have: a fault of ours.
    #[error(transparent)]
    Lease(#[from] market::lease::IllegalLeaseTransition),
    /// A state was asked for an arrow that it does not have: a fault of ours.
    #[error(transparent)]
    Reservation(#[from] market::reservation::IllegalReservationTransition),
}
