//! What the vocabulary promises to its readers outside the code.

#![forbid(unsafe_code)]

mod state_grids;
