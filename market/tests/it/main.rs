//! The promises of the vocabulary to readers outside the code.

#![forbid(unsafe_code)]

mod state_grids;
