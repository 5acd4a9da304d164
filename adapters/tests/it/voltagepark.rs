//! Voltage Park, over recordings and against a scripted server.

mod orders;

use adapters::providers::voltagepark::VoltagePark;
use adapters::{Adapter, AdapterError, Disposition};
use market::catalog::{CatalogReading, SkipReason, Unread};
use market::fabric::Internode;
use market::offer::{Offer, Tenancy};
use market::order::ProviderLeaseState as State;
use serde_json::{Value, json};

use crate::recorded::{SSH_KEY, assert_golden, lease, made_up, now, order, recorded};
use crate::server::{Server, Turn};

const FIRST_PAGE: &str = "/bare-metal/locations?limit=50&offset=0";

fn location(id: &str, price: Value) -> Value {
    json!({"id": id, "gpu_price_ethernet": price, "gpu_price_infiniband": "2.49", "gpu_count_ethernet": 8,
        "gpu_count_infiniband": 16, "specs_per_node": {"gpu_model": "h100-sxm5-80gb", "gpu_count": 8}})
}

fn page(results: &[Value], total: u64, has_next: bool) -> Value {
    json!({"results": results, "total_result_count": total, "has_next": has_next})
}

async fn read_pages(pages: &[(&str, u16, Value)]) -> Result<CatalogReading, AdapterError> {
    let exchanges: Vec<_> = pages
        .iter()
        .map(|(path, status, body)| ("GET", *path, *status, body.clone()))
        .collect();
    VoltagePark.read_catalog(&made_up(&exchanges), now()).await
}

async fn an_offer(internode: Internode) -> Offer {
    let reading = VoltagePark
        .read_catalog(&recorded("voltagepark", "catalog"), now())
        .await
        .expect("a reading");
    let wanted = |offer: &&Offer| offer.internode == internode && offer.availability.may_hold(2);
    reading
        .offers
        .iter()
        .find(wanted)
        .expect("an offer")
        .clone()
}

#[tokio::test]
async fn the_recorded_catalogue_gives_the_golden_offers() {
    let reading = VoltagePark
        .read_catalog(&recorded("voltagepark", "catalog"), now())
        .await
        .expect("a reading");
    assert!(reading.is_whole());
    assert_golden("voltagepark", &reading);
}

