//! The maintainers' habits: `cargo xtask check` passes on each commit.

#![forbid(unsafe_code)]

mod chaos;
mod fit;
mod house;
mod load;
mod named;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};

use named::Named;

/// The maintainers' habits.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Args {
    #[command(subcommand)]
    habit: Habit,
}

#[derive(Subcommand)]
enum Habit {
    /// Checks formatting, lints and documentation with warnings denied, then runs the tests.
    ///
    /// What fails soonest runs first, and the first failure ends it. The tests compare the generated
    /// OpenAPI document, the state grids and the arrows between the crates with what is committed.
    Check {
        /// Also runs what `.ci/run` leaves out or skips: every life-cycle test on PostgreSQL, longer random
        /// tests, the GPU kernels, the agent as nodes get it, the generated clients, the
        /// audit and the demo. Then records in .ci/passed what they ran on.
        #[arg(long)]
        full: bool,
    },
    /// Rewrites what is generated: openapi/broker.json, the state grids, and the tables of
    /// docs/identity.md, docs/metrics.md and docs/settings.md.
    Generate,
    /// Puts a thousand good and a thousand broken pretended nodes before the verification rules, and
    /// writes and prints the table by class of failure in docs/verification-checks.md.
    VerificationTable,
    /// Random calls that name what another tenant has, against the real server.
    CrossTenant {
        /// How many.
        #[arg(long, default_value_t = 1_000_000)]
        calls: u64,
        /// Which ones: the same seed makes the same calls.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Random schedules of holds, confirms, cancels and lapses by eight tenants: nothing is oversold, and
    /// nobody is above the rules.
    Holds {
        /// How many.
        #[arg(long, default_value_t = 100_000)]
        schedules: u32,
    },
    /// Looks whether any of many random plans takes what its policy forbids.
    Policy {
        /// How many.
        #[arg(long, default_value_t = 1_000_000)]
        plans: u32,
    },
    /// Refits the constants of the performance models to measured tables: matcher/data/params.json.
    Fit {
        /// The folder of training_measured.csv and inference_measured.csv.
        #[arg(long, value_name = "DIR")]
        tables: PathBuf,
    },
    /// Prints docs/accuracy.md: how the performance models do on what they were not fitted to.
    Accuracy {
        /// The folder of training_measured.csv and inference_measured.csv.
        #[arg(long, value_name = "DIR")]
        tables: PathBuf,
    },
    /// Kills replicas of the real binary, PostgreSQL and Redis while tenants buy, and a broker on its embedded
    /// database, and checks what is left; then puts fronts before the providers of real replicas.
    Chaos {
        /// How many times.
        #[arg(long, default_value_t = 300)]
        kills: u64,
        /// What is killed when: the same seed draws the same.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Prints which files import each other in circles, which imports between the rooms of the broker point
    /// back up, and which phrases have to be translated.
    House,
    /// Minutes of mixed reads and reservations at four fifths of the rate that the machine gives,
    /// without an error and under a memory ceiling; prints one JSON object.
    ///
    /// On PostgreSQL where TEST_DATABASE_URL names a server, else on SQLite.
    Load(load::LoadArgs),
}

fn main() -> Result<()> {
    match Args::parse().habit {
        Habit::Check { full: false } => check(&[]),
        Habit::Check { full: true } => check_all(),
        Habit::Generate => generate(),
        Habit::VerificationTable => verification_table(),
        Habit::CrossTenant { calls, seed } => cross_tenant(calls, seed),
        Habit::Holds { schedules } => {
            let drawn = [("HOLD_SCHEDULES", schedules.to_string())];
            let drawn = drawn
                .each_ref()
                .map(|(name, value)| (*name, value.as_str()));
            integration_test(&named::HOLDS, &["--release", "--locked"], &drawn)
        }
        Habit::Policy { plans } => policy(plans),
        Habit::Fit { tables } => fit::fit(&tables),
        Habit::Accuracy { tables } => fit::accuracy(&tables),
        Habit::Chaos { kills, seed } => chaos::chaos(kills, seed),
        Habit::House => house::print(&root()),
        Habit::Load(args) => load::load(&args),
    }
}

/// What `.ci/run` does with what is installed.
fn check(environment: &[(&str, &str)]) -> Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])?;
    let denied = [("RUSTDOCFLAGS", "-D warnings")];
    cargo(&["doc", "--workspace", "--no-deps", "--locked"], &denied)?;
    let lints = ["clippy", "--workspace", "--locked"];
    // As it ships, and then with all targets, for which tests turn on features.
    cargo(&[&lints[..], &DENIED].concat(), &[])?;
    cargo(&[&lints[..], &["--all-targets"], &DENIED].concat(), &[])?;
    cargo(&["test", "--workspace", "--locked"], environment)
}

