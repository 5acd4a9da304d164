//! The answers of `hyperstack`, by the OpenAPI document of its interface of 2026-06-17. Our choices: an unknown
//! environment, key pair or flavor is a 404; rules for ports change nothing; `ssh_port` is not in the format.

use serde_json::{Map, Value, json};

use crate::kit::*;

const ENV: &str = "environment";
const KEY: &str = "keypair";

static HYPERSTACK: Twin = Twin {
    id: "hyperstack",
    base_path: "/v1",
    timing: Timing::boot(240).ending(20),
    auth: Auth::Header {
        name: "api_key",
        prefix: "",
    },
    ids: Ids::Number,
    paging: Some(Paging::new(By::Number("page"), "pageSize", 10, 100)),
    rows: RowRules {
        per: PriceBasis::Gpu,
        price_group: |row| row.gpu_label.clone(),
        ..RowRules::BASE
    },
    words: StatusWords {
        booting: "BUILD",
        running: "ACTIVE",
        failed: "ERROR",
        ending: "DELETING",
        ..Twin::BASE.words
    },
    route,
    machine,
    thing,
    refuse,
    ..Twin::BASE
};

impl Provider {
    /// `hyperstack`: virtual machines, one to a launch.
    pub const HYPERSTACK: Self = Self::of(&HYPERSTACK);
}

fn route(request: &Request) -> Option<Route> {
    Some(match (request.method(), request.segments().as_slice()) {
        ("GET", ["pricebook"]) => Route::to(Operation::Places, pricebook),
        ("GET", ["core", "stocks"]) => Route::to(Operation::Places, stocks),
        ("GET", ["core", "flavors"]) => Route::to(Operation::Catalog, flavors),
        ("GET", ["core", "virtual-machines"]) => Route::list(|it| page("instance", it)),
        ("POST", ["core", "virtual-machines"]) => {
            Route::launch(order, |made| ok("instances", json!([machine(made)])))
        }
        ("GET", ["core", "virtual-machines", _]) => Route::read(|it| ok("instance", it)),
        ("DELETE", ["core", "virtual-machines", _]) => Route::release(|| ok("message", json!(""))),
        ("GET", ["core", "environments"]) => Route::things(ENV, |it| page(ENV, it)),
        ("POST", ["core", "environments"]) => Route::add_thing(ENV, new, |it| ok(ENV, it)),
        ("GET", ["core", "keypairs"]) => Route::things(KEY, |it| page(KEY, it)),
        ("POST", ["core", "keypairs"]) => Route::add_thing(KEY, new, |it| ok(KEY, it)),
        ("DELETE", ["core", "keypair", _]) => Route::remove_thing(KEY, || ok(KEY, json!(null))),
        _ => return None,
    })
}

fn ok(field: &str, value: Value) -> Reply {
    Reply::ok(json!({ "status": true, field: value }))
}

fn page(kind: &str, page: Page) -> Reply {
    Reply::ok(json!({ "status": true, "count": page.total, (format!("{kind}s")): page.items }))
}

fn refuse(refusal: &Refusal, _: &Request) -> Reply {
    let (status, message) = match refusal {
        Refusal::NameTaken => (409, "It already exists"),
        Refusal::SoldOut => (400, "Not enough stock"),
        Refusal::NotYet => (400, "It is being created"),
        other => (other.status(), other.words()),
    };
    Reply::new(status, json!({ "status": false, "message": message }))
}

fn flavors(call: &mut Call<'_>, _: &Request) -> Answer {
    let group = |row: &Row| json!({ "flavors": [flavor(row)] });
    let groups = call.catalog(call.rows().map(group).collect());
    Ok(ok("data", json!(groups)))
}

fn flavor(row: &Row) -> Value {
    json!({
        "name": row.sku, "gpu": row.gpu_label, "gpu_count": row.gpus, "region_name": row.place, "cpu": row.vcpus,
        "ram": row.memory_gib, "disk": row.storage_gib, "stock_available": row.free_nodes > 0,
    })
}

fn pricebook(call: &mut Call<'_>, _: &Request) -> Answer {
    let price = |row: &Row| json!({ "name": row.gpu_label, "value": row.price_usd_hour });
    Ok(Reply::ok(call.rows().map(price).collect()))
}

fn stocks(call: &mut Call<'_>, _: &Request) -> Answer {
    let by_stock = |row: &Row| (row.place.clone(), row.gpu_label.clone());
    let stocks = call.records(by_stock, |rows| {
        let count = |row: &&Row| (format!("{}x", row.gpus), json!(row.free_nodes));
        let counts: Map<_, _> = rows.iter().map(count).collect();
        json!({ "region": rows[0].place, "models": [{ "model": rows[0].gpu_label, "configurations": counts }] })
    });
    Ok(Reply::ok(json!({ "stocks": stocks })))
}

fn new(call: &Call<'_>, request: &Request) -> Result<NewThing, Refusal> {
    let fields = request.fields()?;
    let kind = request.last_segment().trim_end_matches('s');
    let name = fields.short("name", 50)?;
    let taken = call.thing_named(kind, &name);
    taken.map_or(Ok(()), |_| Err(Refusal::NameTaken))?;
    let body = if kind == ENV {
        let region = fields.text("region")?;
        let row = call.rows().find(|row| row.place == region);
        json!({ "region": row.ok_or(Refusal::UnknownPlace)?.place })
    } else {
        let of = call.thing_named(ENV, &fields.text("environment_name")?);
        let of = thing(of.ok_or(Refusal::NoSuchThing)?);
        json!({ "environment": of, "public_key": fields.text("public_key")? })
    };
    Ok(NewThing { name, body })
}

fn thing(thing: &Thing) -> Value {
    let mut shown = thing.body.clone();
    (shown["id"], shown["name"]) = (json!(thing.id.parse::<u64>().ok()), json!(thing.name));
    shown
}

fn order(call: &Call<'_>, request: &Request) -> Result<Order, Refusal> {
    let body = request.fields()?;
    let key = call.thing_named(KEY, &body.text("key_name")?);
    let key = &key.ok_or(Refusal::NoSuchThing)?.body;
    let env = &key["environment"];
    let is_in_it = env["name"] == *body.text("environment_name")?;
    require(is_in_it, "key_name: it is of another environment")?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(Order {
        name: body.short("name", 50)?,
        nodes: body.count("count", 1..=20)?.unwrap_or_default(),
        user_data: body.optional("user_data", 65_535)?,
        authorized_keys: vec![text(&key["public_key"])],
        echo: json!({ "env": env, "labels": body.texts("labels", 0..=9)? }),
        ..Order::of(body.text("flavor_name")?, text(&env["region"]))
    })
}

fn machine(shown: &Shown<'_>) -> Value {
    let (host, echo) = (shown.host(), &shown.order.echo);
    json!({
        "id": shown.id.parse::<u64>().ok(), "name": shown.order.name, "status": shown.status(), "labels": echo["labels"],
        "flavor": flavor(&shown.row), "environment": echo["env"], "created_at": shown.created_at.to_rfc3339(),
        "floating_ip": host.map(|it| &it.public_ip), "fixed_ip": host.map(|it| &it.private_ip), "ssh_port": shown.ssh_port,
    })
}
