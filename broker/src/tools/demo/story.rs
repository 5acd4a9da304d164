//! The story, chapter by chapter, through our own API. Its output is in [`show`].

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use market::counted::counted;
use market::identity::{Projects, Role};
use market::ids::{ApiKeyId, ProjectId, TenantId};
use serde_json::{Value, json};
use simulator::{Fault, FaultKind, Provider};
use tempfile::TempDir;

use super::DemoArgs;
use super::client::Client;
use super::show;
use super::summary::{Summary, text};
use super::tell::{chapter, command, say, say_at, table};
use crate::flow::reconcile;
use crate::http::api_keys::{NewSecret, default_scopes};
use crate::service::tasks;
use crate::tools::simulation::{SimulatedMarket, SimulatedMarketOptions};

/// How long the fleet continues to serve after the training run.
const SERVING_HOURS: i64 = 24;
/// How far the clock moves between two reads of a reservation that is being provisioned.
const LOOK: TimeDelta = TimeDelta::seconds(60);
/// How far the clock moves each second after the story.
const AFTERWARDS: TimeDelta = TimeDelta::seconds(10);

/// A finished story, and the simulated market that continues.
pub(super) struct FinishedStory {
    /// What happened, counted.
    pub(super) summary: Summary,
    world: SimulatedMarket,
    key: String,
    _dir: TempDir,
}

/// Runs the whole story and counts its results.
pub(super) async fn tell(args: &DemoArgs) -> Result<FinishedStory> {
    let dir = tempfile::Builder::new().prefix("broker-demo-").tempdir()?;
    let world = SimulatedMarket::open(SimulatedMarketOptions {
        seed: args.seed,
        listen: args.listen.clone(),
        ..SimulatedMarketOptions::new(dir.path())
    })
    .await?;
    let key = make_key(&world).await?;
    let client = Client::new(world.base_url(), &key)?;
    say(format!(
        "A first sale from start to end, on a simulated market (seed {}). Prices are list prices; machines \
         and time are simulated. All of it is done through the API at {}.",
        args.seed,
        world.base_url()
    ));
    let summary = play(&world, &client, args).await?;
    Ok(FinishedStory {
        summary,
        world,
        key,
        _dir: dir,
    })
}

async fn play(world: &SimulatedMarket, client: &Client, args: &DemoArgs) -> Result<Summary> {
    let ssh_key = json!({ "name": "demo", "public_key": ssh_public_key() });
    client.post("/v1/ssh-keys", &ssh_key).await?;
    read_supply(world, args).await?;
    let pair = reserve_pair(world, client).await?;
    let (train, serve) = (pair.train.clone(), pair.serve.clone());
    use_both(world, client, &pair).await?;
    let report = show_costs(client).await?;
    let swept = reconcile::sweep(world.broker()).await?;
    let summary = Summary::of(world, client, [&train, &serve], &report).await?;
    chapter(
        "6. The ledger",
        "every second is charged to the tenant or borne by the broker; nothing is left running",
    );
    show::books(&summary, text(&report, "/total_usd"), swept.ended);
    Ok(summary)
}

impl FinishedStory {
    /// Lets the clock run and the service reply until Ctrl-C.
    pub(super) async fn serve_on(&self) -> Result<()> {
        let (url, key) = (self.world.base_url(), &self.key);
        chapter(
            "Still serving, until Ctrl-C",
            "the service is yours: each second is ten on the market's clock",
        );
        command(&format!("KEY={key}"));
        command(&format!(
            "curl -H \"Authorization: Bearer $KEY\" {url}/v1/reservations"
        ));
        command(&format!(
            "curl -H \"Authorization: Bearer $KEY\" '{url}/v1/reports/costs?group_by=day'"
        ));
        say("Prices need no key. The last address has all calls.");
        command(&format!("curl '{url}/v1/offers?gpu=H100-SXM'"));
        command(&format!("curl {url}/openapi.json"));
        let work = tasks::start(self.world.broker());
        let live = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                self.world.pass(AFTERWARDS).await;
            }
        };
        tokio::select! {
            stopped = tokio::signal::ctrl_c() => stopped?,
            () = live => {}
        }
        work.stop().await;
        Ok(())
    }

    /// Stops everything.
    pub(super) async fn close(self) {
        self.world.close().await;
    }
}

async fn make_key(world: &SimulatedMarket) -> Result<String> {
    let broker = world.broker();
    let (tenant, project) = (broker.new_uuid(), broker.new_uuid());
    let tenant = broker
        .store()
        .tenants()
        .ensure(
            "demo",
            TenantId::from_uuid(tenant),
            ProjectId::from_uuid(project),
            broker.now(),
        )
        .await?;
    let secret = NewSecret::generate();
    let key = store::api_keys::NewApiKey {
        id: ApiKeyId::from_uuid(broker.new_uuid()),
        name: "demo".into(),
        role: Role::Member,
        scopes: default_scopes(Role::Member),
        projects: Projects::All,
        provider: None,
        prefix: secret.prefix(),
        hash: secret.hash(),
        expires_at: None,
        created_at: broker.now(),
        made_by: None,
    };
    broker
        .store()
        .api_keys()
        .of(tenant.id)
        .insert(key, None)
        .await?;
    Ok(secret.reveal().to_owned())
}

