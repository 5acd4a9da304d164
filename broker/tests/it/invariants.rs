//! The invariants of the design that live in the broker as a whole, each by its number. What the
//! life-cycle tests prove step by step is said here once more from outside.

mod money;
mod orders;
mod supply;
mod trust;
