//! Each fault on command.

use std::time::Duration;

use reqwest::Method;
use rust_decimal::Decimal;
use serde_json::{Value, json};
use simulator::Provider;
use simulator::{Fault, FaultKind, Operation, Phase};

use crate::eventually::eventually;
use crate::stage::{INFINIBAND, Stage, a10, body, rental};

async fn stage_with(fault: Fault) -> Stage {
    let stage = Stage::new().await;
    stage.add_key().await;
    stage.simulator.break_next(fault).unwrap();
    stage
}

#[tokio::test]
async fn a_reply_lost_after_the_machine_was_made_leaves_a_machine_that_can_be_found_by_name() {
    let stage = stage_with(Fault::new(
        Provider::LAMBDA,
        FaultKind::ReplyLostAfterCreate,
    ))
    .await;
    assert!(stage.lambda_launch(&a10("lost")).send().await.is_err());
    assert_eq!(stage.lambda("/instances").await[0]["name"], "lost");
    stage.clock.turn(3_600);
    assert_eq!(
        stage.simulator.bill(Provider::LAMBDA).total_usd,
        Decimal::new(129, 2)
    );
    stage.launch(&a10("next")).await;

    stage
        .simulator
        .break_next(Fault::new(
            Provider::VOLTAGEPARK,
            FaultKind::ReplyLostAfterCreate,
        ))
        .unwrap();
    assert!(
        stage
            .voltagepark_rent(&rental("lost", 1))
            .send()
            .await
            .is_err()
    );
    assert_eq!(
        stage.voltagepark("/bare-metal/").await["results"][0]["name"],
        "lost"
    );
}

#[tokio::test]
async fn a_reply_lost_after_a_release_leaves_nothing_running() {
    let fault =
        Fault::new(Provider::VOLTAGEPARK, FaultKind::ReplyLostAfterCreate).on(Operation::Release);
    let stage = stage_with(fault).await;
    let id = stage.rent(&rental("one", 1)).await;
    let path = format!("/bare-metal/{id}");
    assert!(
        stage
            .request(Provider::VOLTAGEPARK, Method::DELETE, &path)
            .send()
            .await
            .is_err()
    );
    assert_eq!(stage.simulator.running_machines(), []);
}

#[tokio::test]
async fn a_reply_lost_before_the_machine_was_made_leaves_nothing() {
    let stage = stage_with(Fault::new(
        Provider::LAMBDA,
        FaultKind::ReplyLostBeforeCreate,
    ))
    .await;
    assert!(stage.lambda_launch(&a10("lost")).send().await.is_err());
    assert_eq!(stage.lambda("/instances").await, json!([]));
    assert_eq!(stage.simulator.launches(Provider::LAMBDA), []);
}

#[tokio::test]
async fn a_machine_accepted_then_failed_is_listed_and_billed_until_it_is_released() {
    let stage = stage_with(Fault::new(Provider::LAMBDA, FaultKind::AcceptedThenFailed)).await;
    stage
        .simulator
        .break_next(Fault::new(
            Provider::VOLTAGEPARK,
            FaultKind::AcceptedThenFailed,
        ))
        .unwrap();
    let vm = stage.launch(&a10("vm")).await;
    let metal = stage.rent(&rental("metal", 2)).await;
    stage.clock.turn(900);
    assert_eq!(
        stage.lambda(&format!("/instances/{vm}")).await["status"],
        "unhealthy"
    );
    let failed = stage.voltagepark(&format!("/bare-metal/{metal}")).await;
    assert_eq!(
        (&failed["status"], &failed["node_networking"]),
        (&json!("Failed"), &json!([]))
    );
    let phases: Vec<Phase> = stage
        .simulator
        .running_machines()
        .iter()
        .map(|machine| machine.phase)
        .collect();
    assert_eq!(phases, [Phase::Failed, Phase::Failed]);
    assert_eq!(
        stage.simulator.bill(Provider::VOLTAGEPARK).lines[0].seconds,
        900
    );
    stage.terminate(&vm).await;
    stage.end_rental(&metal).await;
    assert_eq!(stage.simulator.running_machines(), []);
}

