//! Large messages of nodes that were refused because too many arrived at once.

use std::time::Duration;

use chrono::{TimeDelta, Utc};
use market::attestation::Verdict;
use market::ids::VerificationId;
use market::verification::Digest;
use store::Store;
use store::fixture::{execute_raw, for_each_database, statements_of};
use store::verifications::RefusedMessage;

use crate::support::at;
use crate::verifications::{node, opened, step};

/// A node that does not retry within this time is considered to have stopped. Long enough for a busy machine.
const AGAIN_WITHIN: Duration = Duration::from_secs(60);

const MESSAGE: Digest = Digest([1; 32]);
const LATER: Digest = Digest([2; 32]);

/// Nodes `one` and `two` of a lease, both expected to send step 5.
struct Nodes<'a> {
    store: &'a Store,
    id: VerificationId,
}

impl<'a> Nodes<'a> {
    async fn up(store: &'a Store) -> Self {
        let id = opened(store).await.verification;
        let all = store.verifications().across_tenants();
        for (index, agent) in [(0, "one"), (1, "two")] {
            let enrolled = all.enrol(id, &node(index, agent), at(10)).await;
            enrolled.expect("enrols");
        }
        let nodes = Self { store, id };
        nodes.advance(0, &step("one", 1, 4, None)).await;
        nodes.advance(1, &step("two", 1, 4, None)).await;
        nodes
    }

    async fn advance(&self, index: u32, step: &store::verifications::NodeStep) {
        let all = self.store.verifications().across_tenants();
        let kept = all.advance(self.id, index, step, at(11)).await;
        kept.expect("kept");
    }

    async fn refused(&self, agent: &str, message: (u8, Digest)) {
        let all = self.store.verifications().across_tenants();
        let refused = all.note_refusal((self.id, agent), message, AGAIN_WITHIN);
        let (refused, sent) = statements_of(refused).await;
        refused.expect("an answer");
        assert_eq!(sent.len(), 1, "{sent:#?}");
    }

    async fn noted(&self, agent: &str) -> Option<RefusedMessage> {
        let all = self.store.verifications().across_tenants();
        let row = all.node_by_key(self.id, agent).await.expect("reads");
        row.expect("it has enrolled").refused
    }

    /// Moves the first and last refusal on record this many seconds into the past.
    async fn set_back(&self, first: i64, last: i64) {
        let [first, last] = [first, last].map(|ago| {
            let at = Utc::now() - TimeDelta::seconds(ago);
            at.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
        });
        let set = format!(
            "UPDATE node_sessions SET refused_first_at = '{first}', refused_last_at = '{last}'
             WHERE refused_digest IS NOT NULL"
        );
        execute_raw(self.store, &set).await.expect("set");
    }

    /// For how many seconds node `one` has tried to send the message on record.
    async fn tried_for(&self) -> Option<u64> {
        let noted = self.noted("one").await.expect("it was refused");
        let all = self.store.verifications().across_tenants();
        let tried = all.tried_for(&noted, AGAIN_WITHIN).await;
        tried.expect("reads").map(|tried| tried.as_secs())
    }

    async fn assert_just_begun(&self, why: &str) {
        let tried = self.tried_for().await;
        assert!(tried.is_some_and(|tried| tried < 60), "{why}: {tried:?}");
    }
}

#[tokio::test]
async fn a_message_counts_from_its_first_refusal_for_as_long_as_its_node_comes_again() {
    for_each_database(async |store| {
        let nodes = Nodes::up(store).await;
        assert_eq!(nodes.noted("one").await, None);
        nodes.refused("one", (5, MESSAGE)).await;
        let first = nodes.noted("one").await.expect("noted");
        assert_eq!((first.digest, first.last_at), (MESSAGE, first.first_at));
        nodes.assert_just_begun("it was refused once").await;

        nodes.set_back(300, 20).await;
        nodes.refused("one", (5, MESSAGE)).await;
        let again = nodes.noted("one").await.expect("noted");
        let between = (again.last_at - again.first_at).num_seconds();
        assert!((300..500).contains(&between), "{again:?}");
        assert!(nodes.tried_for().await >= Some(300));

        nodes.set_back(300, 61).await;
        assert_eq!(nodes.tried_for().await, None, "it did something else");
        nodes.refused("one", (5, MESSAGE)).await;
        nodes.assert_just_begun("it began again").await;

        nodes.set_back(300, 20).await;
        nodes.refused("one", (5, LATER)).await;
        let later = nodes.noted("one").await.expect("noted");
        assert_eq!((later.digest, later.last_at), (LATER, later.first_at));
        nodes.assert_just_begun("it had another one").await;
        assert_eq!(nodes.noted("two").await, None);
    })
    .await;
}

#[tokio::test]
async fn only_a_message_of_the_step_that_is_awaited_is_noted_and_no_longer_than_that_is() {
    for_each_database(async |store| {
        let nodes = Nodes::up(store).await;
        for early_or_late in [4, 6] {
            nodes.refused("one", (early_or_late, MESSAGE)).await;
        }
        nodes.refused("nobody", (5, MESSAGE)).await;
        assert_eq!(nodes.noted("one").await, None);
        nodes.refused("one", (5, MESSAGE)).await;
        nodes.set_back(300, 20).await;
        let noted = nodes.noted("one").await;
        assert!(noted.is_some());
        nodes.refused("one", (6, LATER)).await;
        assert_eq!(nodes.noted("one").await, noted);

        nodes.advance(0, &step("one", 4, 5, None)).await;
        assert_eq!(nodes.noted("one").await, None, "it was taken");
        let over = step("two", 4, 4, Some(Verdict::Inconclusive));
        nodes.advance(1, &over).await;
        nodes.refused("two", (5, MESSAGE)).await;
        assert_eq!(nodes.noted("two").await, None, "it has its result");
    })
    .await;
}

#[tokio::test]
async fn refusals_of_a_node_that_come_fast_are_not_all_written() {
    for_each_database(async |store| {
        let nodes = Nodes::up(store).await;
        nodes.refused("one", (5, MESSAGE)).await;
        // In the future, so that it counts as just now on a machine of any load.
        nodes.set_back(-300, -300).await;
        let noted = nodes.noted("one").await;
        for digest in [MESSAGE, LATER] {
            nodes.refused("one", (5, digest)).await;
        }
        assert_eq!(nodes.noted("one").await, noted);
    })
    .await;
}