/// Lints fail instead of warning.
const DENIED: [&str; 3] = ["--", "-D", "warnings"];

fn check_all() -> Result<()> {
    let hashes = hashes()?;
    script(".ci/audit")?;
    check(&[
        ("EVERY_DATABASE", "1"),
        ("REQUIRE_SERVICES", "1"),
        ("CHAOS_KILLS", "30"),
        chaos::FRONT_MINUTES,
        ("CRASH_POINTS", "all"),
        ("MUTATIONS", "100000"),
        ("CROSS_TENANT_CALLS", "20000"),
    ])?;
    script("openapi/clients/check.sh")?;
    script("verifier/kernels/check.sh")?;
    script("verifier/build-agent.sh")?;
    // Built as it ships: what the tests run has features of theirs.
    cargo(&["run", "--locked", "--", "demo", "--exit"], &[])?;
    if hashes != self::hashes()? {
        bail!("files changed while they were checked; nothing is recorded in .ci/passed");
    }
    std::fs::write(root().join(".ci/passed"), hashes).context(".ci/passed cannot be written")
}

/// What each check that `.ci/run` may skip depends on, as .ci/passed has it.
fn hashes() -> Result<String> {
    let printed = Command::new(root().join(".ci/unchanged"))
        .arg("--hashes")
        .output()
        .context(".ci/unchanged could not be started")?;
    if !printed.status.success() {
        bail!("{}", String::from_utf8_lossy(&printed.stderr));
    }
    Ok(String::from_utf8(printed.stdout)?)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn generate() -> Result<()> {
    let update = [("UPDATE_DOCS", "1")];
    let Named { package, name } = named::GRIDS;
    cargo(&["test", "-p", package, "--test", "it", name], &update)?;
    let names = named::GENERATED.map(|one| one.name);
    let broker = ["test", "-p", "broker", "--test", "it", "--"];
    cargo(&[&broker[..], &names].concat(), &update)
}

fn policy(plans: u32) -> Result<()> {
    let Named { package, name } = named::POLICY;
    let args = ["test", "--release", "-p", package, "--lib", "--", name];
    cargo(&args, &[("PLANS", plans.to_string().as_str())])
}

fn verification_table() -> Result<()> {
    integration_test(&named::VERIFICATION_TABLE, &[], &[("UPDATE_DOCS", "1")])
}

fn cross_tenant(calls: u64, seed: u64) -> Result<()> {
    let (calls, seed) = (calls.to_string(), seed.to_string());
    let drawn = [
        ("CROSS_TENANT_CALLS", calls.as_str()),
        ("CROSS_TENANT_SEED", seed.as_str()),
    ];
    integration_test(&named::CROSS_TENANT, &["--release", "--locked"], &drawn)
}

/// Runs one integration test, built with these flags, which says what it sees.
fn integration_test(test: &Named, flags: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let Named { package, name } = test;
    let test = ["test", "-p", package, "--test", "it"];
    let args = [&test, flags, &["--", name, "--nocapture"]].concat();
    cargo(&args, environment)
}

fn cargo(arguments: &[&str], environment: &[(&str, &str)]) -> Result<()> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut cargo = Command::new(program);
    // What `cargo run` says of this package: build scripts that look at it, such as ring's, would run again
    // for each change between this and a plain `cargo test`, and all that stands on them be built again.
    let of_this_package =
        |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
    for (name, _) in std::env::vars().filter(|(name, _)| of_this_package(name)) {
        cargo.env_remove(name);
    }
    cargo.args(arguments).envs(environment.iter().copied());
    run(&format!("cargo {}", arguments.join(" ")), cargo)
}

/// Runs a script of the repository.
fn script(path: &str) -> Result<()> {
    run(path, Command::new(root().join(path)))
}

fn run(shown: &str, mut command: Command) -> Result<()> {
    eprintln!("{shown}");
    let status = command
        .status()
        .with_context(|| format!("{shown} could not be started"))?;
    if !status.success() {
        bail!("{shown} failed");
    }
    Ok(())
}