#[tokio::test]
async fn too_many_requests_says_when_to_come_back_only_if_told_to() {
    let kind = FaultKind::TooManyRequests {
        retry_after_seconds: Some(7),
    };
    let stage = stage_with(Fault::new(Provider::VOLTAGEPARK, kind).on(Operation::Catalog)).await;
    let answer = stage
        .request(Provider::VOLTAGEPARK, Method::GET, "/bare-metal/locations")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()["retry-after"], "7");
    assert!(body(answer, 429).await["detail"].is_string());
    let kind = FaultKind::TooManyRequests {
        retry_after_seconds: None,
    };
    stage
        .simulator
        .break_next(Fault::new(Provider::LAMBDA, kind))
        .unwrap();
    let answer = stage.lambda_launch(&a10("x")).send().await.unwrap();
    assert_eq!(
        (
            answer.status().as_u16(),
            answer.headers().get("retry-after")
        ),
        (429, None)
    );
    assert_eq!(stage.simulator.launches(Provider::LAMBDA), []);
}

#[tokio::test]
async fn an_internal_error_is_in_the_provider_s_envelope_and_does_nothing() {
    let stage = stage_with(Fault::new(Provider::LAMBDA, FaultKind::InternalError).times(2)).await;
    for _ in 0..2 {
        let answer = body(stage.lambda_launch(&a10("x")).send().await.unwrap(), 500).await;
        assert_eq!(answer["error"]["code"], "global/internal-error");
    }
    stage.launch(&a10("x")).await;
    assert_eq!(stage.simulator.launches(Provider::LAMBDA).len(), 1);
}

#[tokio::test]
async fn a_price_list_can_end_in_the_middle() {
    for (provider, path) in [
        (Provider::LAMBDA, "/instance-types"),
        (Provider::VOLTAGEPARK, "/bare-metal/locations"),
    ] {
        let stage = stage_with(Fault::new(provider, FaultKind::TruncatedJson)).await;
        let cut = stage
            .request(provider, Method::GET, path)
            .send()
            .await
            .unwrap();
        assert_eq!(cut.status(), 200);
        let cut = cut.text().await.unwrap();
        let whole = stage
            .request(provider, Method::GET, path)
            .send()
            .await
            .unwrap()
            .text()
            .await
            .unwrap();
        assert!(whole.starts_with(&cut) && !cut.is_empty() && cut.len() < whole.len());
        assert!(serde_json::from_str::<Value>(&cut).is_err());
    }
}

#[tokio::test]
async fn a_price_list_can_be_empty() {
    let stage = stage_with(Fault::new(Provider::LAMBDA, FaultKind::EmptyCatalog)).await;
    stage
        .simulator
        .break_next(Fault::new(Provider::VOLTAGEPARK, FaultKind::EmptyCatalog))
        .unwrap();
    assert_eq!(stage.lambda("/instance-types").await, json!({}));
    let empty = stage.voltagepark("/bare-metal/locations").await;
    assert_eq!(
        (&empty["results"], &empty["total_result_count"]),
        (&json!([]), &json!(0))
    );
    assert_eq!(
        stage.voltagepark("/bare-metal/locations").await["total_result_count"],
        3
    );
}

#[tokio::test]
async fn a_partial_price_list_fails_after_its_first_page_until_it_is_read_anew() {
    let stage = stage_with(Fault::new(Provider::VOLTAGEPARK, FaultKind::PartialCatalog)).await;
    let first = stage.voltagepark("/bare-metal/locations").await;
    assert_eq!(
        (&first["has_next"], &first["total_result_count"]),
        (&json!(true), &json!(3))
    );
    assert_eq!(first["results"].as_array().unwrap().len(), 1);
    for _ in 0..2 {
        let second = stage
            .request(
                Provider::VOLTAGEPARK,
                Method::GET,
                "/bare-metal/locations?offset=1",
            )
            .send()
            .await
            .unwrap();
        assert_eq!(second.status(), 500);
    }
    assert_eq!(
        stage.voltagepark("/bare-metal/locations").await["has_next"],
        false
    );
    assert_eq!(
        stage.voltagepark("/bare-metal/locations?offset=1").await["results"]
            .as_array()
            .unwrap()
            .len(),
        2
    );

    let whole = stage
        .lambda("/instance-types")
        .await
        .as_object()
        .unwrap()
        .len();
    stage
        .simulator
        .break_next(Fault::new(Provider::LAMBDA, FaultKind::PartialCatalog))
        .unwrap();
    assert_eq!(
        stage
            .lambda("/instance-types")
            .await
            .as_object()
            .unwrap()
            .len(),
        whole / 2
    );
}

