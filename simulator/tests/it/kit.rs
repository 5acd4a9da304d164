//! The kit by itself, with a provider that no file of the simulator knows.

use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use simulator::kit::{
    Auth, By, Call, Ids, NewThing, Order, Page, Paging, Refusal, Reply, Request, Route, Row,
    SSH_KEY, Shown, Twin, new_ssh_key, without_nulls,
};
use simulator::{Fault, FaultKind, Front, Market, NodeRunner, Operation, Provider};

use crate::stage::{KEY, Stage, body};

const fn twin(id: &'static str, auth: Auth, by: By) -> Twin {
    Twin {
        id,
        base_path: "/v1",
        auth,
        has_currency: true,
        knows_methods: true,
        ids: Ids::Number,
        paging: Some(Paging::new(by, "per_page", 2, 3)),
        impossible: &[(FaultKind::WrongModel, "it has one model only")],
        route,
        machine,
        refuse: |refusal, _| Reply::new(refusal.status(), json!({ "error": refusal.words() })),
        ..Twin::BASE
    }
}

/// Tokens that live for ten minutes.
static TOKENS: Twin = twin(
    "tokens",
    Auth::ClientCredentials {
        path: "/oauth2/token",
        lifetime_seconds: 600,
    },
    By::Offset("offset"),
);

/// A bearer token, and pages by their numbers.
static NUMBER: Twin = twin("number", Auth::BEARER, By::Number("page"));

/// A header of its own, and pages by a cursor.
static HEADER: Twin = twin(
    "header",
    Auth::Header {
        name: "X-API-KEY",
        prefix: "",
    },
    By::Cursor("cursor"),
);

const BY_TOKEN: Provider = Provider::of(&TOKENS);
const BY_NUMBER: Provider = Provider::of(&NUMBER);
const BY_HEADER: Provider = Provider::of(&HEADER);

fn route(request: &Request) -> Option<Route> {
    let items = |page: Page| Reply::ok(json!({ "items": page.items, "next": page.next }));
    Some(match (request.method(), request.segments().as_slice()) {
        ("GET", ["types"]) => Route::catalog(types, items),
        ("GET", ["instances"]) => Route::list(items),
        ("GET", ["instances", _]) => Route::read(Reply::ok),
        ("PUT", ["instances"]) => Route::launch(order, |made| Reply::text(202, &*made.id)),
        ("PATCH", ["instances", _]) => Route::release(|| Reply::empty(204)),
        ("GET", ["keys"]) => Route::things(SSH_KEY, items).in_one_piece(),
        ("POST", ["keys"]) => Route::add_thing(SSH_KEY, new_ssh_key, |key| Reply::new(201, key)),
        ("DELETE", ["keys", _]) => Route::remove_thing(SSH_KEY, || Reply::empty(204)),
        ("POST", ["scripts"]) => Route::add_thing("script", script, |_| Reply::empty(201)),
        _ => return None,
    })
}

fn types(call: &Call<'_>) -> Vec<Value> {
    let record = |row: &Row| json!({ "name": row.sku, "place": row.place, "currency": call.currency(), "gpus": row.gpus });
    call.rows().map(record).collect()
}

fn script(_: &Call<'_>, request: &Request) -> Result<NewThing, Refusal> {
    let name = request.fields()?.text("name")?;
    Ok(NewThing {
        name,
        body: Value::Null,
    })
}

fn order(call: &Call<'_>, request: &Request) -> Result<Order, Refusal> {
    let body = request.fields()?;
    let keys = call.public_keys(&body.texts("keys", 0..=9)?)?;
    let script = body.optional("script", 99)?;
    let script = script.map(|id| call.thing("script", &id)).transpose()?;
    Ok(Order {
        authorized_keys: keys,
        user_data: script.map(|script| script.name.clone()),
        ..Order::of(body.text("type")?, body.text("place")?)
    })
}

fn machine(shown: &Shown<'_>) -> Value {
    let id: Option<u64> = shown.id.parse().ok();
    without_nulls(json!({
        "id": id, "status": shown.status(), "ip": shown.host().map(|host| &host.public_ip),
    }))
}

/// Five types at one place.
fn rows(provider: Provider) -> Vec<Row> {
    let bundled = Market::bundled();
    let row = |n: u32| Row {
        provider,
        sku: format!("type-{n}"),
        ..bundled.rows()[0].clone()
    };
    (0..5).map(row).collect()
}

async fn stage(provider: Provider) -> Stage {
    Stage::with(|config| {
        config.node_runner = NodeRunner::Off;
        config.providers = vec![provider];
        config.market = Market::try_new(rows(provider)).unwrap();
    })
    .await
}

fn with_key(stage: &Stage, method: Method, path: &str) -> RequestBuilder {
    let request = stage.anonymous(BY_HEADER, method, path);
    request.header("x-api-key", stage.simulator.credential(BY_HEADER))
}

async fn get(stage: &Stage, path: &str) -> Value {
    let request = with_key(stage, Method::GET, path);
    body(request.send().await.unwrap(), 200).await
}

