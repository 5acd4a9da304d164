//! Things in front of a provider that answer in its place.

use reqwest::Method;
use simulator::Front;
use simulator::Provider;

use crate::stage::{Stage, a10, body, rental};

#[tokio::test]
async fn a_front_answers_for_the_machines_and_lets_launches_through() {
    let stage = Stage::new().await;
    stage.add_key().await;
    let id = stage.launch(&a10("one")).await;
    let one = format!("/instances/{id}");
    let get = |path: &str| stage.request(Provider::LAMBDA, Method::GET, path).send();
    for (front, list, read) in [
        (Front::NotFoundPage, 404, 404),
        (Front::Gone, 410, 410),
        (Front::EmptyList, 200, 404),
        (Front::CredentialRefused, 401, 401),
        (Front::LateReads { seconds: 90 }, 200, 404),
    ] {
        stage.simulator.put_front(Provider::LAMBDA, Some(front));
        let answer = get("/instances").await.unwrap();
        assert_eq!(answer.status(), list, "{front:?}");
        if list == 200 {
            let listed = body(answer, 200).await;
            assert_eq!(listed["data"].as_array().unwrap().len(), 0, "{front:?}");
        }
        let answer = get(&one).await.unwrap();
        assert_eq!(answer.status(), read, "{front:?}");
        let is_json = serde_json::from_slice::<serde_json::Value>(&answer.bytes().await.unwrap());
        assert_eq!(is_json.is_err(), front == Front::NotFoundPage, "{front:?}");
        if front != Front::CredentialRefused {
            let name = format!("{front:?}");
            stage.launch(&a10(&name)).await;
        }
        stage.simulator.put_front(Provider::LAMBDA, None);
    }
    assert_eq!(
        stage.lambda("/instances").await.as_array().unwrap().len(),
        5
    );
    assert_eq!(stage.simulator.running_machines().len(), 5);
}

#[tokio::test]
async fn a_list_is_cut_to_its_older_half_and_a_hidden_machine_cannot_be_ended() {
    let stage = Stage::new().await;
    let ids = [
        stage.rent(&rental("one", 1)).await,
        stage.rent(&rental("two", 1)).await,
    ];
    stage
        .simulator
        .put_front(Provider::VOLTAGEPARK, Some(Front::CutList));
    let listed = stage.voltagepark("/bare-metal/").await;
    assert_eq!(listed["results"].as_array().unwrap().len(), 1);
    assert_eq!(listed["results"][0]["name"], "one");
    assert_eq!(stage.end_rental(&ids[1]).await.status(), 404);
    assert_eq!(stage.end_rental(&ids[0]).await.status(), 204);
    assert_eq!(stage.simulator.running_machines().len(), 1);
}

#[tokio::test]
async fn late_reads_show_what_was_and_writes_take_effect_at_once() {
    let stage = Stage::new().await;
    let id = stage.rent(&rental("one", 1)).await;
    let late = Front::LateReads { seconds: 90 };
    stage.simulator.put_front(Provider::VOLTAGEPARK, Some(late));
    let path = format!("/bare-metal/{id}");
    let read = || {
        stage
            .request(Provider::VOLTAGEPARK, Method::GET, &path)
            .send()
    };
    assert_eq!(read().await.unwrap().status(), 404);
    stage.clock.turn(90);
    assert_eq!(read().await.unwrap().status(), 200);
    assert_eq!(stage.end_rental(&id).await.status(), 204);
    assert_eq!(stage.simulator.running_machines(), []);
    stage.clock.turn(89);
    assert_eq!(read().await.unwrap().status(), 200);
    stage.clock.turn(1);
    assert_eq!(read().await.unwrap().status(), 404);
}
