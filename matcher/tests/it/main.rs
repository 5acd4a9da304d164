//! The matcher from outside, in a process whose allocations are counted.

#![forbid(unsafe_code)]

mod allocations;
