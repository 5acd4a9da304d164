//! An account at a provider that keeps every promise but one.

use std::sync::Mutex;
use std::time::Duration;

use adapters::conformance::{Attachments, BrokenFront, ConformanceWorld};
use adapters::providers::lambda::Lambda;
use adapters::{Adapter, AdapterError, Capability, Http, NodesPerLease, Profile, Refusal, Release};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::catalog::{CatalogReading, Unread};
use market::ids::OfferId;
use market::money::Money;
use market::offer::{Availability, Offer, Terms};
use market::order::{
    Attachment, ClientToken, LeaseOrder, LeaseRef, ProviderLease, ProviderLeaseId,
    ProviderLeaseState as State, ProviderNode,
};

use crate::recorded::{now, recorded};

/// The defect of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Defect {
    None,
    CutShort,
    SameIdTwice,
    NewIds,
    Spot,
    CountsDespiteProfile,
    LeavesAScript,
    ListsNoScripts,
    MarksNoScript,
    ReleaseOfAbsentFails,
    ReleaseOfAbsentIsAccepted,
    BelievesFronts,
    NeverReleases,
    ForgetsTheMark,
    OtherModel,
    FewerNodes,
    TakesAnything,
    RefusalIsUnknown,
    TakesTooMany,
    LostReplyIsRefusal,
    UnknownStatusIsRunning,
}

/// An account at a provider that keeps every promise but one.
pub struct Account {
    defect: Defect,
    pub state: Mutex<Ledger>,
}

#[derive(Default)]
pub struct Ledger {
    time: Duration,
    readings: u32,
    lose_reply: bool,
    strange_status: bool,
    front: Option<BrokenFront>,
    /// Made before each order, by its mark.
    scripts: Vec<ClientToken>,
    pub leases: Vec<(ProviderLease, Duration)>,
}

const PROFILE: Profile = Profile {
    id: "account",
    name: "An account",
    default_base_url: "https://cloud.example.com",
    nodes_per_lease: NodesPerLease::Rental { max: 4 },
    unsupported: &[
        (Capability::Spot, "an account of the suite has none"),
        (Capability::FreeCount, "an account of the suite says none"),
    ],
    freshness_limit: Duration::from_secs(60),
    poll_interval: Duration::from_secs(30),
    call_spacing: Duration::ZERO,
    order_spacing: Duration::ZERO,
    ..Profile::REST
};

impl Account {
    pub fn new(defect: Defect) -> Self {
        Self {
            defect,
            state: Mutex::default(),
        }
    }

    fn refused() -> AdapterError {
        AdapterError::Refused {
            refusal: Refusal::Request,
            status: 404,
            message: "no such thing".into(),
        }
    }

