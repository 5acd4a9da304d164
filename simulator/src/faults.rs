//! Faults on command. A fault waits in the queue of its provider and operation until the next call that it
//! fits, in the order in which faults were given; a call meets at most one.

use std::collections::{BTreeMap, VecDeque};

use rust_decimal::Decimal;
use serde::{Deserialize, Serialize};

use crate::{Operation, Provider, SimulatorError};

/// The effect of a fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum FaultKind {
    /// The call is carried out, then the connection is closed without an answer: a machine is created and
    /// billed (launch), or ended (release), and the caller does not know.
    ReplyLostAfterCreate,
    /// The connection is closed without an answer and nothing was done.
    ReplyLostBeforeCreate,
    /// 200, and the machine never comes up: it gets the provider's word for that, and is listed and billed
    /// until it is released.
    AcceptedThenFailed,
    /// 200, and when the machine should come up there is none: it gets the provider's word for no capacity, or
    /// else for a failure, and is listed until it is released. It takes no room, and its bill ends there.
    LateNoCapacity,
    /// A machine that boots is not ended, in the provider's words. Spent on a machine that is up, it does
    /// nothing.
    CannotDeleteYet,
    /// 429.
    TooManyRequests {
        /// Sent as `Retry-After` when given.
        retry_after_seconds: Option<u32>,
    },
    /// 500.
    InternalError,
    /// 200, and the body ends in the middle of the price list.
    TruncatedJson,
    /// 200 with an empty price list.
    EmptyCatalog,
    /// Half of the price list is missing. Where it has pages, the first one is that half and the next ones
    /// answer 500 until the first is requested again.
    PartialCatalog,
    /// One more record in the price list, with the fields of the others and nothing in them that anybody can
    /// read.
    OddRecord,
    /// The price list names euros as its currency.
    OtherCurrency,
    /// The price changes as this call arrives, after any quote; it stays changed.
    PriceChange {
        /// The new list price, in the basis of the market file.
        price_usd_hour: Decimal,
    },
    /// The reference device of the machine's last node moves 0.4 of the bytes it should.
    SlowMemory,
    /// The machine's last node has one GPU fewer than sold.
    MissingGpu,
    /// The machine's last node has another GPU than sold; the API still reports the one that was sold.
    WrongModel,
    /// The machine's last node sends slowly to its second one, and to no other.
    SlowLink,
    /// The machine's last node is its first one again: it has no GPUs of its own.
    SameNodeTwice,
    /// The machine's last node shows the GPUs of an earlier node: the last one created before it with as many
    /// GPUs, at any provider.
    GpusOfBefore,
    /// A rental of one node fewer than asked for, which the API reports and bills.
    FewerNodes,
    /// No node of the machine runs its script.
    NeverCallsHome,
    /// No answer comes; the connection is closed after a minute or when the simulator stops.
    Hang,
}

impl FaultKind {
    /// Whether it is about the nodes of a machine and stays with them.
    pub(crate) const fn is_flaw(&self) -> bool {
        matches!(
            self,
            Self::SlowMemory
                | Self::SlowLink
                | Self::MissingGpu
                | Self::WrongModel
                | Self::NeverCallsHome
        )
    }

    /// The calls that it breaks by default.
    const fn usual_operation(&self) -> Operation {
        match self {
            Self::TruncatedJson
            | Self::EmptyCatalog
            | Self::PartialCatalog
            | Self::OddRecord
            | Self::OtherCurrency => Operation::Catalog,
            Self::CannotDeleteYet => Operation::Release,
            _ => Operation::Launch,
        }
    }

    fn refusal(&self, provider: Provider, operation: Operation) -> Option<&'static str> {
        let twin = provider.twin();
        let declared = twin.impossible.iter().find(|(kind, _)| kind == self);
        if let Some((_, why)) = declared {
            return Some(why);
        }
        match self {
            Self::ReplyLostBeforeCreate
            | Self::TooManyRequests { .. }
            | Self::InternalError
            | Self::Hang => None,
            Self::ReplyLostAfterCreate if operation == Operation::Release => None,
            _ if operation != self.usual_operation() => Some(match self.usual_operation() {
                Operation::Catalog => "it is about the price list",
                Operation::Release => "it is about a release",
                _ => "it is about a launch",
            }),
            Self::FewerNodes | Self::SlowLink | Self::SameNodeTwice if !twin.several_nodes => {
                Some("a launch there is one machine")
            }
            Self::OtherCurrency if !twin.has_currency => Some("prices there name no currency"),
            _ => None,
        }
    }
}

/// A pending fault.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The provider of the calls.
    pub provider: Provider,
    /// Its effect.
    pub kind: FaultKind,
    /// The calls that it breaks; by default the kind's own: the price list, a launch or a release.
    #[serde(default)]
    pub operation: Option<Operation>,
    /// Only a launch of this SKU (as [`crate::Row::key`] writes it), or any.
    #[serde(default)]
    pub sku: Option<String>,
    /// How many calls it breaks.
    #[serde(default = "once")]
    pub times: u32,
}

const fn once() -> u32 {
    1
}

impl Fault {
    /// A fault of the kind's usual call.
    #[must_use]
    pub const fn new(provider: Provider, kind: FaultKind) -> Self {
        Self {
            provider,
            kind,
            operation: None,
            sku: None,
            times: 1,
        }
    }

    /// The same fault on another call.
    #[must_use]
    pub const fn on(mut self, operation: Operation) -> Self {
        self.operation = Some(operation);
        self
    }

    /// The same fault for one SKU only.
    #[must_use]
    pub fn for_sku(mut self, sku: impl Into<String>) -> Self {
        self.sku = Some(sku.into());
        self
    }

