//! Random calls that name another tenant's things, or another project of one's own where the key is bound to
//! one: none is admitted, and none shows anything of them. 20,000 here; `cargo xtask cross-tenant --calls N
//! --seed S` makes as many as wanted.

use std::sync::Arc;

use market::identity::Role;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use crate::belongings::Belongings;
use crate::eventually::in_time;
use crate::routes;
use crate::service::{Key, Service, orderable_demand};

/// Calls under way at once.
const LANES: u64 = 16;

fn number(name: &str, usual: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(usual, |text| text.parse().expect("a whole number"))
}

/// The state shared by all callers.
struct Scene {
    service: Service,
    victim: Belongings,
    demand: Value,
    strangers: Vec<Stranger>,
    /// Cursors of the victim's lists.
    cursors: Vec<(&'static str, String)>,
    routes: Vec<String>,
}

/// Callers who may not see the victim's things: keys of every role, tokens, expired and made-up credentials.
#[derive(Debug, Clone)]
struct Stranger {
    role: Option<Role>,
    bearer: Option<String>,
    /// Whether it is of the victim's tenant, with a key that works in another project only.
    neighbour: bool,
    /// A webhook endpoint of its own.
    endpoint: Option<String>,
}

/// One call that names something of the victim's.
#[derive(Debug)]
struct Call {
    method: String,
    path: String,
    body: Option<Value>,
    bearer: Option<String>,
    idempotency_key: Option<String>,
    /// Whether it asks for a stream of events.
    follows: bool,
    /// Whether an answer without anything of the victim's may be a good one.
    may_succeed: bool,
}

const VICTIMS_IDEMPOTENCY_KEY: &str = "the-key-of-the-victim";

/// Lists that take `?tenant=`.
const LISTS: [&str; 16] = [
    "/v1/reservations",
    "/v1/events",
    "/v1/webhook-endpoints",
    "/v1/ssh-keys",
    "/v1/api-keys",
    "/v1/projects",
    "/v1/reports/costs",
    "/v1/balance",
    "/v1/spending-limits",
    "/v1/required-tags",
    "/v1/budgets",
    "/v1/commitments",
    "/v1/provider-accounts",
    "/v1/credits",
    "/v1/members",
    "/v1/audit",
];

impl Scene {
    async fn set() -> Self {
        let service = Service::start_with_nodes().await;
        let member = service.key("acme", Role::Member).await;
        let admin = service.key("acme", Role::Admin).await;
        let mark = "canary-7f3a";
        let victim = Belongings::make(&service, &member, &admin, mark).await;
        service
            .with(&member)
            .once(VICTIMS_IDEMPOTENCY_KEY)
            .post("/v1/projects", &json!({ "name": format!("{mark}-2") }))
            .await
            .expect(201);
        let mut cursors = Vec::new();
        for list in ["/v1/projects", "/v1/api-keys"] {
            let page = service.with(&member).get(&format!("{list}?limit=1")).await;
            let cursor = page.expect(200)["next_cursor"].clone();
            cursors.push((list, cursor.as_str().expect("another page").to_owned()));
        }
        let stranger = |role, bearer, neighbour| Stranger {
            role,
            bearer,
            neighbour,
            endpoint: None,
        };
        let mut strangers = vec![
            stranger(None, None, false),
            stranger(None, Some("gpb_made-up".to_owned()), false),
            stranger(None, Some("a.b.c".to_owned()), false),
        ];
        let next_door = service
            .with(&member)
            .post("/v1/projects", &json!({ "name": "next door" }))
            .await
            .expect(201);
        let next_door = next_door["id"].as_str().expect("an id");
        for role in Role::ALL {
            let key = service.key("other", role).await;
            let mut keys = vec![(key, false)];
            if !matches!(role, Role::Admin | Role::Provider) {
                keys.push((service.key_in("acme", role, next_door).await, true));
            }
            for (key, neighbour) in keys {
                let token = Self::trade(&service, &key).await;
                let own = json!({ "url": "https://hooks.example.com/theirs" });
                let own = service.with(&key).post("/v1/webhook-endpoints", &own).await;
                let endpoint = own.body["id"].as_str().map(str::to_owned);
                for bearer in [key.secret, token] {
                    let endpoint = endpoint.clone();
                    let stranger = stranger(Some(role), Some(bearer), neighbour);
                    strangers.push(Stranger {
                        endpoint,
                        ..stranger
                    });
                }
            }
        }
        Self {
            demand: orderable_demand(&service).await,
            routes: routes::all().iter().map(ToString::to_string).collect(),
            service,
            victim,
            strangers,
            cursors,
        }
    }