    /// Fails while something is in front, unless the account trusts its answer.
    fn pass(&self) -> Result<(), AdapterError> {
        match self.state.lock().expect("no panic").front {
            Some(_) if self.defect != Defect::BelievesFronts => Err(Self::refused()),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl ConformanceWorld for Account {
    fn now(&self) -> DateTime<Utc> {
        now() + self.state.lock().expect("no panic").time
    }

    fn takes_orders(&self) -> bool {
        true
    }

    async fn advance(&self, by: Duration) {
        self.state.lock().expect("no panic").time += by;
    }

    async fn lose_next_reply(&self) -> bool {
        self.state.lock().expect("no panic").lose_reply = true;
        true
    }

    async fn put_front(&self, front: Option<BrokenFront>) -> bool {
        self.state.lock().expect("no panic").front = front;
        true
    }

    async fn count_attachments(&self) -> Option<Attachments> {
        let state = self.state.lock().expect("no panic");
        let all = state.scripts.len();
        let marked = match self.defect {
            Defect::MarksNoScript => 0,
            _ => all,
        };
        Some(Attachments { marked, all })
    }

    async fn show_unknown_status(&self, _id: &ProviderLeaseId) -> bool {
        self.state.lock().expect("no panic").strange_status = true;
        true
    }
}

#[async_trait]
impl Adapter for Account {
    fn profile(&self) -> &'static Profile {
        &PROFILE
    }

    async fn read_catalog(
        &self,
        _http: &Http,
        now: DateTime<Utc>,
    ) -> Result<CatalogReading, AdapterError> {
        let reading = {
            let mut state = self.state.lock().expect("no panic");
            state.readings += 1;
            state.readings
        };
        let template = Lambda
            .read_catalog(&recorded("lambda", "catalog"), now)
            .await?
            .offers;
        let offer = |sku: &str| Offer {
            offer_id: OfferId::of_identity(&[
                if self.defect == Defect::SameIdTwice {
                    "same"
                } else {
                    sku
                },
                &if self.defect == Defect::NewIds {
                    reading.to_string()
                } else {
                    String::new()
                },
            ]),
            provider: PROFILE.provider_id(),
            sku: sku.into(),
            terms: if self.defect == Defect::Spot {
                Terms::Spot
            } else {
                Terms::OnDemand
            },
            price_per_node_hour: Money::usd_units(1_000_000_000),
            availability: if self.defect == Defect::CountsDespiteProfile {
                Availability::exactly(3)
            } else {
                Availability::PRESENT
            },
            ..template[0].clone()
        };
        Ok(CatalogReading {
            provider: PROFILE.provider_id(),
            read_at: now,
            offers: vec![offer("one"), offer("two")],
            skipped: Vec::new(),
            unread: match self.defect {
                Defect::CutShort => Unread::Rest,
                _ => Unread::Nothing,
            },
        })
    }

    async fn request_lease(
        &self,
        _http: &Http,
        order: &LeaseOrder,
    ) -> Result<ProviderLease, AdapterError> {
        let mut state = self.state.lock().expect("no panic");
        if order.nodes > PROFILE.nodes_per_lease.max() && self.defect != Defect::TakesTooMany {
            return Err(AdapterError::CannotOrder("too many".into()));
        }
        state.scripts.push(order.client_token.clone());
        if !["one", "two"].contains(&order.offer.sku.as_str())
            && self.defect != Defect::TakesAnything
        {
            return Err(match self.defect {
                Defect::RefusalIsUnknown => AdapterError::OutcomeUnknown {
                    how: "?".into(),
                    source: None,
                },
                _ => Self::refused(),
            });
        }
        let nodes = order.nodes - u32::from(self.defect == Defect::FewerNodes);
        let lease = ProviderLease {
            name: (self.defect != Defect::ForgetsTheMark).then(|| order.client_token.to_string()),
            sku: Some(if self.defect == Defect::OtherModel {
                "other".into()
            } else {
                order.offer.sku.clone()
            }),
            node_count: Some(nodes),
            ..ProviderLease::new(format!("l-{}", state.leases.len()), State::Pending, "made")
        };
        let ready = state.time + Duration::from_secs(300);
        state.leases.push((lease.clone(), ready));
        if std::mem::take(&mut state.lose_reply) {
            return Err(match self.defect {
                Defect::LostReplyIsRefusal => Self::refused(),
                _ => AdapterError::OutcomeUnknown {
                    how: "lost".into(),
                    source: None,
                },
            });
        }
        Ok(lease)
    }

    async fn list_leases(&self, _http: &Http) -> Result<Vec<ProviderLease>, AdapterError> {
        self.pass()?;
        Ok(self
            .state
            .lock()
            .expect("no panic")
            .leases
            .iter()
            .map(|(lease, _)| lease.clone())
            .collect())
    }

    async fn read_lease(
        &self,
        _http: &Http,
        lease: &LeaseRef,
    ) -> Result<Option<ProviderLease>, AdapterError> {
        let id = &lease.id;
        self.pass()?;
        let mut state = self.state.lock().expect("no panic");
        let (time, strange) = (state.time, state.strange_status);
        let Some((lease, ready)) = state.leases.iter_mut().find(|(lease, _)| lease.id == *id)
        else {
            return Ok(None);
        };
        if lease.state == State::Pending && time >= *ready {
            lease.state = State::Running;
            let node = |n| ProviderNode {
                host: format!("10.0.0.{n}"),
                port: 22,
                user: "u".into(),
                private_address: None,
            };
            lease.nodes = (0..lease.node_count.unwrap_or(0)).map(node).collect();
        }
        if strange && self.defect == Defect::UnknownStatusIsRunning {
            return Ok(Some(ProviderLease {
                state: State::Running,
                ..lease.clone()
            }));
        }
        Ok(Some(lease.clone()))
    }

    async fn release_lease(&self, _http: &Http, lease: &LeaseRef) -> Result<Release, AdapterError> {
        let id = &lease.id;
        self.pass()?;
        let mut state = self.state.lock().expect("no panic");
        match state.leases.iter().position(|(lease, _)| lease.id == *id) {
            Some(at) if self.defect != Defect::NeverReleases => {
                state.leases.remove(at);
                state.strange_status = false;
                Ok(Release::Accepted)
            }
            Some(_) => Ok(Release::Accepted),
            None if self.defect == Defect::ReleaseOfAbsentFails => Err(Self::refused()),
            None if self.defect == Defect::ReleaseOfAbsentIsAccepted => Ok(Release::Accepted),
            None => Ok(Release::NotShown),
        }
    }

    async fn list_attachments(&self, _http: &Http) -> Result<Vec<Attachment>, AdapterError> {
        if matches!(self.defect, Defect::ListsNoScripts | Defect::MarksNoScript) {
            return Ok(Vec::new());
        }
        let state = self.state.lock().expect("no panic");
        let script = |token: &ClientToken| Attachment {
            kind: "scripts".into(),
            id: token.to_string(),
            region: None,
            client_token: token.clone(),
        };
        Ok(state.scripts.iter().map(script).collect())
    }

    async fn remove_attachment(
        &self,
        _http: &Http,
        attachment: &Attachment,
    ) -> Result<(), AdapterError> {
        if self.defect != Defect::LeavesAScript {
            let mut state = self.state.lock().expect("no panic");
            state
                .scripts
                .retain(|token| *token != attachment.client_token);
        }
        Ok(())
    }
}
