//! The maintainers' habits: `cargo xtask check` passes on each commit.

use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

/// The maintainers' habits.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    habit: Habit,
}

#[derive(Subcommand)]
enum Habit {
    /// Formatting, lints with warnings denied, documentation and tests.
    ///
    /// The tests compare the generated OpenAPI document, the state grids and the arrows between
    /// the crates with what is committed.
    Check,
    /// Rewrites what is generated: openapi/broker.json and the state grids.
    Generate,
}

fn main() -> Result<()> {
    match Args::parse().habit {
        Habit::Check => check(),
        Habit::Generate => generate(),
    }
}

fn check() -> Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    cargo(
        &[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ],
        &[],
    )?;
    cargo(
        &["doc", "--workspace", "--no-deps", "--locked"],
        &[("RUSTDOCFLAGS", "-D warnings")],
    )?;
    cargo(&["test", "--workspace", "--locked"], &[])
}

fn generate() -> Result<()> {
    let update = [("UPDATE_DOCS", "1")];
    cargo(
        &["test", "-p", "market", "--test", "it", "state_grids"],
        &update,
    )?;
    cargo(
        &["test", "-p", "broker", "--test", "it", "openapi"],
        &update,
    )
}

fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let shown = arguments.join(" ");
    eprintln!("cargo {shown}");
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(program)
        .args(arguments)
        .envs(environment.iter().copied())
        .status()
        .with_context(|| format!("cargo {shown} could not be started"))?;
    if !status.success() {
        bail!("cargo {shown} failed");
    }
    Ok(())
}
