//! `verifier run`: the agent for a broker, or a check of this machine on its own.
//!
//! The arguments are a part that the broker's own command line includes for its pretended nodes.

mod alone;
mod order;
mod repeat;
mod table;

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use market::gpu::Gpu;
use market::ids::VerificationId;
use market::verification::Level;

use self::alone::check_alone;
pub use self::alone::{Expectation, run_alone};
use self::order::parse_level;
pub use self::order::{OrderArgs, print_order};
use self::repeat::check_repeatedly;
use crate::address::{BrokerUrl, InvalidAccess, Token};
use crate::agent::{AgentError, AgentOutcome, TransportError, converse};
use crate::delivery::TOKEN_VARIABLE;
use crate::device::Node;
use crate::driver::NoDriver;
#[cfg(feature = "cuda")]
use crate::driver::{NodeIdentity, Patience, open_node};
use crate::gang::{GangError, Ways, rails_of, take_part};
use crate::http::HttpBroker;
use crate::jws::Signer;
use crate::order::{BadOrder, MOST_GPUS};
use crate::reference::{DescriptionError, NodeDescription};

/// Exit status: the node passed.
pub const PASSED: u8 = 0;
/// Exit status: it did not, or the conversation could not be finished.
pub const NOT_PASSED: u8 = 1;
/// Exit status: the command makes no sense.
pub const WRONG_INPUT: u8 = 2;

/// The most runs of one command.
const MOST_RUNS: i64 = 10_000;