/// A new public SSH key in OpenSSH form. Nobody has the private half: the nodes are simulated.
fn ssh_public_key() -> String {
    let key = ed25519_dalek::SigningKey::from_bytes(&rand::random()).verifying_key();
    let mut blob = Vec::new();
    for part in [b"ssh-ed25519".as_slice(), key.as_bytes()] {
        blob.extend_from_slice(&u32::try_from(part.len()).unwrap_or(0).to_be_bytes());
        blob.extend_from_slice(part);
    }
    format!("ssh-ed25519 {} demo", STANDARD.encode(blob))
}

async fn read_supply(world: &SimulatedMarket, args: &DemoArgs) -> Result<()> {
    chapter(
        "1. Supply: three providers over their own APIs, and price lists",
        "their names for hardware, places and prices become one kind of offer",
    );
    world.read_price_lists(&args.pricesheets).await?;
    if let Some(failure) = world.read_providers().await.first() {
        bail!(
            "the simulated market could not be read: {}",
            crate::chain(failure)
        );
    }
    let snapshot = world.broker().snapshot();
    let mut rows = Vec::new();
    for provider in world.broker().store().providers().list().await? {
        let mine = || {
            snapshot
                .offers()
                .filter(|offer| *offer.provider() == provider.id)
        };
        let gpus: BTreeSet<_> = mine().map(|offer| offer.gpu().to_string()).collect();
        let orderable = if mine().any(|offer| offer.orderable()) {
            "yes"
        } else {
            "compared only"
        };
        rows.push(vec![
            provider.id.to_string(),
            mine().count().to_string(),
            gpus.len().to_string(),
            orderable.into(),
        ]);
    }
    table(
        &["provider", "offers", "kinds of GPU", "can be ordered"],
        rows,
    );
    say(format!("{} in all.", counted(snapshot.len(), "offer")));
    Ok(())
}

/// The two reservations of a hybrid plan's pair.
struct Pair {
    train: String,
    serve: String,
    /// The planned length of the run. Units: seconds.
    run_seconds: i64,
}

/// Plans a run and the fleet behind it as one; quotes, holds and confirms both, each in one call.
async fn reserve_pair(world: &SimulatedMarket, client: &Client) -> Result<Pair> {
    chapter(
        "2. Training, then serving: Llama 3 8B, planned as one",
        "the run needs RDMA on 16 GPUs, the fleet memory bandwidth; the fleet starts when the run ends",
    );
    let demand = json!({
        "kind": "hybrid",
        "train": {
            "model": "Llama 3 8B", "tokens": 20_000_000_000_u64, "gpus": 16,
            "sequence_length": 8192, "tags": { "team": "research", "run": "demo-1" },
        },
        "serve": {
            "kind": "serve_realtime", "model": "Llama 3 8B", "requests_per_second": 4,
            "input_tokens": 1024, "output_tokens": 256, "tags": { "team": "product" },
            "policy": { "deny_providers": ["voltagepark"] },
            "window": { "duration_hours": 720 },
        },
    });
    let plan = client.post("/v1/plans", &demand).await?;
    let (rank, chosen) = first_orderable(&plan)?;
    show::plan(&plan, candidate(&plan, &chosen["train_candidate"])?);
    show::plan(&plan, candidate(&plan, &chosen["serve_candidate"])?);
    show::refused(&plan);
    show::pair(chosen);
    let body = json!({ "plan_id": plan["id"], "pair": rank });
    let quotes = client.post("/v1/quotes", &body).await?;
    let ids = [&quotes["quotes"][0]["id"], &quotes["quotes"][1]["id"]];
    let body = json!({
        "quotes": ids, "name": "llama", "attribution": { "owner": "demo", "cost_centre": "research" },
    });
    let held = client.post("/v1/reservations", &body).await?;
    let id = |place: usize| text(&held, &format!("/reservations/{place}/id")).to_owned();
    let (train, serve) = (id(0), id(1));
    say_at(
        &world.clock_time(),
        format!(
            "quoted and held: the run at {} USD per GPU-hour, frozen; the fleet at most at {}, from {}",
            text(&quotes, "/quotes/0/lines/0/rate_usd_gpu_hour"),
            text(&quotes, "/quotes/1/lines/0/rate_at_most"),
            show::minute(text(&quotes, "/quotes/1/starts_at")),
        ),
    );
    say_at(
        &world.clock_time(),
        "both confirmed in one call: the run is ordered, the fleet scheduled, and nothing set aside for it",
    );
    world
        .simulator()
        .break_next(Fault::new(Provider::VOLTAGEPARK, FaultKind::SlowMemory))?;
    let both = json!({ "ids": [train, serve] });
    client.post("/v1/reservations/confirm", &both).await?;
    chapter(
        "3. Training: machines are ordered, verified and handed over",
        "a gang gets RDMA between its nodes; with one bad node all are replaced, free of charge",
    );
    until_active(world, client, &train).await?;
    let gpu_seconds = chosen["train_gpu_seconds"].as_i64();
    Ok(Pair {
        train,
        serve,
        // The second that is nearest to the planned GPU-seconds.
        run_seconds: (gpu_seconds.context("a run takes a time")? + 8) / 16,
    })
}

