//! The one binary: `broker --help` lists its commands.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// In place of the C library's, which an answer spends a tenth of its time in.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Every TLS connection uses this provider; it must be in place before the first one.
    if rustls::crypto::ring::default_provider()
        .install_default()
        .is_err()
    {
        eprintln!("error: another TLS provider is already in place");
        return ExitCode::FAILURE;
    }
    broker::cli::run()
}
