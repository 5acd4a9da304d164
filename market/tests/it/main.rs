//! What the vocabulary promises to its readers outside the code.

mod state_grids;
