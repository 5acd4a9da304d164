//! The suite that every adapter passes: against a simulated provider, and over recordings.
//!
//! It uses nothing but the contract, so it knows no provider. A trait gives it the world around an adapter
//! (time that passes, a reply that gets lost). A world that cannot do something makes the checks that need it
//! not applicable, with the reason.

mod catalog;
mod lease;

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::ids::LeaseId;
use market::machine::MachineRequest;
use market::offer::Offer;
use market::order::{ClientToken, LeaseOrder, LeaseRef, ProviderLeaseId};

use crate::adapter::{Adapter, Delivery};
use crate::http::Http;

/// The environment of an adapter under test.
#[async_trait]
pub trait ConformanceWorld: Send + Sync {
    /// The time in it.
    fn now(&self) -> DateTime<Utc>;

    /// Whether orders may be placed. A recording takes none.
    fn takes_orders(&self) -> bool;

    /// Lets time pass.
    async fn advance(&self, by: Duration);

    /// Makes the provider lose its next answer to an order after it made the thing.
    ///
    /// `false` when the world cannot do that.
    async fn lose_next_reply(&self) -> bool {
        false
    }

    /// Puts something in front of the provider that answers in its place, or removes it.
    ///
    /// `false` when the world cannot do that.
    async fn put_front(&self, _front: Option<BrokenFront>) -> bool {
        false
    }

    /// How many things the account holds beside machines: scripts, keys, disks. `None` when the world cannot
    /// count them.
    async fn count_attachments(&self) -> Option<Attachments> {
        None
    }

    /// Makes the provider show a status word for this lease that the adapter does not know.
    ///
    /// `false` when the world cannot do that.
    async fn show_unknown_status(&self, _id: &ProviderLeaseId) -> bool {
        false
    }
}

/// Numbers of things beside machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attachments {
    /// Those whose name begins with the mark of an order.
    pub marked: usize,
    /// All of them, those that orders share among them.
    pub all: usize,
}

/// Things that may answer in place of a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BrokenFront {
    /// A gateway that answers 404 with a page in HTML.
    NotFoundPage,
    /// A gateway that answers 410.
    Gone,
    /// A gateway that refuses the credential.
    CredentialRefused,
}

impl BrokenFront {
    /// Each of them.
    pub const ALL: [Self; 3] = [Self::NotFoundPage, Self::Gone, Self::CredentialRefused];
}

/// How a check ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The promise was kept.
    Passed,
    /// It was broken, in words.
    Failed(String),
    /// The world cannot bring the case about, or the provider lacks the capability.
    NotApplicable(String),
}

/// One promise of the contract and the result of its check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    /// The promise as a sentence, with `_` between its words.
    pub check: &'static str,
    /// How it ended.
    pub outcome: Outcome,
}

/// Why a check did not pass.
enum Flaw {
    Broken(String),
    NotApplicable(String),
}

type Verdict = Result<(), Flaw>;

fn broken<T>(why: impl Into<String>) -> Result<T, Flaw> {
    Err(Flaw::Broken(why.into()))
}

fn not_applicable<T>(why: impl Into<String>) -> Result<T, Flaw> {
    Err(Flaw::NotApplicable(why.into()))
}

impl From<crate::AdapterError> for Flaw {
    fn from(error: crate::AdapterError) -> Self {
        Self::Broken(error.to_string())
    }
}

/// An adapter, its connection and the world around both.
struct Bench<'a> {
    adapter: &'a dyn Adapter,
    http: &'a Http,
    world: &'a dyn ConformanceWorld,
}

impl Bench<'_> {
    /// The lease of an order, by the id that the provider gave it.
    fn lease(&self, order: &LeaseOrder, id: &ProviderLeaseId) -> LeaseRef {
        LeaseRef {
            id: id.clone(),
            client_token: order.client_token.clone(),
            region: order.offer.place.region.clone(),
        }
    }

    /// An order under a mark of its own.
    fn order(&self, offer: &Offer, nodes: u32) -> LeaseOrder {
        let lease = uuid::Builder::from_random_bytes(rand::random()).into_uuid();
        LeaseOrder {
            client_token: ClientToken::of(LeaseId::from_uuid(lease)),
            offer: offer.clone(),
            nodes,
            machine: MachineRequest::default(),
            ssh_public_keys: vec![SSH_KEY.to_owned()],
            startup_script: match self.adapter.delivery(offer) {
                Delivery::SshPush => String::new(),
                _ => "#!/bin/sh\n:\n".to_owned(),
            },
        }
    }
}

/// A mark of nobody's.
fn nobody() -> ClientToken {
    ClientToken::of(LeaseId::from_uuid(uuid::Uuid::nil()))
}

/// A public key without a private one: its material is all zeros.
const SSH_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA conformance";

/// Runs every check, in an order in which each one finds the account as empty as the first.
///
/// Afterwards nothing that the suite ordered is still running, unless a check failed.
pub async fn run(
    adapter: &dyn Adapter,
    http: &Http,
    world: &dyn ConformanceWorld,
) -> Vec<CheckResult> {
    let bench = Bench {
        adapter,
        http,
        world,
    };
    let mut results = Vec::new();
    let mut note = |check, verdict: Verdict| {
        let outcome = match verdict {
            Ok(()) => Outcome::Passed,
            Err(Flaw::Broken(why)) => Outcome::Failed(why),
            Err(Flaw::NotApplicable(why)) => Outcome::NotApplicable(why),
        };
        results.push(CheckResult { check, outcome });
    };
    note(
        "the_catalogue_is_read_whole",
        catalog::is_read_whole(&bench).await,
    );
    note(
        "every_offer_is_sound",
        catalog::offers_are_sound(&bench).await,
    );
    note(
        "offers_keep_to_what_the_profile_declares",
        catalog::offers_keep_to_the_profile(&bench).await,
    );
    note(
        "ids_are_the_same_in_a_second_reading",
        catalog::ids_are_stable(&bench).await,
    );
    note(
        "what_is_absent_is_not_found_and_can_be_released",
        lease::absent_is_absent(&bench).await,
    );
    note(
        "an_order_lives_from_request_to_gone",
        lease::lives(&bench).await,
    );
    note(
        "one_order_takes_several_nodes_where_declared",
        lease::takes_several_nodes(&bench).await,
    );
    note(
        "a_hopeless_order_is_refused_and_makes_nothing",
        lease::hopeless_order_is_refused(&bench).await,
    );
    note(
        "an_order_with_too_many_nodes_is_never_sent",
        lease::too_many_nodes(&bench).await,
    );
    note(
        "a_lost_reply_is_unknown_and_found_by_its_mark",
        lease::lost_reply_is_found(&bench).await,
    );
    note(
        "what_a_broken_front_says_of_a_lease_is_an_error",
        lease::broken_fronts_say_nothing(&bench).await,
    );
    note(
        "an_unknown_status_means_pending",
        lease::unknown_status_is_pending(&bench).await,
    );
    note(
        "nothing_made_beside_a_machine_is_left",
        lease::nothing_is_left(&bench).await,
    );
    results
}