/// Moves the clock until the tenant has the nodes, and prints each change of state.
async fn until_active(world: &SimulatedMarket, client: &Client, id: &str) -> Result<()> {
    let (mut told, mut fallen) = (String::new(), BTreeSet::new());
    for _ in 0..180 {
        world.live_on(LOOK).await?;
        let now = client.get(&format!("/v1/reservations/{id}")).await?;
        for lease in now["leases"].as_array().into_iter().flatten() {
            if lease["fall_note"].is_string() && fallen.insert(text(lease, "/id").to_owned()) {
                show::fall(client, &world.clock_time(), lease).await?;
            }
        }
        let (state, leases) = (text(&now, "/state"), show::living_leases(&now));
        let words = format!("{state}: {leases}");
        if words != told {
            say_at(&world.clock_time(), &words);
            told.clone_from(&words);
        }
        match state {
            "active" => return show::access(client, id).await,
            "closed" => bail!("reservation {id} closed: {}", text(&now, "/reason")),
            _ => {}
        }
    }
    bail!("reservation {id} did not become active within three hours of the clock")
}

async fn use_both(world: &SimulatedMarket, client: &Client, pair: &Pair) -> Result<()> {
    let Pair {
        train,
        serve,
        run_seconds,
    } = pair;
    chapter(
        "4. Serving: the run ends, its nodes are released, and the fleet starts",
        "a fabric is paid for while training, and for no hour longer; a fleet from its start",
    );
    for _ in 0..run_seconds / 3_600 {
        world.live_on(TimeDelta::hours(1)).await?;
    }
    world
        .live_on(TimeDelta::seconds(run_seconds % 3_600))
        .await?;
    client
        .post(&format!("/v1/reservations/{train}/release"), &json!({}))
        .await?;
    say_at(
        &world.clock_time(),
        "the run took as long as planned; its release is requested, and the fleet is ordered",
    );
    world.read_providers().await;
    until_active(world, client, serve).await?;
    let now = client.get(&format!("/v1/reservations/{train}")).await?;
    if text(&now, "/state") != "closed" {
        bail!("the training reservation did not close before its fleet was handed over");
    }
    say_at(
        &world.clock_time(),
        "training is closed: the provider says that its nodes are gone",
    );
    for _ in 0..SERVING_HOURS {
        world.live_on(TimeDelta::hours(1)).await?;
    }
    say_at(
        &world.clock_time(),
        format!("the fleet has served for {SERVING_HOURS} hours"),
    );
    Ok(())
}

async fn show_costs(client: &Client) -> Result<Value> {
    chapter(
        "5. Cost report, by workload, provider and GPU, and by day",
        "charges at the frozen rate, from hand-off to release; nothing for machines that failed",
    );
    let report = client
        .get("/v1/reports/costs?group_by=workload,provider,gpu")
        .await?;
    show::costs(&report, &["workload", "provider", "GPU"])?;
    say(
        "Training steps down on the day of its release, and serving steps up on the day of its start:",
    );
    let by_day = client
        .get("/v1/reports/costs?group_by=day,workload")
        .await?;
    show::costs(&by_day, &["day", "workload"])?;
    Ok(report)
}

/// The first pair of the plan that can be ordered, with its rank from 1.
fn first_orderable(plan: &Value) -> Result<(usize, &Value)> {
    let pairs = plan["hybrid"]["pairs"].as_array();
    let can_be_ordered = |pair: &Value| {
        let ranks = [&pair["train_candidate"], &pair["serve_candidate"]];
        ranks.into_iter().all(|rank| {
            let lines = candidate(plan, rank).ok().map(|found| &found["lines"]);
            let mut lines = lines.and_then(Value::as_array).into_iter().flatten();
            lines.all(|line| line["orderable"] == true)
        })
    };
    let mut ranked = (1..).zip(pairs.context("a hybrid plan lists pairs")?);
    ranked
        .find(|(_, pair)| can_be_ordered(pair))
        .context("no pair can be ordered")
}

fn candidate<'a>(plan: &'a Value, rank: &Value) -> Result<&'a Value> {
    let mut candidates = plan["candidates"].as_array().into_iter().flatten();
    candidates
        .find(|candidate| candidate["rank"] == *rank)
        .context("a pair names candidates of its plan")
}
