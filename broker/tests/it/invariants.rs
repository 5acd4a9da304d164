//! The invariants of the design that live in the broker as a whole, each by its number. The life-cycle tests
//! prove them step by step; these tests prove them once more from outside.

mod money;
mod orders;
mod supply;
mod trust;
