//! Keys that work in some projects only: everything outside is as if it were another tenant's.

use chrono::TimeDelta;
use market::identity::Role;
use serde_json::{Value, json};

use crate::events::Stream;
use crate::service::{Answer, Key, Service, orderable_demand, ssh_key};

/// A tenant with two projects beside its first, and a member of each.
struct Scene {
    service: Service,
    /// Works in all projects.
    whole: Key,
    projects: [String; 2],
    /// Each works in the project of the same place.
    members: [Key; 2],
    demand: Value,
}

impl Scene {
    async fn set() -> Self {
        let service = Service::start().await;
        let whole = service.key("acme", Role::Member).await;
        ssh_key(&service, &whole).await;
        let mut projects = Vec::new();
        for name in ["vision", "speech"] {
            let made = service
                .with(&whole)
                .post("/v1/projects", &json!({ "name": name }));
            projects.push(id(&made.await.expect(201)));
        }
        let projects: [String; 2] = projects.try_into().expect("two");
        let members = [
            service.key_in("acme", Role::Member, &projects[0]).await,
            service.key_in("acme", Role::Member, &projects[1]).await,
        ];
        Self {
            demand: orderable_demand(&service).await,
            service,
            whole,
            projects,
            members,
        }
    }

    async fn post(&self, key: &Key, path: &str, body: Value) -> Answer {
        self.service.with(key).post(path, &body).await
    }

    async fn get(&self, key: &Key, path: &str) -> Answer {
        self.service.with(key).get(path).await
    }

    /// Reserves in one call; gives the reservation.
    async fn reserve(&self, key: &Key) -> Value {
        let body = json!({ "demand": self.demand });
        let placed = self.post(key, "/v1/reservations", body).await;
        placed.expect(201)
    }
}

fn id(made: &Value) -> String {
    made["id"].as_str().expect("an id").to_owned()
}