/// Arguments of `verifier run`.
#[derive(Debug, Clone, clap::Args)]
pub struct RunArgs {
    /// The broker to report to; without it the machine is checked on its own
    #[arg(long, value_name = "URL", requires = "verification")]
    broker: Option<BrokerUrl>,
    /// The verification that the broker opened
    #[arg(long, value_name = "ID", requires = "broker")]
    verification: Option<VerificationId>,
    /// A file with the one-time token; otherwise it is read from VERIFIER_TOKEN
    #[arg(long, value_name = "FILE", requires = "broker")]
    token_file: Option<PathBuf>,
    /// How long to try again for each step while the broker is not ready, in seconds; other machines of a rental
    /// may be much longer in coming up
    #[arg(long, default_value_t = 3_600, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    patience_seconds: u64,
    /// How long to wait for a fabric between the GPUs that is not ready yet, and where a broker waits also for
    /// their driver, in seconds
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(0..=3_600))]
    fabric_patience_seconds: u64,
    /// The description of a pretended node, which the CPU reference device then plays
    #[arg(long, value_name = "FILE", env = "SIMULATED_NODE")]
    simulated_node: Option<PathBuf>,
    /// The address by which the node's provider knows it; without it, that of the way to the broker
    #[arg(long, value_name = "ADDRESS", env = "VERIFIER_HOST")]
    host: Option<String>,
    /// Where this machine's /proc, /sys, /dev and /etc are, in a container that has them elsewhere
    #[arg(long, value_name = "DIRECTORY", default_value = "/")]
    root: PathBuf,
    /// How much to check on its own: quick, standard or deep; that of the order, and else standard
    #[arg(long, value_parser = parse_level, conflicts_with = "broker")]
    level: Option<Level>,
    /// The GPU that was sold, as `broker gpus` names it; without it, what the first one says that it is
    #[arg(long, value_name = "NAME", conflicts_with = "broker", value_parser = Gpu::parse)]
    gpu: Option<Gpu>,
    /// How many GPUs were sold; without it, as many as the machine shows
    #[arg(long, value_name = "N", conflicts_with = "broker", value_parser = clap::value_parser!(u32).range(1..=MOST_GPUS.into()))]
    gpus: Option<u32>,
    /// A verification order to carry out on its own, instead of that of the level
    #[arg(long, value_name = "FILE", conflicts_with_all = ["broker", "gpu", "gpus"])]
    order: Option<PathBuf>,
    /// Check the machine so many times on its own and print a line of JSON for each, with what was measured
    #[arg(long, value_name = "N", requires = "json", conflicts_with = "broker", value_parser = clap::value_parser!(u32).range(1..=MOST_RUNS))]
    repeat: Option<u32>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Why a run could not begin or end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No GPU that this build can drive.
    #[error(
        "this build drives no GPU; name a pretended node with --simulated-node or SIMULATED_NODE"
    )]
    NoDevice,
    /// The driver of the GPUs is missing or does not work. The message says why first, so that it is no
    /// source of its own.
    #[error(
        "{0}; install the driver, or start the container with its GPUs (--gpus all). A pretended node can be \
         named with --simulated-node or SIMULATED_NODE"
    )]
    NoDriver(NoDriver),
    /// The agent does not find its own file, which serves each GPU.
    #[error("the agent does not find its own file")]
    NoSelf(#[source] std::io::Error),
    /// The description of the pretended node is unusable.
    #[error(transparent)]
    Description(#[from] DescriptionError),
    /// A file cannot be read.
    #[error("cannot read {path}")]
    Unreadable {
        /// Its path.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no token, or it is none.
    #[error("set {TOKEN_VARIABLE} or --token-file to the token of the verification")]
    Token(#[from] InvalidAccess),
    /// The order is no verification order.
    #[error("the order is no verification order")]
    Order(#[source] serde_json::Error),
    /// The order is of another level than was asked for.
    #[error(
        "the order is of level `{}`, and --level says `{}`; leave --level out, or take an order of that level",
        of_order.as_str(),
        asked.as_str()
    )]
    OtherLevel {
        /// The order's.
        of_order: Level,
        /// The one that was asked for.
        asked: Level,
    },
    /// The order is one, and nobody can carry it out.
    #[error(transparent)]
    Impossible(#[from] BadOrder),
    /// The machine shows no GPU that is known, so there is nothing to compare it with.
    #[error("the machine shows no GPU that is known; say with --gpu and --gpus what was sold")]
    UnknownGpu,
    /// The result cannot be written as JSON.
    #[error("the result cannot be written")]
    Output(#[source] serde_json::Error),
    /// The conversation failed.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// The node could not be measured together with the others of its gang.
    #[error(transparent)]
    Gang(#[from] GangError),
}

impl RunError {
    /// The exit status that it leads to.
    #[must_use]
    pub const fn exit_status(&self) -> u8 {
        match self {
            Self::Agent(_) | Self::Gang(_) | Self::Output(_) => NOT_PASSED,
            _ => WRONG_INPUT,
        }
    }
}

/// What an agent needs for one verification.
#[derive(Debug)]
pub struct AgentArgs {
    /// Where the broker is.
    pub broker: BrokerUrl,
    /// The verification.
    pub verification_id: VerificationId,
    /// Its one-time token.
    pub token: Token,
    /// How long to try again for each step, and to wait for the other nodes of a gang.
    pub patience: Duration,
    /// The ways to the other nodes of a gang.
    pub ways: Ways,
}

/// The number of new starts of a conversation that the broker could not continue.
const NEW_BEGINNINGS: u32 = 8;

/// Verifies a node with a broker over HTTP, and then together with the others of its gang, where it is
/// asked to: the verdict is then that on the gang. A conversation that a restart of the broker cut in two is
/// begun again, under a fresh key.
///
/// Errors: [`RunError::Agent`], [`RunError::Gang`]; a verdict other than pass is none.
pub fn run_agent(args: AgentArgs, node: &mut Node) -> Result<AgentOutcome, RunError> {
    let AgentArgs {
        broker,
        verification_id,
        token,
        patience,
        ways,
    } = args;
    let mut broker = HttpBroker::new(broker, verification_id, token, patience);
    let mut begun_anew = 0;
    loop {
        let signer = Signer::from_seed(&rand::random());
        let outcome = match converse(node, verification_id, &signer, &mut broker) {
            Err(AgentError::Transport(TransportError::Interrupted { .. }))
                if begun_anew < NEW_BEGINNINGS =>
            {
                begun_anew += 1;
                continue;
            }
            ended => ended?,
        };
        if !outcome.gang {
            return Ok(outcome);
        }
        let key = signer
            .public_key()
            .to_agent_key()
            .map_err(AgentError::Signing)?;
        let gpus = node.surroundings.as_deref_mut();
        let gpus = gpus.map(|gpus| gpus as _);
        let mut tell = |line: &str| eprintln!("{line}");
        let verdict = take_part(&mut broker, &key, &ways, gpus, patience, &mut tell)?;
        return Ok(AgentOutcome { verdict, ..outcome });
    }
}

/// How the GPUs of a machine are opened.
type OpenGpus = fn(&RunArgs) -> Result<Node, RunError>;

/// Runs the command for a pretended node and prints its result. Gives the exit status.
#[must_use]
pub fn run(args: &RunArgs) -> u8 {
    run_with(args, |_| Err(RunError::NoDevice))
}

/// Runs the command for a pretended node, or else for the GPUs of this machine, as far as this build
/// can drive them, and prints its result. Gives the exit status.
///
/// The running file must know the command by which a GPU is served: it is started once more for each.
#[must_use]
pub fn run_on_this_machine(args: &RunArgs) -> u8 {
    #[cfg(feature = "cuda")]
    let open: OpenGpus = open_gpus;
    #[cfg(not(feature = "cuda"))]
    let open: OpenGpus = |_| Err(RunError::NoDevice);
    run_with(args, open)
}

#[cfg(feature = "cuda")]
fn open_gpus(args: &RunArgs) -> Result<Node, RunError> {
    let agent = std::env::current_exe().map_err(RunError::NoSelf)?;
    let identity = NodeIdentity {
        host: host(args),
        kind: crate::cuda::DEVICE_KIND,
        kernels: crate::cuda::images::kernels_digest(),
        root: args.root.clone(),
        patience: Patience {
            most: Duration::from_secs(args.fabric_patience_seconds),
            // The node may have just started. A check of one machine on its own reports it at once.
            for_driver: args.broker.is_some(),
        },
    };
    match open_node(&agent, identity.clone()) {
        // The waiting broker gets the reason why nothing comes.
        Err(no_driver) if args.broker.is_some() => Ok(identity.without_gpus(&no_driver)),
        // A driver that is there and does not work is judged like any other fault.
        Err(no_driver @ NoDriver::Refused { .. }) if alone::sold_or_ordered(args)?.is_said() => {
            Ok(identity.without_gpus(&no_driver))
        }
        opened => opened.map_err(RunError::NoDriver),
    }
}

/// The address of this machine on the way to the broker; nothing is sent to find it.
fn on_the_way(url: &BrokerUrl) -> Option<IpAddr> {
    let authority = url.as_str().split("//").nth(1)?.split('/').next()?;
    let with_port = match authority.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => authority.to_owned(),
        _ => format!("{authority}:443"),
    };
    // The broker may be reached by one of the two alone.
    ["0.0.0.0:0", "[::]:0"].into_iter().find_map(|any| {
        let socket = UdpSocket::bind(any).ok()?;
        socket.connect(&with_port).ok()?;
        Some(socket.local_addr().ok()?.ip())
    })
}

/// The address by which the broker finds the node of the lease.
#[cfg(feature = "cuda")]
fn host(args: &RunArgs) -> String {
    let given = args.host.clone();
    given
        .or_else(|| Some(on_the_way(args.broker.as_ref()?)?.to_string()))
        .unwrap_or_else(|| "localhost".to_owned())
}

fn run_with(args: &RunArgs, open: OpenGpus) -> u8 {
    let passed = match (&args.broker, args.verification) {
        (Some(broker), Some(verification_id)) => report_to(broker, verification_id, args, open),
        _ => match args.repeat {
            Some(runs) => check_repeatedly(args, runs, open),
            None => check_alone(args, open),
        },
    };
    match passed {
        Ok(true) => PASSED,
        Ok(false) => NOT_PASSED,
        Err(error) => {
            print_error(&error);
            error.exit_status()
        }
    }
}

/// Prints an error with its causes, in a line.
fn print_error(error: &dyn std::error::Error) {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        words = format!("{words}: {cause}");
        source = cause.source();
    }
    eprintln!("{words}");
}

fn node(args: &RunArgs, open: OpenGpus) -> Result<Node, RunError> {
    match args.simulated_node.as_deref() {
        Some(path) => Ok(NodeDescription::read(path)?.node()),
        None => open(args),
    }
}

fn read(path: &Path) -> Result<String, RunError> {
    std::fs::read_to_string(path).map_err(|source| RunError::Unreadable {
        path: path.display().to_string(),
        source,
    })
}

fn report_to(
    broker: &BrokerUrl,
    verification_id: VerificationId,
    args: &RunArgs,
    open: OpenGpus,
) -> Result<bool, RunError> {
    let text = match &args.token_file {
        Some(path) => read(path)?,
        None => std::env::var(TOKEN_VARIABLE).unwrap_or_default(),
    };
    let token: Token = text.trim().parse()?;
    let mut node = node(args, open)?;
    let usual = on_the_way(broker).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    // A pretended node's adapters are not this machine's.
    let nics = if node.simulated {
        &[]
    } else {
        node.nics.as_slice()
    };
    let agent = AgentArgs {
        ways: Ways {
            addresses: rails_of(&args.root, nics, usual),
            slow_to: node.slow_link_to,
        },
        broker: broker.clone(),
        verification_id,
        token,
        patience: Duration::from_secs(args.patience_seconds),
    };
    let AgentOutcome {
        verdict,
        attestation_id,
        ..
    } = run_agent(agent, &mut node)?;
    if args.json {
        let result = serde_json::json!({"verdict": verdict, "attestation_id": attestation_id});
        println!("{result}");
    } else {
        println!("{}: {verdict} ({attestation_id})", node.host);
    }
    Ok(verdict.is_pass())
}