    /// The same fault for this many calls.
    #[must_use]
    pub const fn times(mut self, times: u32) -> Self {
        self.times = times;
        self
    }
}

/// Faults that have not happened yet.
#[derive(Debug, Default)]
pub(crate) struct FaultQueue {
    waiting: BTreeMap<(Provider, Operation), VecDeque<Fault>>,
}

impl FaultQueue {
    pub(crate) fn add(&mut self, fault: Fault) -> Result<(), SimulatorError> {
        let Fault { provider, kind, .. } = &fault;
        let operation = fault.operation.unwrap_or_else(|| kind.usual_operation());
        let strayed = fault.sku.is_some() && operation != Operation::Launch;
        let refusal = kind.refusal(*provider, operation);
        if let Some(why) = refusal.or(strayed.then_some("only a launch names a SKU")) {
            return Err(SimulatorError::FaultDoesNotFit {
                provider: *provider,
                operation,
                kind: kind.clone(),
                why,
            });
        }
        if let FaultKind::PriceChange {
            price_usd_hour: price,
        } = *kind
        {
            let provider = *provider;
            let rules = &provider.twin().rows;
            rules
                .take_price(price)
                .map_err(|why| SimulatorError::Price {
                    provider,
                    price,
                    why,
                })?;
        }
        if fault.times > 0 {
            self.waiting
                .entry((*provider, operation))
                .or_default()
                .push_back(fault);
        }
        Ok(())
    }

    /// Drops the pending faults of a provider.
    pub(crate) fn drop_waiting(&mut self, provider: Provider) {
        self.waiting.retain(|(of, _), _| *of != provider);
    }

    /// Takes the fault of this call from the queue, once.
    pub(crate) fn take(
        &mut self,
        provider: Provider,
        operation: Operation,
        sku: Option<&str>,
    ) -> Option<FaultKind> {
        let queue = self.waiting.get_mut(&(provider, operation))?;
        let at = queue
            .iter()
            .position(|fault| fault.sku.is_none() || fault.sku.as_deref() == sku)?;
        let fault = &mut queue[at];
        let kind = fault.kind.clone();
        fault.times -= 1;
        if fault.times == 0 {
            queue.remove(at);
        }
        Some(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_come_in_the_order_given_and_as_often_as_said() {
        let mut queue = FaultQueue::default();
        queue
            .add(Fault::new(Provider::LAMBDA, FaultKind::InternalError).times(2))
            .unwrap();
        queue
            .add(Fault::new(Provider::LAMBDA, FaultKind::Hang))
            .unwrap();
        let mut next = || queue.take(Provider::LAMBDA, Operation::Launch, Some("gpu_1x_a10"));
        assert_eq!(next(), Some(FaultKind::InternalError));
        assert_eq!(next(), Some(FaultKind::InternalError));
        assert_eq!(next(), Some(FaultKind::Hang));
        assert_eq!(next(), None);
    }

    #[test]
    fn a_fault_waits_for_its_provider_its_operation_and_its_sku() {
        let mut queue = FaultQueue::default();
        queue
            .add(Fault::new(Provider::VOLTAGEPARK, FaultKind::Hang).on(Operation::List))
            .unwrap();
        queue
            .add(Fault::new(Provider::LAMBDA, FaultKind::SlowMemory).for_sku("gpu_1x_a10"))
            .unwrap();
        assert_eq!(queue.take(Provider::LAMBDA, Operation::List, None), None);
        assert_eq!(
            queue.take(Provider::VOLTAGEPARK, Operation::Launch, None),
            None
        );
        assert_eq!(
            queue.take(Provider::LAMBDA, Operation::Launch, Some("gpu_1x_gh200")),
            None
        );
        assert_eq!(
            queue.take(Provider::LAMBDA, Operation::Launch, Some("gpu_1x_a10")),
            Some(FaultKind::SlowMemory)
        );
        assert_eq!(
            queue.take(Provider::VOLTAGEPARK, Operation::List, None),
            Some(FaultKind::Hang)
        );
    }

    #[test]
    fn a_fault_that_cannot_happen_is_refused() {
        let mut queue = FaultQueue::default();
        assert!(
            queue
                .add(Fault::new(Provider::LAMBDA, FaultKind::FewerNodes))
                .is_err()
        );
        assert!(
            queue
                .add(Fault::new(Provider::LAMBDA, FaultKind::EmptyCatalog).on(Operation::Launch))
                .is_err()
        );
        let stray = Fault::new(Provider::LAMBDA, FaultKind::Hang).for_sku("gpu_1x_a10");
        assert!(queue.add(stray.on(Operation::List)).is_err());
        assert!(
            queue
                .add(Fault::new(Provider::LAMBDA, FaultKind::MissingGpu).on(Operation::Read))
                .is_err()
        );
        assert!(
            queue
                .add(
                    Fault::new(Provider::VOLTAGEPARK, FaultKind::ReplyLostAfterCreate)
                        .on(Operation::Release)
                )
                .is_ok()
        );
    }

    #[test]
    fn a_fault_is_read_from_json_with_its_defaults() {
        let fault: Fault = serde_json::from_str(
            r#"{"provider":"lambda","kind":{"too_many_requests":{"retry_after_seconds":3}}}"#,
        )
        .unwrap();
        assert_eq!(
            fault,
            Fault::new(
                Provider::LAMBDA,
                FaultKind::TooManyRequests {
                    retry_after_seconds: Some(3)
                }
            )
        );
        assert!(
            serde_json::from_str::<Fault>(r#"{"provider":"lambda","kind":"hang","when":"now"}"#)
                .is_err()
        );
    }
}