    async fn trade(service: &Service, key: &Key) -> String {
        let made = service.with(key).send("POST", "/v1/tokens", None).await;
        let made = made.expect(201);
        made["access_token"].as_str().expect("a token").to_owned()
    }

    fn random_call(&self, random: &mut StdRng) -> Call {
        let Stranger {
            role,
            bearer,
            neighbour,
            endpoint,
        } = self.strangers.choose(random).expect("some").clone();
        let idempotency_key = random
            .random_bool(0.2)
            .then(|| VICTIMS_IDEMPOTENCY_KEY.to_owned());
        let call = |method: &str, path: String, body: Option<Value>| Call {
            method: method.to_owned(),
            path,
            body,
            bearer: bearer.clone(),
            idempotency_key: idempotency_key.clone(),
            follows: false,
            may_succeed: false,
        };
        let tenant = &self.victim.tenant;
        match random.random_range(0..10) {
            // A list of the victim's. An administrator runs the service and may see it.
            0 if role != Some(Role::Admin) => {
                let list = LISTS.choose(random).expect("some");
                // The SSH keys belong to the tenant as a whole, for every member who reserves in it.
                let list = match (neighbour, *list) {
                    (true, "/v1/ssh-keys") => "/v1/events",
                    (_, list) => list,
                };
                Call {
                    may_succeed: neighbour,
                    ..call("GET", format!("{list}?tenant={tenant}"), None)
                }
            }
            1 => {
                let (list, cursor) = self.cursors.choose(random).expect("some");
                Call {
                    may_succeed: neighbour,
                    ..call("GET", format!("{list}?limit=1&cursor={cursor}"), None)
                }
            }
            2 => {
                let path = format!("/v1/reservations?project_id={}", self.victim.project);
                Call {
                    may_succeed: true,
                    ..call("GET", path, None)
                }
            }
            // The thing that would work otherwise.
            3 => {
                let (path, body) = self.half_own(endpoint, neighbour, random);
                call("POST", path, body)
            }
            _ => {
                let named: Vec<_> = self
                    .routes
                    .iter()
                    .filter(|route| self.names_the_victim(route))
                    .collect();
                let route = named.choose(random).expect("some");
                let (method, path) = route.split_once(' ').expect("method and path");
                let mut path = self.victim.path(path);
                let follows = path.ends_with("/events") && random.random_bool(0.5);
                if role != Some(Role::Admin) && random.random_bool(0.3) {
                    path.push_str(&format!("?tenant={tenant}"));
                }
                Call {
                    follows,
                    ..call(method, path, self.victim.body(route, &self.demand))
                }
            }
        }
    }

    /// A path and a body that name one of the victim's things beside the caller's own.
    fn half_own(
        &self,
        endpoint: Option<String>,
        neighbour: bool,
        random: &mut StdRng,
    ) -> (String, Option<Value>) {
        let victim = &self.victim;
        let reservation = |also: Value| {
            let mut body = json!({ "demand": self.demand });
            body.as_object_mut()
                .zip(also.as_object())
                .map(|(body, also)| body.extend(also.clone()))
                .expect("objects");
            ("/v1/reservations".to_owned(), Some(body))
        };
        match (random.random_range(0..6), endpoint) {
            (0, Some(own)) => {
                let delivery = &victim.delivery;
                let path = format!("/v1/webhook-endpoints/{own}/deliveries/{delivery}/redeliver");
                (path, None)
            }
            (1, _) => {
                let project = [&victim.project];
                let body = json!({ "name": "theirs", "role": "viewer", "projects": project });
                ("/v1/api-keys".to_owned(), Some(body))
            }
            (2, _) => {
                let body = json!({
                    "project_id": victim.project, "period": "day", "cap_usd": "1", "mode": "notify",
                });
                ("/v1/budgets".to_owned(), Some(body))
            }
            (3, _) => reservation(json!({ "project_id": victim.project })),
            // The SSH keys are of the tenant as a whole.
            (4, _) if !neighbour => reservation(json!({ "ssh_key_ids": [victim.ssh_key] })),
            _ => reservation(json!({
                "project_id": victim.project, "ssh_key_ids": [victim.ssh_key],
            })),
        }
    }