async fn launch(stage: &Stage, order: &Value) -> reqwest::Response {
    let request = with_key(stage, Method::PUT, "/instances").json(order);
    request.send().await.unwrap()
}

fn an_order() -> Value {
    json!({ "type": "type-1", "place": rows(BY_HEADER)[0].place })
}

#[tokio::test]
async fn a_credential_is_exchanged_for_a_token_that_ends_by_the_clock() {
    let stage = stage(BY_TOKEN).await;
    let credential = stage.simulator.credential(BY_TOKEN);
    let (id, secret) = credential.split_once(':').unwrap();
    let exchange = || stage.anonymous(BY_TOKEN, Method::POST, "/oauth2/token");
    let form = format!("grant_type=client_credentials&client_id={id}&client_secret={secret}");
    let given = json!({ "client_id": id, "client_secret": secret });
    let as_form = exchange()
        .header("content-type", "application/x-www-form-urlencoded")
        .body(form);
    for request in [exchange().json(&given), as_form] {
        let token = body(request.send().await.unwrap(), 200).await;
        assert_eq!(token["expires_in"], 600);
        assert_eq!(token["token_type"], "Bearer");
        let list = async || {
            let request = stage.anonymous(BY_TOKEN, Method::GET, "/instances");
            let request = request.bearer_auth(token["access_token"].as_str().unwrap());
            request.send().await.unwrap().status().as_u16()
        };
        stage.clock.turn(599);
        assert_eq!(list().await, 200);
        stage.clock.turn(1);
        assert_eq!(list().await, 401, "it has ended");
    }
    let wrong = json!({ "client_id": id, "client_secret": "guessed" });
    let refused = exchange().json(&wrong).send().await.unwrap();
    assert_eq!(refused.status(), 401);
    let itself = stage.request(BY_TOKEN, Method::GET, "/instances");
    assert_eq!(itself.send().await.unwrap().status(), 401);
    let front = Some(Front::CredentialRefused);
    stage.simulator.put_front(BY_TOKEN, front);
    let refused = exchange().json(&given).send().await.unwrap();
    assert_eq!(refused.status(), 401);
    let counts = stage.simulator.call_counts();
    assert_eq!(counts[&(BY_TOKEN, Operation::Token)], 4);
}

