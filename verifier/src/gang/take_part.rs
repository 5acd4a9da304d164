//! The agent's part: it listens, asks the broker for work, measures, and reports its results.

use std::io;
use std::net::IpAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use market::attestation::Verdict;
use market::verification::{
    AgentKey, GATHERS, GOES_ON, GangAnswer, GangCall, Measure, Round, RoundDone, Shown,
};

use super::addresses::interfaces_of;
use super::links::Listener;
use crate::device::{Surroundings, shortened};

/// The longest pause that a broker may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long the library for sums over several nodes may take to report its version.
const LOADING: Duration = Duration::from_secs(30);

/// Why a node could not take part to the end.
#[derive(Debug, thiserror::Error)]
pub enum GangError {
    /// It cannot be reached by the others.
    #[error("the node cannot listen for the others of its gang")]
    Deaf(#[source] io::Error),
    /// The broker refused the call.
    #[error("the broker refused the gang's call with status {status}: {detail}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The broker's explanation.
        detail: String,
    },
    /// The broker was unreachable for the whole time allowed.
    #[error("the broker did not take the gang's call in time; the last attempt ended with: {0}")]
    GaveUp(String),
    /// The other nodes did not connect.
    #[error("the other nodes of the gang did not come within {0} seconds")]
    Alone(u64),
    /// A message does not have the expected form.
    #[error("the broker's answer to the gang's call does not have the expected form")]
    Form(#[from] serde_json::Error),
}

/// Carries a gang's calls to the broker and its answers back.
pub trait GangLine {
    /// Sends a call's JSON and gives the JSON of the answer.
    ///
    /// Errors: [`GangError::Refused`], [`GangError::GaveUp`].
    fn call(&mut self, body: &str) -> Result<String, GangError>;
}

/// A node's links to the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ways {
    /// The addresses at which the others reach it, each with the name of its adapter.
    pub addresses: Vec<(String, IpAddr)>,
    /// The node to which a simulated one has a bad link.
    pub slow_to: Option<u32>,
}

/// Measures with the other nodes until the broker has judged the gang.
///
/// `gpus` are the node's, for sums over those of all nodes. `patience` is how long it waits for the others
/// between two rounds. For nodes of other orders it waits for as long as the broker asks, and calls `tell`
/// when it begins to wait and when it goes on.
/// Errors: [`GangError`]; neither a verdict other than pass nor a failed round is an error.
pub fn take_part(
    line: &mut dyn GangLine,
    agent_key: &AgentKey,
    ways: &Ways,
    mut gpus: Option<&mut dyn Surroundings>,
    patience: Duration,
    tell: &mut dyn FnMut(&str),
) -> Result<Verdict, GangError> {
    let listener = Listener::open(&ways.addresses).map_err(GangError::Deaf)?;
    let listener = listener.with_slow_link(ways.slow_to);
    let mut call = GangCall {
        agent_key: agent_key.clone(),
        rails: listener.rails().to_vec(),
        nccl: gpus.as_deref_mut().and_then(|gpus| {
            let over = interfaces_of(&ways.addresses);
            gpus.nccl_part(&over, Instant::now() + LOADING)
        }),
        done: None,
    };
    let mut waited = Duration::ZERO;
    let mut gathers = false;
    loop {
        let answer = line.call(&serde_json::to_string(&call)?)?;
        let answer = serde_json::from_str(&answer)?;
        let is_over = matches!(answer, GangAnswer::Over { .. });
        let now_gathers = matches!(answer, GangAnswer::Gather { .. });
        if now_gathers != gathers && !is_over {
            tell(if now_gathers { GATHERS } else { GOES_ON });
            gathers = now_gathers;
        }
        match answer {
            GangAnswer::Over { verdict } => return Ok(verdict),
            GangAnswer::Gather { after_ms } => {
                sleep(Duration::from_millis(after_ms).min(LONGEST_PAUSE));
            }
            GangAnswer::Wait { after_ms } => {
                let pause = Duration::from_millis(after_ms).min(LONGEST_PAUSE);
                waited += pause;
                if waited > patience {
                    return Err(GangError::Alone(patience.as_secs()));
                }
                sleep(pause);
            }
            GangAnswer::Measure { round } => {
                waited = Duration::ZERO;
                call.done = Some(RoundDone {
                    round: round.number,
                    shown: match gpus.as_deref_mut() {
                        Some(gpus) => measure(&listener, gpus, &round),
                        None => listener.measure(&round),
                    },
                });
            }
        }
    }
}

fn measure(listener: &Listener, gpus: &mut dyn Surroundings, round: &Round) -> Shown {
    let deadline = Instant::now() + Duration::from_millis(round.within_ms);
    let shown = match &round.measure {
        Measure::NcclId => gpus.nccl_id(deadline).map(|id| Shown::NcclId { id }),
        Measure::NcclSum(sum) => gpus.nccl_sum(sum, deadline).map(|rate| Shown::NcclSum {
            algorithm: rate.algorithm,
            gpus: sum.gpus,
            repeats_us: rate.repeats_us,
            wrong_words: rate.wrong_words,
        }),
        Measure::Pair { .. } | Measure::Ring { .. } => return listener.measure(round),
    };
    shown.unwrap_or_else(|why| Shown::Failed {
        why: shortened(&why),
    })
}
