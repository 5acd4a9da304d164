//! A broker for GPU capacity.
fn main() {}
