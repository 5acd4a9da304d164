//! Tests of the matcher's public interface, in a process that counts allocations.

#![forbid(unsafe_code)]

mod allocations;