    /// Whether a route takes an id of the victim's, in its path or its body.
    fn names_the_victim(&self, route: &str) -> bool {
        let (_, path) = route.split_once(' ').expect("method and path");
        let body = self.victim.body(route, &json!({})).unwrap_or_default();
        let said = format!("{}{body}", self.victim.path(path));
        self.victim.ids().iter().any(|id| said.contains(id))
    }

    async fn check(&self, call: &Call) {
        let mut caller = match &call.bearer {
            Some(bearer) => self.service.bearer(bearer),
            None => self.service.anyone(),
        };
        if let Some(key) = &call.idempotency_key {
            caller = caller.once(key);
        }
        if call.follows {
            caller = caller.header("accept", "text/event-stream");
        }
        let body = call.body.as_ref().map(|body| {
            let bytes = body.to_string().into_bytes();
            ("application/json", bytes)
        });
        let answer = caller.send(&call.method, &call.path, body);
        // A stream that is opened has no end.
        let answer = in_time(&format!("the refusal of {call:?}"), answer).await;
        assert!(
            call.may_succeed || (400..500).contains(&answer.status),
            "{call:?} was answered {}: {}",
            answer.status,
            answer.text
        );
        assert!(answer.status < 500, "{call:?}: {}", answer.text);
        let text = &answer.text;
        assert!(
            !text.contains(&self.victim.mark),
            "{call:?} shows a name: {text}"
        );
        let asked = format!("{}{}", call.path, call.body.clone().unwrap_or_default());
        for id in self.victim.ids() {
            // An answer may repeat names that the caller sent itself.
            assert!(
                asked.contains(id) || !text.contains(id),
                "{call:?} shows {id}: {text}"
            );
        }
    }

    /// The victim's things, as an administrator of its tenant sees them.
    async fn seen_by(&self, key: &Key) -> Vec<Value> {
        let mut seen = Vec::new();
        // The log reports refused calls, as it should.
        for path in LISTS.into_iter().filter(|path| *path != "/v1/audit") {
            seen.push(self.service.with(key).get(path).await.expect(200));
        }
        seen
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn random_calls_read_and_touch_nothing_of_another_tenant() {
    let (calls, seed) = (
        number("CROSS_TENANT_CALLS", 4_000),
        number("CROSS_TENANT_SEED", 1),
    );
    eprintln!("{calls} calls, seed {seed}");
    let scene = Arc::new(Scene::set().await);
    let victim = scene.service.key("acme", Role::Admin).await;
    // The first look notes the use of the key, so that the second finds it noted.
    scene.seen_by(&victim).await;
    let before = scene.seen_by(&victim).await;
    let mut lanes = tokio::task::JoinSet::new();
    for lane in 0..LANES {
        let scene = Arc::clone(&scene);
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(LANES).wrapping_add(lane));
        lanes.spawn(async move {
            for _ in 0..calls.div_ceil(LANES) {
                scene.check(&scene.random_call(&mut random)).await;
            }
        });
    }
    while let Some(lane) = lanes.join_next().await {
        if let Err(failure) = lane {
            std::panic::resume_unwind(failure.into_panic());
        }
    }
    assert_eq!(scene.seen_by(&victim).await, before, "nothing has changed");
    let scene = Arc::into_inner(scene).expect("no lane is left");
    scene.service.stop().await;
}
