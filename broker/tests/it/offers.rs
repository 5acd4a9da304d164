//! `/v1/offers` and `/v1/gpus`: the offers on sale, filtered and sorted, against the whole list.

use std::collections::BTreeSet;

use chrono::TimeDelta;
use serde_json::Value;

use crate::service::Service;

/// Which offers a filter should leave.
type Wanted = dyn Fn(&Value) -> bool;

/// Every item of a list, page by page.
async fn all(service: &Service, path: &str, limit: usize) -> Vec<Value> {
    let joined = if path.contains('?') { '&' } else { '?' };
    let first = format!("{path}{joined}limit={limit}");
    let (mut items, mut next) = (Vec::new(), first.clone());
    loop {
        let page = service.anyone().get(&next).await.expect(200);
        let of_page = page["items"].as_array().expect("items");
        assert!(of_page.len() <= limit);
        items.extend(of_page.iter().cloned());
        match page["next_cursor"].as_str() {
            Some(cursor) => next = format!("{first}&cursor={cursor}"),
            None => return items,
        }
    }
}

fn price(offer: &Value) -> f64 {
    offer["price_usd_gpu_hour"]
        .as_str()
        .expect("a price")
        .parse()
        .expect("a number")
}

fn ids(offers: &[Value]) -> Vec<&str> {
    offers
        .iter()
        .map(|offer| offer["offer_id"].as_str().expect("an id"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_show_every_offer_once_the_cheapest_first() {
    let service = Service::start().await;
    let whole = all(&service, "/v1/offers?include_unavailable=true", 200).await;
    assert_eq!(whole.len(), service.world.broker().snapshot().len());
    for limit in [1, 7] {
        let paged = all(&service, "/v1/offers?include_unavailable=true", limit).await;
        assert_eq!(ids(&paged), ids(&whole));
    }
    assert_eq!(
        ids(&whole).into_iter().collect::<BTreeSet<_>>().len(),
        whole.len()
    );
    assert!(whole.is_sorted_by_key(price));
    let by_provider = all(
        &service,
        "/v1/offers?include_unavailable=true&sort=provider",
        3,
    )
    .await;
    assert!(by_provider.is_sorted_by(|a, b| {
        (a["provider"].as_str(), price(a)) <= (b["provider"].as_str(), price(b))
    }));
    assert_eq!(by_provider.len(), whole.len());
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_filter_shows_what_a_scan_of_the_whole_list_finds() {
    let service = Service::start().await;
    let whole = all(&service, "/v1/offers?include_unavailable=true", 200).await;
    let scan = |wanted: &Wanted| -> Vec<String> {
        whole
            .iter()
            .filter(|offer| offer["availability"]["level"] != "none" && wanted(offer))
            .map(|offer| offer["offer_id"].to_string())
            .collect()
    };
    let family = |offer: &Value| {
        offer["gpu"]
            .as_str()
            .is_some_and(|gpu| gpu == "H100" || gpu.starts_with("H100-"))
    };
    let cases: [(&str, &Wanted); 9] = [
        ("", &|_| true),
        ("gpu=h100", &family),
        ("gpu=H100-SXM", &|offer| offer["gpu"] == "H100-SXM"),
        ("provider=lambda", &|offer| offer["provider"] == "lambda"),
        ("tenancy=bare_metal", &|offer| {
            offer["tenancy"] == "bare_metal"
        }),
        ("country=us", &|offer| offer["place"]["country"] == "US"),
        ("max_usd_gpu_hour=2.5", &|offer| price(offer) <= 2.5),
        ("min_gpus=8&terms=on_demand", &|offer| {
            offer["gpus"].as_f64() >= Some(8.0) && offer["terms"] == "on_demand"
        }),
        ("internode=ethernet", &|offer| {
            offer["internode"] == "ethernet"
        }),
    ];
    for (query, wanted) in cases {
        let found = all(&service, &format!("/v1/offers?{query}"), 200).await;
        let found: Vec<String> = found
            .iter()
            .map(|offer| offer["offer_id"].to_string())
            .collect();
        assert_eq!(found, scan(wanted), "{query}");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_is_of_its_own_list_and_filter_only() {
    let service = Service::start().await;
    let page = service.anyone().get("/v1/offers?limit=1").await.expect(200);
    let cursor = page["next_cursor"].as_str().expect("another page");
    for other in [
        "/v1/offers?sort=provider&",
        "/v1/offers?gpu=H100&",
        "/v1/gpus?",
    ] {
        let answer = service
            .anyone()
            .get(&format!("{other}cursor={cursor}"))
            .await;
        answer.refused(422, "invalid_cursor");
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_offer_shows_how_old_it_is_and_that_it_is_stale() {
    let service = Service::start().await;
    let read = async || {
        all(
            &service,
            "/v1/offers?provider=lambda&include_unavailable=true",
            200,
        )
        .await
    };
    assert!(
        read()
            .await
            .iter()
            .all(|offer| offer["age_seconds"] == 0 && offer["stale"] == false)
    );
    service.world.clock().advance(TimeDelta::days(2));
    let aged = read().await;
    assert!(
        aged.iter()
            .all(|offer| offer["age_seconds"] == 172_800 && offer["stale"] == true)
    );
    let one = service
        .anyone()
        .get(&format!("/v1/offers/{}", ids(&aged)[0]))
        .await
        .expect(200);
    assert_eq!(one, aged[0]);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_of_an_offer_begins_with_its_first_reading() {
    let service = Service::start().await;
    let before = service.world.broker().now();
    let offers = all(&service, "/v1/offers?provider=lambda", 200).await;
    let path = format!("/v1/offers/{}/history", ids(&offers)[0]);
    let history = service.anyone().get(&path).await.expect(200);
    let changes = history["items"].as_array().expect("items");
    assert_eq!(changes.len(), 1);
    assert_eq!(
        (&changes[0]["change"], &changes[0]["offer"]["offer_id"]),
        (&"added".into(), &offers[0]["offer_id"])
    );
    let earlier = (before - TimeDelta::hours(1)).format("%Y-%m-%dT%H:%M:%SZ");
    for parameter in ["as_of", "known_at"] {
        let then = service
            .anyone()
            .get(&format!("{path}?{parameter}={earlier}"))
            .await
            .expect(200);
        assert_eq!(
            then["items"].as_array().map(Vec::len),
            Some(0),
            "{parameter}"
        );
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_price_index_is_the_lowest_and_the_median_of_what_is_fresh() {
    let service = Service::start().await;
    let offers = all(&service, "/v1/offers?gpu=H100-SXM&terms=on_demand", 200).await;
    let mut prices: Vec<f64> = offers.iter().map(price).collect();
    prices.sort_by(f64::total_cmp);
    let middle = |at: usize| prices[at];
    let median = (middle((prices.len() - 1) / 2) + middle(prices.len() / 2)) / 2.0;
    let index = service
        .anyone()
        .get("/v1/gpus/h100-sxm/index")
        .await
        .expect(200);
    let on_demand = index["terms"]
        .as_array()
        .expect("terms")
        .iter()
        .find(|row| row["terms"] == "on_demand");
    let on_demand = on_demand.expect("it is sold on demand");
    let number = |name: &str| {
        on_demand[name]
            .as_str()
            .expect("a price")
            .parse::<f64>()
            .expect("a number")
    };
    assert_eq!(index["gpu"], "H100-SXM");
    assert_eq!(on_demand["offers"], prices.len());
    assert!((number("lowest_usd_gpu_hour") - prices[0]).abs() < 1e-8);
    assert!((number("median_usd_gpu_hour") - median).abs() < 1e-8);
    let family = service
        .anyone()
        .get("/v1/gpus/H100/index")
        .await
        .expect(200);
    assert_eq!(family["gpu"], "H100");
    let detail = service
        .anyone()
        .get("/v1/gpus/H1000/index")
        .await
        .refused(404, "not_found");
    assert!(detail.contains("H100"), "{detail}");
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_catalogue_lists_every_gpu_by_name() {
    let service = Service::start().await;
    let listed = all(&service, "/v1/gpus", 20).await;
    let names: Vec<&str> = listed
        .iter()
        .map(|gpu| gpu["canonical"].as_str().expect("a name"))
        .collect();
    assert!(names.is_sorted());
    assert_eq!(names.len(), market::gpu::Gpu::all().count());
    service.stop().await;
}
