//! Deletion of old rows, and what prevents it.

use chrono::{DateTime, TimeDelta, Utc};
use market::event::EventType;
use market::ids::{TenantId, WebhookEndpointId};
use market::offer::Availability;
use serde_json::json;
use store::Store;
use store::events::{EventFilter, NewEvent};
use store::fixture::{count_rows, execute_raw, for_each_database};
use store::webhooks::{NewAttempt, NewWebhookEndpoint, Outcome};
use uuid::Uuid;

use crate::support::{at, hold, offer, quote_at, sell, tenant, token};

fn day(number: i64) -> DateTime<Utc> {
    at(number * 86_400)
}

/// One event a day, from day 1 on.
async fn happen(store: &Store, tenant: TenantId, days: i64) {
    for number in 1..=days {
        let new = NewEvent {
            kind: EventType::WebhookTest,
            reservation_id: None,
            data: json!({ "day": number }),
        };
        let events = store.events().of(tenant);
        events.append(&[new], day(number)).await.expect("appended");
    }
}

async fn endpoint(store: &Store, tenant: TenantId) -> WebhookEndpointId {
    let new = NewWebhookEndpoint {
        id: WebhookEndpointId::from_uuid(Uuid::now_v7()),
        url: "https://example.com/".to_owned(),
        description: String::new(),
        event_types: Vec::new(),
        enabled: true,
        sealed_secret: b"sealed".to_vec(),
    };
    let endpoints = store.webhook_endpoints().of(tenant);
    endpoints.add(new, at(0), None).await.expect("added").id
}

async fn numbers(store: &Store, tenant: TenantId) -> Vec<u64> {
    let events = store.events().of(tenant);
    let kept = events.list(&EventFilter::default(), 100).await;
    let kept = kept.expect("reads").into_iter();
    kept.map(|event| event.sequence).collect()
}

#[tokio::test]
async fn old_events_go_in_the_order_of_their_numbers_and_leave_a_horizon() {
    for_each_database(async |store| {
        let (acme, other) = (
            tenant(store, "acme").await.0,
            tenant(store, "other").await.0,
        );
        happen(store, acme, 5).await;
        happen(store, other, 2).await;
        let retention = store.retention();
        let prune = async |before| retention.prune_events(acme, day(before), 2).await;
        assert_eq!(prune(1).await.expect("prunes"), 0);
        assert_eq!(prune(4).await.expect("prunes"), 2);
        assert_eq!(prune(4).await.expect("prunes"), 1);
        assert_eq!(prune(4).await.expect("prunes"), 0);
        assert_eq!(numbers(store, acme).await, [4, 5]);
        assert_eq!(numbers(store, other).await, [1, 2]);
        let mine = store.events().of(acme);
        assert_eq!(mine.horizon().await.expect("reads"), 3);
        // No other way deletes a row that is kept.
        let refusal = execute_raw(store, "DELETE FROM events").await;
        assert!(refusal.expect_err("refused").contains("append-only"));
        let refusal = execute_raw(store, "UPDATE events SET sequence = sequence").await;
        assert!(refusal.expect_err("refused").contains("append-only"));
        // All may be deleted, and numbering continues.
        assert_eq!(prune(9).await.expect("prunes"), 2);
        assert_eq!(mine.last_sequence().await.expect("reads"), 5);
        happen(store, acme, 1).await;
        assert_eq!(numbers(store, acme).await, [6]);
        let mut known = retention.tenants_with_events().await.expect("reads");
        known.sort();
        let mut both = vec![acme, other];
        both.sort();
        assert_eq!(known, both);
    })
    .await;
}

#[tokio::test]
async fn a_delivery_keeps_its_event_and_goes_once_it_is_over() {
    for_each_database(async |store| {
        let acme = tenant(store, "acme").await.0;
        let endpoint = endpoint(store, acme).await;
        happen(store, acme, 3).await;
        let deliveries = store.deliveries();
        let claimed = deliveries.claim(endpoint, token(), day(3), 60, 9).await;
        let claimed = claimed.expect("claims");
        let attempt = NewAttempt {
            at: day(3),
            status: Some(200),
            ..NewAttempt::default()
        };
        // The first is delivered, the second retried on day 20, the third still claimed by a worker.
        let later = Outcome::Again(day(20));
        for (one, outcome) in claimed.iter().zip([Outcome::Delivered, later]) {
            let patience = TimeDelta::days(5);
            let done = deliveries.record(one, &attempt, outcome, patience, day(3));
            done.await.expect("recorded");
        }
        let retention = store.retention();
        let let_go = async |before| retention.prune_deliveries(before, 1).await;
        assert_eq!(let_go(day(1)).await.expect("prunes"), 0);
        let in_hand = day(3) + TimeDelta::seconds(30);
        assert_eq!(let_go(in_hand).await.expect("prunes"), 1);
        assert_eq!(let_go(in_hand).await.expect("prunes"), 0);
        assert_eq!(count_rows(store, "webhook_attempts").await, 1);
        let events = retention.prune_events(acme, day(10), 9).await;
        assert_eq!(events.expect("prunes"), 1, "the second keeps the third");
        assert_eq!(numbers(store, acme).await, [2, 3]);
        // No worker tried them any more.
        assert_eq!(let_go(day(21)).await.expect("prunes"), 1);
        assert_eq!(let_go(day(21)).await.expect("prunes"), 1);
        assert_eq!(count_rows(store, "webhook_attempts").await, 0);
        let events = retention.prune_events(acme, day(10), 9).await;
        assert_eq!(events.expect("prunes"), 2);
    })
    .await;
}