#[tokio::test]
async fn a_credential_in_a_header_of_its_own_is_the_only_one_that_counts() {
    let stage = stage(BY_HEADER).await;
    assert_eq!(get(&stage, "/instances").await["items"], json!([]));
    let bearer = stage.request(BY_HEADER, Method::GET, "/instances");
    assert_eq!(bearer.send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn lists_are_paged_by_a_cursor_and_some_are_in_one_piece() {
    let stage = stage(BY_HEADER).await;
    let (mut seen, mut path) = (Vec::new(), "/types".to_owned());
    loop {
        let page = get(&stage, &path).await;
        let items = page["items"].as_array().unwrap();
        seen.extend(items.iter().map(|item| item["name"].clone()));
        let Some(next) = page["next"].as_str() else {
            break;
        };
        path = format!("/types?cursor={next}");
    }
    let all: Vec<String> = (0..5).map(|n| format!("type-{n}")).collect();
    assert_eq!(json!(seen), json!(all));
    let longest = get(&stage, "/types?per_page=99").await;
    assert_eq!(longest["items"].as_array().unwrap().len(), 3);
    for name in ["one", "two", "three"] {
        let key = json!({ "name": name, "public_key": KEY });
        let request = with_key(&stage, Method::POST, "/keys").json(&key);
        body(request.send().await.unwrap(), 201).await;
    }
    let keys = get(&stage, "/keys").await;
    assert_eq!(keys["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn lists_are_paged_by_the_number_of_the_page() {
    let stage = stage(BY_NUMBER).await;
    for (page, names, next) in [
        (1, json!(["type-0", "type-1"]), json!("2")),
        (2, json!(["type-2", "type-3"]), json!("3")),
        (3, json!(["type-4"]), Value::Null),
        (4, json!([]), Value::Null),
    ] {
        let path = format!("/types?page={page}");
        let request = stage.request(BY_NUMBER, Method::GET, &path);
        let answer = body(request.send().await.unwrap(), 200).await;
        let items = answer["items"].as_array().unwrap().iter();
        let seen: Value = items.map(|item| item["name"].clone()).collect();
        assert_eq!((&seen, &answer["next"]), (&names, &next), "{page}");
    }
}

#[tokio::test]
async fn a_price_list_with_pages_breaks_after_the_first_whatever_they_are_named_by() {
    let stage = stage(BY_HEADER).await;
    let fault = Fault::new(BY_HEADER, FaultKind::PartialCatalog);
    stage.simulator.break_next(fault).unwrap();
    let first = get(&stage, "/types?per_page=3").await;
    assert_eq!(first["items"].as_array().unwrap().len(), 2);
    let path = format!("/types?cursor={}", first["next"].as_str().unwrap());
    let second = with_key(&stage, Method::GET, &path).send().await.unwrap();
    assert_eq!(second.status(), 500);
    get(&stage, "/types").await;
    get(&stage, &path).await;
}

#[tokio::test]
async fn an_odd_record_has_the_fields_of_the_others_and_nothing_to_read_in_them() {
    let stage = stage(BY_HEADER).await;
    let fault = Fault::new(BY_HEADER, FaultKind::OddRecord);
    stage.simulator.break_next(fault.times(2)).unwrap();
    get(&stage, "/types").await;
    let page = get(&stage, "/types?cursor=after-4").await;
    let odd = json!({ "name": "odd", "place": "odd", "currency": "odd", "gpus": { "odd": true } });
    assert_eq!(page["items"][1], odd);
}

#[tokio::test]
async fn prices_are_in_euros_only_where_they_name_a_currency() {
    let stage = stage(BY_HEADER).await;
    let fault = |provider| Fault::new(provider, FaultKind::OtherCurrency);
    stage.simulator.break_next(fault(BY_HEADER)).unwrap();
    let currency = async || get(&stage, "/types").await["items"][0]["currency"].clone();
    assert_eq!(currency().await, "EUR");
    assert_eq!(currency().await, "USD");
    let refused = stage.simulator.break_next(fault(Provider::LAMBDA));
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("name no currency"), "{why}");
}

#[tokio::test]
async fn a_fault_that_a_twin_declares_impossible_is_refused_with_its_reason() {
    let stage = stage(BY_HEADER).await;
    let refused = stage
        .simulator
        .break_next(Fault::new(BY_HEADER, FaultKind::WrongModel));
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("it has one model only"), "{why}");
}

#[tokio::test]
async fn a_machine_is_made_by_any_method_and_an_answer_may_be_plain_text() {
    let stage = stage(BY_HEADER).await;
    let answer = launch(&stage, &an_order()).await;
    assert_eq!(answer.status(), 202);
    assert_eq!(
        answer.headers()["content-type"],
        "text/plain; charset=utf-8"
    );
    let id = answer.text().await.unwrap();
    let number: u64 = id.parse().unwrap();
    let path = format!("/instances/{id}");
    let booting = json!({ "id": number, "status": "booting" });
    assert_eq!(get(&stage, &path).await, booting, "no field is null");
    let delete = with_key(&stage, Method::DELETE, &path);
    assert_eq!(delete.send().await.unwrap().status(), 405);
    let patch = with_key(&stage, Method::PATCH, &path);
    assert_eq!(patch.send().await.unwrap().status(), 204);
    let gone = with_key(&stage, Method::GET, &path);
    assert_eq!(gone.send().await.unwrap().status(), 404);
}

#[tokio::test]
async fn what_is_left_beside_the_machines_is_counted() {
    let stage = stage(BY_HEADER).await;
    let post = |path: &str, new: Value| with_key(&stage, Method::POST, path).json(&new).send();
    let key = json!({ "name": "ours", "public_key": KEY });
    let made = body(post("/keys", key.clone()).await.unwrap(), 201).await;
    assert_eq!(post("/keys", key).await.unwrap().status(), 400);
    post("/scripts", json!({ "name": "start" })).await.unwrap();
    let left = || {
        let things = stage.simulator.things(BY_HEADER).into_iter();
        let named = things.map(|thing| (thing.kind, thing.name));
        named.collect::<Vec<_>>()
    };
    let script = ("script", "start".to_owned());
    assert_eq!(left(), [(SSH_KEY, "ours".to_owned()), script.clone()]);

    let mut order = an_order();
    order["keys"] = json!(["theirs"]);
    assert_eq!(launch(&stage, &order).await.status(), 404);
    order["keys"] = json!(["ours"]);
    order["script"] = json!("0");
    assert_eq!(launch(&stage, &order).await.status(), 404);
    order["script"] = json!(stage.simulator.things(BY_HEADER)[1].id);
    assert_eq!(launch(&stage, &order).await.status(), 202);

    let path = format!("/keys/{}", made["id"].as_str().unwrap());
    for status in [204, 404] {
        let delete = with_key(&stage, Method::DELETE, &path);
        assert_eq!(delete.send().await.unwrap().status(), status);
    }
    assert_eq!(left(), [script]);
}

#[tokio::test]
async fn a_front_may_answer_one_kind_of_call_and_leave_the_others_alone() {
    let stage = stage(BY_HEADER).await;
    let front = Front::PageOn {
        operation: Operation::Launch,
        status: 410,
    };
    stage.simulator.put_front(BY_HEADER, Some(front));
    let answer = launch(&stage, &an_order()).await;
    assert_eq!(answer.status(), 410);
    assert_eq!(answer.headers()["content-type"], "text/html");
    assert_eq!(get(&stage, "/instances").await["items"], json!([]));
    assert_eq!(stage.simulator.launches(BY_HEADER), []);
}