#[tokio::test]
async fn one_location_is_two_offers_at_the_price_of_a_node() {
    let reading = read_pages(&[(
        FIRST_PAGE,
        200,
        page(&[location("l-1", json!("1.99"))], 1, false),
    )])
    .await
    .expect("a reading");
    let shown: Vec<_> = reading
        .offers
        .iter()
        .map(|o| {
            (
                o.internode,
                o.price_per_node_hour.to_string(),
                o.rate().expect("a rate").to_string(),
                o.availability.nodes,
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            (Internode::Ethernet, "15.92".into(), "1.99".into(), Some(1)),
            (
                Internode::InfinibandNdr400,
                "19.92".into(),
                "2.49".into(),
                Some(2)
            ),
        ]
    );
    assert!(
        reading
            .offers
            .iter()
            .all(|offer| offer.tenancy == Tenancy::BareMetal)
    );
    assert_ne!(reading.offers[0].offer_id, reading.offers[1].offer_id);
}

#[tokio::test]
async fn a_location_that_gives_nothing_is_counted_once_and_one_that_gives_something_not_at_all() {
    let rows = |reading: &CatalogReading| {
        reading
            .skipped
            .iter()
            .map(|s| (s.reason, s.rows))
            .collect::<Vec<_>>()
    };
    let half = read_pages(&[(
        FIRST_PAGE,
        200,
        page(&[location("l-1", json!("0"))], 1, false),
    )])
    .await
    .expect("a reading");
    assert_eq!(
        (half.offers.len(), rows(&half)),
        (1, vec![(SkipReason::NoPrice, 0)])
    );
    let mut nothing = location("l-1", json!(null));
    nothing["gpu_price_infiniband"] = json!("0.00");
    let none = read_pages(&[(FIRST_PAGE, 200, page(&[nothing], 1, false))])
        .await
        .expect("a reading");
    assert_eq!(
        (none.offers.len(), rows(&none)),
        (0, vec![(SkipReason::NoPrice, 1), (SkipReason::NoPrice, 0)])
    );
}

#[tokio::test]
async fn a_listing_that_is_empty_cut_short_or_moving_is_not_complete() {
    let one = || location("l-1", json!("1.99"));
    let two = || location("l-2", json!("1.99"));
    let second = "/bare-metal/locations?limit=50&offset=1";
    let whole = read_pages(&[
        (FIRST_PAGE, 200, page(&[one()], 2, true)),
        (second, 200, page(&[two()], 2, false)),
    ])
    .await;
    assert_eq!(
        whole.as_ref().map(|r| (r.is_whole(), r.offers.len())).ok(),
        Some((true, 4))
    );
    for (why, pages) in [
        ("empty", vec![(FIRST_PAGE, 200, page(&[], 0, false))]),
        (
            "the second page fails",
            vec![
                (FIRST_PAGE, 200, page(&[one()], 2, true)),
                (second, 500, json!({})),
            ],
        ),
        (
            "the second page is unreadable",
            vec![
                (FIRST_PAGE, 200, page(&[one()], 2, true)),
                (second, 200, json!("{\"resu")),
            ],
        ),
        (
            "the second page is empty",
            vec![
                (FIRST_PAGE, 200, page(&[one()], 2, true)),
                (second, 200, page(&[], 2, true)),
            ],
        ),
        (
            "fewer than announced",
            vec![(FIRST_PAGE, 200, page(&[one()], 2, false))],
        ),
        (
            "one twice",
            vec![
                (FIRST_PAGE, 200, page(&[one()], 2, true)),
                (second, 200, page(&[one()], 2, false)),
            ],
        ),
        (
            "one twice, and no total",
            vec![
                (
                    FIRST_PAGE,
                    200,
                    json!({"results": [one()], "has_next": true}),
                ),
                (second, 200, json!({"results": [one()], "has_next": false})),
            ],
        ),
        (
            "no word on the end",
            vec![(FIRST_PAGE, 200, json!({"results": [one()]}))],
        ),
        (
            "a record is unreadable",
            vec![(
                FIRST_PAGE,
                200,
                page(&[one(), json!({"id": "l-2"})], 2, false),
            )],
        ),
    ] {
        let reading = read_pages(&pages).await.expect("a reading");
        assert!(!reading.is_whole(), "{why}");
        let named = reading.unread_records().next().is_some();
        assert!(named || why == "empty", "{why}");
    }
    let mut odd = two();
    odd["specs_per_node"]["gpu_count"] = json!("eight");
    let reading = read_pages(&[(FIRST_PAGE, 200, page(&[one(), odd], 2, false))]).await;
    let model = one()["specs_per_node"]["gpu_model"]
        .as_str()
        .expect("a model")
        .to_owned();
    let skus = ["ethernet", "infiniband"].map(|network| format!("{model}-{network}"));
    let unread = reading.expect("a reading").unread;
    assert_eq!(unread, Unread::Skus(skus.into()));
    assert!(read_pages(&[(FIRST_PAGE, 500, json!({}))]).await.is_err());
    assert!(read_pages(&[(FIRST_PAGE, 200, json!([]))]).await.is_err());
}

#[tokio::test]
async fn half_a_list_of_rentals_is_no_list() {
    let first = "/bare-metal/?limit=50&offset=0";
    let rental = json!({"id": "r-1", "status": "Running"});
    let whole = made_up(&[(
        "GET",
        first,
        200,
        page(std::slice::from_ref(&rental), 1, false),
    )]);
    assert_eq!(
        VoltagePark.list_leases(&whole).await.expect("a list").len(),
        1
    );
    for body in [
        page(std::slice::from_ref(&rental), 2, true),
        page(&[json!({"status": "Running"})], 1, false),
    ] {
        let http = made_up(&[("GET", first, 200, body)]);
        assert!(VoltagePark.list_leases(&http).await.is_err());
    }
    let empty = made_up(&[("GET", first, 200, page(&[], 0, false))]);
    assert_eq!(
        VoltagePark
            .list_leases(&empty)
            .await
            .expect("an empty list")
            .len(),
        0
    );
}

#[tokio::test]
async fn a_page_with_more_records_than_were_asked_for_is_refused() {
    let many = |count: usize| {
        (0..count)
            .map(|at| location(&format!("l-{at}"), json!("1.99")))
            .collect::<Vec<_>>()
    };
    let whole = read_pages(&[(FIRST_PAGE, 200, page(&many(50), 50, false))]).await;
    assert!(whole.is_ok_and(|reading| reading.is_whole() && reading.offers.len() == 100));
    let error = read_pages(&[(FIRST_PAGE, 200, page(&many(51), 51, false))])
        .await
        .expect_err("a page of 51");
    assert!(error.to_string().contains("51 records"), "{error}");
    let second = "/bare-metal/locations?limit=50&offset=1";
    let later = read_pages(&[
        (
            FIRST_PAGE,
            200,
            page(&[location("l-a", json!("1.99"))], 52, true),
        ),
        (second, 200, page(&many(51), 52, false)),
    ])
    .await
    .expect("a reading of the first page");
    assert_eq!((later.offers.len(), later.is_whole()), (2, false));
}

#[tokio::test]
async fn a_walk_ends_when_its_pages_are_too_large_together() {
    let padded = |id: &str| {
        let mut padded = location(id, json!("1.99"));
        padded["padding"] = json!("x".repeat(9 << 20));
        padded
    };
    let second = "/bare-metal/locations?limit=50&offset=1";
    let third = "/bare-metal/locations?limit=50&offset=2";
    let reading = read_pages(&[
        (FIRST_PAGE, 200, page(&[padded("l-1")], 3, true)),
        (second, 200, page(&[padded("l-2")], 3, true)),
        (third, 200, page(&[padded("l-3")], 3, false)),
    ])
    .await
    .expect("a reading");
    assert_eq!((reading.offers.len(), reading.is_whole()), (2, false));
}

#[tokio::test]
async fn a_location_whose_name_is_too_long_to_be_one_is_skipped() {
    let long = location(&"l".repeat(201), json!("1.99"));
    let reading = read_pages(&[(FIRST_PAGE, 200, page(&[long], 1, false))])
        .await
        .expect("a reading");
    assert_eq!((reading.offers.len(), reading.is_whole()), (0, false));
    assert_eq!(reading.skipped[0].reason, SkipReason::Unreadable);
}
