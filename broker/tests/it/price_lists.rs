//! Price lists in the service: as old as their files, compared with however old, never ordered.

use std::fs::File;
use std::path::PathBuf;

use broker::flow::ingest;
use chrono::{DateTime, Utc};
use market::catalog::CatalogReading;
use market::identity::Role;
use market::ids::{OfferId, ProviderId};
use market::offer::Offer;
use matcher::OfferRef;
use serde_json::{Value, json};

use crate::service::Service;

const ROW: &str = "acme,l40-box,L40,1,28,58,49152,0.10,,CANADA-1,";

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("a time")
}

/// A list with these rows, last written at this time.
fn list(folder: &tempfile::TempDir, row: &str, written: &str) -> Vec<PathBuf> {
    let path = folder.path().join("list.csv");
    let header = "provider,instance_type,gpu_name,gpu_count,vcpus,memory_gib,gpu_memory_mib,price_usd_hour,spot_usd_hour,region,zone";
    std::fs::write(&path, format!("{header}\n{row}\n")).expect("written");
    let file = File::options().append(true).open(&path).expect("opened");
    file.set_modified(at(written).into()).expect("dated");
    vec![path]
}

async fn listed(service: &Service) -> Value {
    let page = service
        .anyone()
        .get("/v1/offers?provider=acme")
        .await
        .expect(200);
    let items = page["items"].as_array().expect("items");
    assert_eq!(items.len(), 1, "{page}");
    items[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_old_list_shows_its_date_and_is_still_planned_with() {
    let (service, folder) = (
        Service::start().await,
        tempfile::tempdir().expect("a folder"),
    );
    let files = list(&folder, ROW, "2019-03-04T05:06:07Z");
    let world = &service.world;
    world.read_price_lists(&files).await.expect("kept");
    let offer = listed(&service).await;
    assert_eq!(
        (&offer["observed_at"], &offer["stale"], &offer["orderable"]),
        (&json!("2019-03-04T05:06:07Z"), &json!(false), &json!(false))
    );
    let demand = json!({ "kind": "gpus", "gpu": "L40", "count": 1 });
    let member = service.key("acme", Role::Member).await;
    let plan = service
        .with(&member)
        .post("/v1/plans", &demand)
        .await
        .expect(201);
    let best = &plan["candidates"][0];
    assert!(best.to_string().contains("l40-box"), "{plan}");
    let reasons = best["reasons"].to_string();
    assert!(reasons.contains("Listed on 2019-03-04"), "{reasons}");
    assert!(!reasons.contains("Read 0 s ago"), "{reasons}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_is_withdrawn_where_no_list_names_it_and_not_where_its_row_cannot_be_read() {
    let (service, folder) = (
        Service::start().await,
        tempfile::tempdir().expect("a folder"),
    );
    let world = &service.world;
    let other = "acme,t4-box,T4,1,28,58,16384,0.10,,CANADA-1,";
    let unreadable = ROW
        .replace(",1,28,", ",one,28,")
        .replace("l40-box", " l40-box ");
    let without_a_name = unreadable.replace(" l40-box ", "");
    for (rows, stays) in [
        (ROW.to_owned(), true),
        (format!("{other}\n{unreadable}"), true),
        (format!("{other}\n{without_a_name}"), false),
        (ROW.to_owned(), true),
        (other.to_owned(), false),
    ] {
        let files = list(&folder, &rows, "2019-03-04T05:06:07Z");
        world.clock().advance(chrono::TimeDelta::seconds(60));
        world.read_price_lists(&files).await.expect("kept");
        let path = "/v1/offers?provider=acme&gpu=L40";
        let page = service.anyone().get(path).await.expect(200);
        let found = page["items"].as_array().expect("items").len();
        assert_eq!(found == 1, stays, "{rows}: {page}");
    }
    std::fs::write(folder.path().join("list.csv"), "no,list\n").expect("written");
    let files = vec![folder.path().join("list.csv")];
    world.read_price_lists(&files).await.expect("kept");
    let page = service
        .anyone()
        .get("/v1/offers?provider=acme")
        .await
        .expect(200);
    assert_eq!(page["items"].as_array().expect("items").len(), 1, "{page}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_is_written_anew_is_as_old_as_the_new_file() {
    let (service, folder) = (
        Service::start().await,
        tempfile::tempdir().expect("a folder"),
    );
    let world = &service.world;
    let dearer = ROW.replace("0.10", "0.20");
    for (row, written) in [
        (ROW, "2019-03-04T05:06:07Z"),
        (ROW, "2021-01-01T00:00:00Z"),
        (&dearer, "2022-01-01T00:00:00Z"),
        (&dearer, "2018-01-01T00:00:00Z"),
    ] {
        let files = list(&folder, row, written);
        for _ in 0..2 {
            world.clock().advance(chrono::TimeDelta::seconds(60));
            world.read_price_lists(&files).await.expect("kept");
            assert_eq!(listed(&service).await["observed_at"], written);
        }
    }
    let id = listed(&service).await["offer_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let history = service
        .anyone()
        .get(&format!("/v1/offers/{id}/history"))
        .await
        .expect(200);
    let entries = history["items"].as_array().expect("items").len();
    assert_eq!(
        entries, 4,
        "each file once, however often it is read: {history}"
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_connected_speaks_for_itself() {
    let (service, folder) = (
        Service::start().await,
        tempfile::tempdir().expect("a folder"),
    );
    let world = &service.world;
    let before = world.broker().snapshot().len();
    let rows = format!("{}\n{ROW}", ROW.replace("acme", "lambda"));
    let files = list(&folder, &rows, "2026-01-01T00:00:00Z");
    world.read_price_lists(&files).await.expect("kept");
    let snapshot = world.broker().snapshot();
    // The row of `acme`, and the bundled list, which was read at the start.
    let listed: Vec<Offer> = (snapshot.offers().filter(|offer| !offer.orderable()))
        .map(OfferRef::to_offer)
        .collect();
    assert!(listed.iter().any(|offer| offer.sku == "l40-box"));
    for offer in &listed {
        let seller = offer.provider.as_str().trim_end_matches("-list");
        let seller = ProviderId::parse(seller).expect("an id");
        assert!(
            world.broker().provider(&seller).is_none(),
            "{seller} is read live"
        );
    }
    assert_eq!(snapshot.len(), before + 1, "the row of lambda is left out");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_live_reading_replaces_what_a_list_said_before() {
    let (service, folder) = (
        Service::start().await,
        tempfile::tempdir().expect("a folder"),
    );
    let (world, broker) = (&service.world, service.world.broker());
    let rows: Vec<String> = (0..6)
        .map(|n| ROW.replace("l40-box", &format!("l40-{n}")))
        .collect();
    let files = list(&folder, &rows.join("\n"), "2026-01-01T00:00:00Z");
    world.read_price_lists(&files).await.expect("kept");
    let acme = ProviderId::parse("acme").expect("an id");
    let of_acme = || {
        let snapshot = broker.snapshot();
        let mine = snapshot.offers().filter(|offer| *offer.provider() == acme);
        mine.map(OfferRef::to_offer).collect::<Vec<_>>()
    };
    assert_eq!(of_acme().len(), 6);
    world.clock().advance(chrono::TimeDelta::seconds(60));
    let mut live = of_acme().remove(0);
    live.offer_id = OfferId::of_identity(&["acme", "read live"]);
    live.orderable = true;
    live.observed_at = broker.now();
    let reading = |offers| CatalogReading {
        provider: acme.clone(),
        read_at: broker.now(),
        offers,
        skipped: Vec::new(),
        unread: market::catalog::Unread::Nothing,
    };
    ingest::apply(broker, reading(vec![live.clone()]))
        .await
        .expect("believed at once");
    ingest::refresh_snapshot(broker).await.expect("read back");
    let now: Vec<OfferId> = of_acme().iter().map(|offer| offer.offer_id).collect();
    assert_eq!(now, [live.offer_id]);
    service.stop().await;
}