fn ids(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().expect("items").iter();
    items.filter_map(|item| item["id"].as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_reserves_in_its_project_and_sees_nothing_of_another() {
    let scene = Scene::set().await;
    let [vision, speech] = &scene.members;
    let own = scene.reserve(vision).await;
    assert_eq!(
        own["project_id"],
        scene.projects[0].as_str(),
        "the only one"
    );
    let theirs = id(&scene.reserve(speech).await);
    let of_all = id(&scene.reserve(&scene.whole).await);

    let listed = scene.get(vision, "/v1/reservations").await.expect(200);
    assert_eq!(ids(&listed), [id(&own)]);
    // As for a project that is not there.
    let path = format!("/v1/reservations?project_id={}", scene.projects[1]);
    assert_eq!(ids(&scene.get(vision, &path).await.expect(200)), [""; 0]);
    let listed = scene.get(&scene.whole, "/v1/reservations").await;
    assert_eq!(ids(&listed.expect(200)).len(), 3, "the whole tenant");
    for hidden in [&theirs, &of_all] {
        for path in ["", "/nodes", "/access", "/events"] {
            let path = format!("/v1/reservations/{hidden}{path}");
            scene.get(vision, &path).await.refused(404, "not_found");
        }
        let cancel = format!("/v1/reservations/{hidden}/cancel");
        let cancel = scene.service.with(vision).send("POST", &cancel, None);
        cancel.await.refused(404, "not_found");
    }
    let elsewhere = json!({ "demand": scene.demand, "project_id": scene.projects[1] });
    let refused = scene.post(vision, "/v1/reservations", elsewhere).await;
    refused.refused(422, "unknown_reference");
    let events = scene.get(vision, "/v1/events").await.expect(200);
    let events = events["items"].as_array().expect("items");
    assert!(!events.is_empty());
    for event in events {
        assert_eq!(event["reservation_id"], own["id"], "{event}");
    }
    let projects = scene.get(vision, "/v1/projects").await.expect(200);
    assert_eq!(ids(&projects), [scene.projects[0].as_str()]);
    scene.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_key_of_some_projects_lives_as_long_as_the_key() {
    let scene = Scene::set().await;
    let [vision, speech] = &scene.members;
    let mut stream = Stream::open(&scene.service, &vision.secret, "/v1/events", None).await;
    // By then the credential has been checked again.
    scene.service.world.clock().advance(TimeDelta::seconds(16));
    scene.reserve(speech).await;
    let own = scene.reserve(vision).await;
    let event = stream.next().await.expect("it goes on");
    assert_eq!(event.data["reservation_id"], own["id"]);
    scene.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_and_quotes_belong_to_the_projects_of_who_made_them() {
    let scene = Scene::set().await;
    let [vision, speech] = &scene.members;
    let plan = async |key: &Key| {
        id(&scene
            .post(key, "/v1/plans", scene.demand.clone())
            .await
            .expect(201))
    };
    let quote = async |key: &Key, plan: &str| {
        let body = json!({ "plan_id": plan });
        scene.post(key, "/v1/quotes", body).await
    };
    let (own, theirs, of_all) = (
        plan(vision).await,
        plan(speech).await,
        plan(&scene.whole).await,
    );
    assert!(
        own != theirs && own != of_all,
        "the same demand is not shared"
    );
    assert_eq!(plan(vision).await, own, "but with oneself");
    let quoted = id(&quote(vision, &own).await.expect(201));
    scene
        .get(vision, &format!("/v1/quotes/{quoted}"))
        .await
        .expect(200);
    for hidden in [&theirs, &of_all] {
        let path = format!("/v1/plans/{hidden}");
        scene.get(vision, &path).await.refused(404, "not_found");
        quote(vision, hidden).await.refused(404, "not_found");
    }
    let path = format!("/v1/quotes/{quoted}");
    scene.get(speech, &path).await.refused(404, "not_found");
    let take = json!({ "quote_id": quoted });
    let taken = scene.post(speech, "/v1/reservations", take).await;
    taken.refused(404, "not_found");
    // A caller who works in all projects sees the things made in one.
    scene.get(&scene.whole, &path).await.expect(200);
    scene.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_of_the_whole_tenant_is_out_of_reach() {
    let scene = Scene::set().await;
    let vision = &scene.members[0];
    for path in [
        "/v1/webhook-endpoints",
        "/v1/balance",
        "/v1/spending-limits",
        "/v1/budgets",
        "/v1/credits",
        "/v1/members",
    ] {
        let said = scene.get(vision, path).await.refused(403, "access_denied");
        assert!(said.contains("some of its projects only"), "{path}: {said}");
    }
    let hook = json!({ "url": "https://hooks.example.com/" });
    let made = scene.post(vision, "/v1/webhook-endpoints", hook).await;
    made.refused(403, "access_denied");
    let project = json!({ "name": "another" });
    let made = scene.post(vision, "/v1/projects", project).await;
    made.refused(403, "access_denied");
    // An SSH key would open machines of other projects. Those there are may be named.
    let keys = scene.get(vision, "/v1/ssh-keys").await.expect(200);
    let key = ids(&keys)[0].to_owned();
    let body = json!({ "name": "mine", "public_key": crate::service::SSH_LINE });
    let added = scene.post(vision, "/v1/ssh-keys", body).await;
    added.refused(403, "access_denied");
    let path = format!("/v1/ssh-keys/{key}");
    let deleted = scene.service.with(vision).delete(&path).await;
    deleted.refused(403, "access_denied");
    let report = scene.get(vision, "/v1/reports/costs").await.expect(200);
    assert_eq!(report["credited_usd"], Value::Null);
    scene.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_makes_and_sees_only_keys_that_reach_no_further() {
    let scene = Scene::set().await;
    let [vision, speech] = &scene.members;
    let make = async |key: &Key, projects: Value| {
        let body = json!({ "name": "ci", "role": "viewer", "projects": projects });
        scene.post(key, "/v1/api-keys", body).await
    };
    let [first, second] = &scene.projects;
    let made = make(vision, json!([first])).await.expect(201);
    assert_eq!(made["projects"], json!([first]));
    let inherited = make(vision, Value::Null).await.expect(201);
    assert_eq!(inherited["projects"], json!([first]), "as its maker");
    let wide = make(vision, json!([first, second])).await;
    wide.refused(403, "grant_exceeds_own");
    let both = make(&scene.whole, json!([second, first])).await.expect(201);
    let all = make(&scene.whole, Value::Null).await.expect(201);
    assert_eq!(all["projects"], Value::Null);

    let unknown = format!("prj_{}", "0".repeat(32));
    let refused = make(&scene.whole, json!([unknown])).await;
    refused.refused(422, "unknown_reference");
    let refused = make(&scene.whole, json!([])).await;
    assert!(refused.refused(422, "invalid_body").contains("1 to 100"));
    let admin = scene.service.key("acme", Role::Admin).await;
    let runs_it = json!({ "name": "ops", "role": "admin", "projects": [first] });
    let refused = scene.post(&admin, "/v1/api-keys", runs_it).await;
    assert!(refused.refused(422, "invalid_body").contains("`admin`"));

    let listed = scene.get(vision, "/v1/api-keys").await.expect(200);
    let mut seen = ids(&listed);
    seen.sort_unstable();
    let mut expected = [id(&made), id(&inherited), vision.id.to_string()];
    expected.sort_unstable();
    assert_eq!(seen, expected);
    for hidden in [speech.id.to_string(), id(&both), id(&all)] {
        let path = format!("/v1/api-keys/{hidden}");
        let revoked = scene.service.with(vision).delete(&path).await;
        revoked.refused(404, "not_found");
    }
    // The key that follows another works where that one did, and so does a token.
    let rotate = format!("/v1/api-keys/{}/rotate", vision.id);
    let rotated = scene.post(vision, &rotate, json!({})).await.expect(201);
    assert_eq!(rotated["projects"], json!([first]));
    let token = scene.service.with(vision).send("POST", "/v1/tokens", None);
    let token = token.await.expect(201);
    let theirs = id(&scene.reserve(speech).await);
    for bearer in [&rotated["secret"], &token["access_token"]] {
        let caller = scene.service.bearer(bearer.as_str().expect("a secret"));
        let path = format!("/v1/reservations/{theirs}");
        caller.get(&path).await.refused(404, "not_found");
    }
    scene.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_several_projects_says_in_which_it_reserves() {
    let scene = Scene::set().await;
    let body = json!({ "name": "ci", "role": "member", "projects": scene.projects });
    let made = scene
        .post(&scene.whole, "/v1/api-keys", body)
        .await
        .expect(201);
    let both = scene
        .service
        .bearer(made["secret"].as_str().expect("a secret"));
    let open = both.post("/v1/reservations", &json!({ "demand": scene.demand }));
    let said = open.await.refused(422, "invalid_body");
    assert!(said.contains("`project_id`"), "{said}");
    let named = json!({ "demand": scene.demand, "project_id": scene.projects[1] });
    let placed = both.post("/v1/reservations", &named).await.expect(201);
    assert_eq!(placed["project_id"], scene.projects[1].as_str());
    scene.service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotency_key_brings_no_answer_from_another_project() {
    let scene = Scene::set().await;
    let [vision, speech] = &scene.members;
    let once = async |key: &Key| {
        let body = json!({ "demand": scene.demand });
        let caller = scene.service.with(key).once("deploy-1");
        caller.post("/v1/reservations", &body).await.expect(201)
    };
    let first = once(vision).await;
    let theirs = once(speech).await;
    assert_ne!(first["id"], theirs["id"]);
    assert_eq!(theirs["project_id"], scene.projects[1].as_str());
    assert_eq!(once(vision).await["id"], first["id"], "answered again");
    assert_ne!(once(&scene.whole).await["id"], first["id"]);
    scene.service.stop().await;
}