#[tokio::test]
async fn lapsed_quotes_go_with_their_plans_and_taken_ones_stay() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(10));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let whose = tenant(store, "acme").await;
        // The oldest is taken and stays for good.
        let taken = hold(store, whose, &offer, 1, at(1)).await.expect("a hold");
        let mut made = Vec::new();
        for number in 1..=3 {
            made.push(quote_at(store, whose.0, &offer, 1, day(number)).await);
        }
        let retention = store.retention();
        let quotes = async |before| retention.prune_quotes(before, 1).await.expect("prunes");
        let plans = async |before| retention.prune_plans(before, 1).await.expect("prunes");
        assert_eq!(plans(day(9)).await, 0, "their quotes keep them");
        let lapses = made[0].expires_at;
        assert_eq!(quotes(lapses).await, 0);
        assert_eq!(quotes(day(3)).await, 1);
        assert_eq!(quotes(day(3)).await, 1);
        assert_eq!(quotes(day(3)).await, 0, "the third stands yet");
        assert_eq!(plans(day(1)).await, 0);
        assert_eq!(plans(day(9)).await, 1);
        assert_eq!(plans(day(9)).await, 1);
        assert_eq!(plans(day(9)).await, 0, "the third is quoted yet");
        let (kept_quotes, kept_plans) = (store.quotes().of(whose.0), store.plans().of(whose.0));
        for (quote, plan, kept) in [
            (taken.quote_id, taken.plan_id, true),
            (made[0].id, made[0].plan_id, false),
            (made[1].id, made[1].plan_id, false),
            (made[2].id, made[2].plan_id, true),
        ] {
            let quote = kept_quotes.find(quote).await.expect("reads");
            let plan = kept_plans.find(plan).await.expect("reads");
            assert_eq!((quote.is_some(), plan.is_some()), (kept, kept));
        }
    })
    .await;
}

#[tokio::test]
async fn of_plans_and_lapsed_quotes_a_tenant_keeps_the_newest() {
    for_each_database(async |store| {
        let offer = offer("a", Availability::exactly(10));
        sell(store, std::slice::from_ref(&offer), at(0)).await;
        let (acme, other) = (tenant(store, "acme").await, tenant(store, "other").await);
        let taken = hold(store, acme, &offer, 1, at(1)).await.expect("a hold");
        let mut of_acme = Vec::new();
        for number in 1..=5 {
            of_acme.push(quote_at(store, acme.0, &offer, 1, day(number)).await);
            if number < 3 {
                quote_at(store, other.0, &offer, 1, day(number)).await;
            }
        }
        let retention = store.retention();
        let surplus = async |keep| {
            retention
                .tenants_with_surplus(day(0), keep)
                .await
                .expect("reads")
        };
        assert_eq!(surplus(6).await, []);
        assert_eq!(
            surplus(5).await,
            [acme.0],
            "six plans, five quotes that nobody took"
        );
        assert_eq!(surplus(1).await.len(), 2);
        let quotes = async |now, keep| {
            let gone = retention.prune_surplus_quotes(acme.0, now, keep, 2).await;
            gone.expect("prunes")
        };
        let plans = async |before, keep| {
            let time = (day(0), before);
            let gone = retention.prune_surplus_plans(acme.0, time, keep, 2).await;
            gone.expect("prunes")
        };
        assert_eq!(plans(day(9), 1).await, 0, "their quotes keep them");
        assert_eq!(quotes(day(1), 1).await, 0, "none has lapsed");
        // Of the four that have lapsed the two newest stay.
        let now = of_acme[3].expires_at + TimeDelta::seconds(1);
        assert_eq!(quotes(now, 4).await, 0);
        assert_eq!(quotes(now, 3).await, 1);
        assert_eq!(quotes(now, 2).await, 1);
        assert_eq!(quotes(now, 2).await, 0);
        // The first of six plans was reserved from, and the next two have no quote left.
        assert_eq!(plans(day(1), 1).await, 0, "both are young");
        assert_eq!(plans(day(9), 5).await, 0);
        assert_eq!(plans(day(9), 4).await, 1);
        assert_eq!(plans(day(9), 4).await, 0);
        assert_eq!(plans(day(9), 3).await, 1);
        assert_eq!(quotes(day(9), 1).await, 2, "a batch");
        assert_eq!(quotes(day(9), 1).await, 0);
        assert_eq!(plans(day(9), 1).await, 2);
        let kept = (store.quotes().of(acme.0), store.plans().of(acme.0));
        let last = &of_acme[4];
        for (quote, plan) in [(taken.quote_id, taken.plan_id), (last.id, last.plan_id)] {
            assert!(kept.0.find(quote).await.expect("reads").is_some());
            assert!(kept.1.find(plan).await.expect("reads").is_some());
        }
        assert_eq!(count_rows(store, "quotes").await, 4, "two of the other's");
        assert_eq!(count_rows(store, "plans").await, 4);
    })
    .await;
}
