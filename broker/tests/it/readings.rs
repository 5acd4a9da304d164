//! Readings of catalogues: one odd record keeps back its own offers and no other.

use broker::flow::ingest;
use market::catalog::{CatalogReading, SkipReason, Skipped, Unread};
use market::identity::Role;
use market::ids::{OfferId, ProviderId};
use market::offer::Offer;
use serde_json::json;

use crate::service::Service;

#[tokio::test(flavor = "multi_thread")]
async fn one_odd_record_takes_nothing_else_off_the_market_and_is_named() {
    let service = Service::start().await;
    let (world, broker) = (&service.world, service.world.broker());
    let acme = ProviderId::parse("acme").expect("an id");
    let known = broker.store().providers().ensure(&acme, broker.now()).await;
    known.expect("known");
    let template = broker.snapshot();
    let template = template.offers().next().expect("an offer").to_offer();
    let offer = |sku: &str, observed_at| Offer {
        offer_id: OfferId::of_identity(&["acme", sku]),
        provider: acme.clone(),
        sku: sku.to_owned(),
        observed_at,
        ..template.clone()
    };
    // By the number of the reading that an offer is dated by.
    let mut readings = Vec::new();
    let mut read = async |skus: &[&str], odd: Option<&str>| {
        let read_at = broker.now();
        readings.push(read_at.timestamp_micros());
        let mut reading = CatalogReading {
            provider: acme.clone(),
            read_at,
            offers: skus.iter().map(|sku| offer(sku, read_at)).collect(),
            skipped: Vec::new(),
            unread: Unread::Nothing,
        };
        if let Some(sku) = odd {
            reading.unread.note(Some(sku.to_owned()));
            reading.skipped.push(Skipped {
                file: None,
                row: None,
                rows: 1,
                sku: Some(sku.to_owned()),
                reason: SkipReason::Unreadable,
                why: "the price `soon` is no number".to_owned(),
            });
        }
        ingest::apply(broker, reading).await.expect("applied");
        ingest::refresh_snapshot(broker).await.expect("read back");
        let snapshot = broker.snapshot();
        let mine = snapshot.offers().filter(|offer| *offer.provider() == acme);
        let mut shown: Vec<_> = mine
            .map(|offer| {
                let micros = offer.observed_at().timestamp_micros();
                let dated = readings.iter().position(|at| *at == micros);
                (offer.to_offer().sku, dated.expect("a reading") + 1)
            })
            .collect();
        shown.sort();
        shown
    };
    let rows = |rows: &[(&str, usize)]| -> Vec<(String, usize)> {
        let row = |(sku, at): &(&str, usize)| ((*sku).to_owned(), *at);
        rows.iter().map(row).collect()
    };
    let whole = read(&["a", "b", "c"], None).await;
    assert_eq!(whole, rows(&[("a", 1), ("b", 1), ("c", 1)]));
    world.clock().advance(chrono::TimeDelta::seconds(60));
    // `b` could not be read; `c` is not listed any more; `d` is new.
    let odd = read(&["a", "d"], Some("b")).await;
    assert_eq!(odd, rows(&[("a", 2), ("b", 1), ("d", 2)]));
    world.clock().advance(chrono::TimeDelta::seconds(60));
    assert_eq!(
        read(&["a", "d"], Some("b")).await,
        rows(&[("a", 3), ("b", 1), ("d", 3)])
    );
    let key = service.key("acme", Role::Viewer).await;
    let shown = service
        .with(&key)
        .get("/v1/providers/acme")
        .await
        .expect(200);
    assert_eq!(
        shown["unread"],
        json!([{"sku": "b", "why": "the price `soon` is no number"}])
    );
    assert_eq!(shown["stale_reason"], json!(null));
    assert!(
        shown["last_complete_at"] != shown["last_read_at"],
        "{shown}"
    );
    world.clock().advance(chrono::TimeDelta::seconds(60));
    let again = read(&["a", "b", "d"], None).await;
    assert_eq!(again, rows(&[("a", 4), ("b", 4), ("d", 4)]));
    service.stop().await;
}
