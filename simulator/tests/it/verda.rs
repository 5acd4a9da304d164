//! The wire format of verda.

use reqwest::{Method, Response};
use rust_decimal::Decimal;
use serde_json::{Value, json};
use simulator::{Fault, FaultKind, Provider};

use crate::stage::{KEY, Stage, body, but};

/// A client of the API with a token.
struct Account {
    stage: Stage,
    token: String,
}

impl Account {
    async fn new() -> Self {
        let stage = Stage::new().await;
        let credential = stage.simulator.credential(Provider::VERDA);
        let (id, secret) = credential.split_once(':').unwrap();
        let grant = json!({ "client_id": id, "client_secret": secret });
        let exchange = stage.anonymous(Provider::VERDA, Method::POST, "/oauth2/token");
        let answer = body(exchange.json(&grant).send().await.unwrap(), 200).await;
        let token = answer["access_token"].as_str().unwrap().to_owned();
        Self { stage, token }
    }

    async fn call(&self, method: Method, path: &str, sent: &Value) -> Response {
        let request = self.stage.anonymous(Provider::VERDA, method, path);
        let request = request.bearer_auth(&self.token).json(sent);
        request.send().await.unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        body(self.call(Method::GET, path, &Value::Null).await, 200).await
    }

    async fn order(&self, order: &Value) -> Response {
        self.call(Method::POST, "/instances", order).await
    }

    async fn launch(&self, order: &Value) -> String {
        let answer = self.order(order).await;
        assert_eq!(answer.status(), 202);
        answer.text().await.unwrap()
    }

    async fn delete(&self, id: &str, volumes: &[&str]) -> Response {
        let delete = json!({ "action": "delete", "id": [id], "volume_ids": volumes });
        self.call(Method::PUT, "/instances", &delete).await
    }

    /// An order of one H200, with a key of the account.
    async fn one_h200(&self) -> Value {
        let key = json!({ "name": "ours", "key": KEY });
        let key = body(self.call(Method::POST, "/ssh-keys", &key).await, 201).await;
        json!({
            "instance_type": "1H200.141S.44V", "image": "24.04.cuda12.9.docker", "hostname": "one",
            "description": "one", "ssh_key_ids": [key], "location_code": "FIN-02",
        })
    }
}

#[tokio::test]
async fn a_type_has_one_record_and_what_is_free_is_told_by_place() {
    let account = Account::new().await;
    let types = account.get("/instance-types?currency=usd").await;
    let of = |wanted: &&Value| wanted["instance_type"] == "1H200.141S.44V";
    let h200: Vec<&Value> = types.as_array().unwrap().iter().filter(of).collect();
    assert_eq!(h200.len(), 1, "{types}");
    let price = (&h200[0]["price_per_hour"], &h200[0]["spot_price"]);
    assert_eq!(price, (&json!("3.39"), &json!("1.1865")));
    let places = account.get("/instance-availability?is_spot=true").await;
    let has_h200 = |place: &&Value| place["availabilities"].to_string().contains("1H200");
    let free = places.as_array().unwrap().iter().filter(has_h200);
    let free: Vec<&Value> = free.map(|place| &place["location_code"]).collect();
    assert_eq!(free, ["FIN-02"]);
}

#[tokio::test]
async fn a_spot_machine_is_billed_at_the_spot_price_and_another_at_the_list_price() {
    let account = Account::new().await;
    let order = account.one_h200().await;
    account.launch(&order).await;
    let spot = account.launch(&but(order, "is_spot", true)).await;
    let lines = account.stage.simulator.bill(Provider::VERDA).lines;
    let prices: Vec<Decimal> = lines.iter().map(|it| it.price_usd_hour).collect();
    assert_eq!(prices, [Decimal::new(339, 2), Decimal::new(11_865, 4)]);
    let shown = account.get(&format!("/instances/{spot}")).await;
    let terms = (&shown["is_spot"], &shown["price_per_hour"]);
    assert_eq!(terms, (&json!(true), &json!("1.1865")), "{shown}");
}

#[tokio::test]
async fn a_disk_that_a_delete_does_not_name_stays() {
    let account = Account::new().await;
    let order = account.one_h200().await;
    for (named, left) in [(true, 0), (false, 1)] {
        let id = account.launch(&order).await;
        let volumes: &[&str] = if named { &[&id] } else { &[] };
        assert_eq!(account.delete(&id, volumes).await.status(), 204);
        let volumes = account.get("/volumes").await;
        assert_eq!(volumes.as_array().unwrap().len(), left, "{volumes}");
    }
}

#[tokio::test]
async fn an_order_and_a_delete_are_refused_in_its_words() {
    let account = Account::new().await;
    let order = account.one_h200().await;
    let elsewhere = but(order.clone(), "location_code", "FIN-03");
    let gone = body(account.order(&elsewhere).await, 503).await;
    assert_eq!(gone["message"], "No capacity available", "{gone}");
    let id = account.launch(&order).await;
    let fault = Fault::new(Provider::VERDA, FaultKind::CannotDeleteYet);
    account.stage.simulator.break_next(fault).unwrap();
    let early = body(account.delete(&id, &[&id]).await, 403).await;
    assert_eq!(early["code"], "forbidden_action", "{early}");
}
