//! Every adapter keeps its contract against the twin that it speaks to.

use std::time::Duration;

use adapters::conformance::{Attachments, BrokenFront, ConformanceWorld, Outcome, run};
use async_trait::async_trait;
use chrono::{DateTime, Utc};
use market::order::{ClientToken, ProviderLeaseId};
use simulator::{Clock as _, Fault, FaultKind, Front, Operation};

use crate::bench::Bench;

/// The length of a mark, which a name may go on after.
const MARK_BYTES: usize = ClientToken::PREFIX.len() + 32;

#[async_trait]
impl ConformanceWorld for Bench {
    fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    fn takes_orders(&self) -> bool {
        true
    }

    async fn advance(&self, by: Duration) {
        // Whole seconds, as everything here counts them.
        self.clock.turn(by.as_secs_f64().ceil() as i64);
        self.simulator.tick();
    }

    async fn lose_next_reply(&self) -> bool {
        let fault = Fault::new(self.provider, FaultKind::ReplyLostAfterCreate);
        self.simulator
            .break_next(fault.on(Operation::Launch))
            .is_ok()
    }

    async fn put_front(&self, front: Option<BrokenFront>) -> bool {
        let front = front.map(|front| match front {
            BrokenFront::NotFoundPage => Front::NotFoundPage,
            BrokenFront::Gone => Front::Gone,
            BrokenFront::CredentialRefused => Front::CredentialRefused,
        });
        self.simulator.put_front(self.provider, front);
        true
    }

    async fn count_attachments(&self) -> Option<Attachments> {
        let things = self.simulator.things(self.provider);
        let is_marked = |name: &str| {
            let mark = name.get(..MARK_BYTES);
            mark.is_some_and(|mark| mark.parse::<ClientToken>().is_ok())
        };
        Some(Attachments {
            marked: things.iter().filter(|it| is_marked(&it.name)).count(),
            all: things.len(),
        })
    }

    async fn show_unknown_status(&self, id: &ProviderLeaseId) -> bool {
        self.simulator.show_unknown_state(&id.0).is_ok()
    }
}

#[tokio::test]
async fn every_adapter_keeps_its_contract_against_its_twin() {
    let benches = Bench::all().await;
    assert_eq!(benches.len(), adapters::registry::all().len());
    for bench in benches {
        let provider = bench.provider;
        let results = run(bench.adapter, &bench.http, &bench).await;
        let mut failed = Vec::new();
        for result in &results {
            match &result.outcome {
                Outcome::Passed => {}
                // What a world lacks is a gap in this one; what a provider lacks is not.
                Outcome::NotApplicable(why) if !why.contains("this world") => {
                    println!("{provider}: {}: {why}", result.check);
                }
                Outcome::NotApplicable(why) | Outcome::Failed(why) => {
                    failed.push(format!("{}: {why}", result.check));
                }
            }
        }
        assert!(failed.is_empty(), "{provider}: {failed:#?}");
        let running = bench.simulator.running_machines();
        assert!(running.is_empty(), "{provider}: {running:?}");
        bench.simulator.stop().await;
    }
}