#[tokio::test]
async fn a_price_changes_as_the_launch_arrives_and_stays_changed() {
    let dearer = FaultKind::PriceChange {
        price_usd_hour: Decimal::new(310, 2),
    };
    let stage = stage_with(Fault::new(Provider::VOLTAGEPARK, dearer.clone())).await;
    assert_eq!(
        stage.voltagepark("/bare-metal/locations").await["results"][0]["gpu_price_infiniband"],
        "2.49"
    );
    let id = stage.rent(&rental("x", 1)).await;
    assert_eq!(
        stage.voltagepark(&format!("/bare-metal/{id}")).await["rate_hourly"],
        "24.80"
    );
    assert_eq!(
        stage.simulator.bill(Provider::VOLTAGEPARK).lines[0].price_usd_hour,
        Decimal::new(2480, 2)
    );
    assert_eq!(
        stage.voltagepark("/bare-metal/locations").await["results"][0]["gpu_price_infiniband"],
        "3.10"
    );

    stage
        .simulator
        .break_next(Fault::new(Provider::LAMBDA, dearer))
        .unwrap();
    let id = stage.launch(&a10("x")).await;
    assert_eq!(
        stage.lambda(&format!("/instances/{id}")).await["instance_type"]["price_cents_per_hour"],
        310
    );
    let unsayable = FaultKind::PriceChange {
        price_usd_hour: Decimal::new(1, 3),
    };
    assert!(
        stage
            .simulator
            .break_next(Fault::new(Provider::LAMBDA, unsayable))
            .is_err()
    );
}

#[tokio::test]
async fn a_rental_can_come_with_fewer_nodes_than_asked_for_and_says_so() {
    let stage = stage_with(Fault::new(Provider::VOLTAGEPARK, FaultKind::FewerNodes)).await;
    let id = stage.rent(&rental("x", 3)).await;
    stage.clock.turn(900);
    let read = stage.voltagepark(&format!("/bare-metal/{id}")).await;
    assert_eq!(read["node_count"], 2);
    assert_eq!(read["node_networking"].as_array().unwrap().len(), 2);
    assert_eq!(
        stage.simulator.bill(Provider::VOLTAGEPARK).lines[0].price_usd_hour,
        Decimal::new(249 * 16, 2)
    );
    assert_eq!(
        stage.voltagepark("/bare-metal/locations").await["results"][0]["gpu_count_infiniband"],
        48
    );
}

#[tokio::test]
async fn a_call_that_hangs_answers_nothing_and_ends_when_the_simulator_stops() {
    let stage = stage_with(Fault::new(Provider::LAMBDA, FaultKind::Hang).on(Operation::List)).await;
    let request = stage
        .request(Provider::LAMBDA, Method::GET, "/instances")
        .timeout(Duration::from_millis(300));
    assert!(request.send().await.unwrap_err().is_timeout());
    assert_eq!(
        stage.lambda("/instances").await,
        json!([]),
        "only that call hangs"
    );

    stage
        .simulator
        .break_next(Fault::new(Provider::LAMBDA, FaultKind::Hang))
        .unwrap();
    let hanging = tokio::spawn(stage.lambda_launch(&a10("x")).send());
    eventually("the call", || {
        let counts = stage.simulator.call_counts();
        counts.contains_key(&(Provider::LAMBDA, Operation::Launch))
    })
    .await;
    stage.simulator.stop().await;
    assert!(!hanging.await.unwrap().unwrap_err().is_timeout());
}

#[tokio::test]
async fn a_fault_for_one_sku_leaves_the_others_alone() {
    let stage =
        stage_with(Fault::new(Provider::VOLTAGEPARK, FaultKind::InternalError).for_sku(INFINIBAND))
            .await;
    let mut ethernet = rental("x", 1);
    ethernet["network_type"] = json!("ethernet");
    stage.rent(&ethernet).await;
    assert_eq!(
        stage
            .voltagepark_rent(&rental("y", 1))
            .send()
            .await
            .unwrap()
            .status(),
        500
    );
    stage.rent(&rental("y", 1)).await;
}

#[tokio::test]
async fn calls_are_counted_by_provider_and_operation() {
    let stage = stage_with(Fault::new(Provider::LAMBDA, FaultKind::InternalError)).await;
    stage.lambda_launch(&a10("x")).send().await.unwrap();
    stage.launch(&a10("x")).await;
    stage.voltagepark("/bare-metal/locations").await;
    let counts = stage.simulator.call_counts();
    assert_eq!(counts[&(Provider::LAMBDA, Operation::Launch)], 2);
    assert_eq!(counts[&(Provider::LAMBDA, Operation::Keys)], 1);
    assert_eq!(counts[&(Provider::VOLTAGEPARK, Operation::Catalog)], 1);
    assert_eq!(
        counts.get(&(Provider::VOLTAGEPARK, Operation::Launch)),
        None
    );
}
