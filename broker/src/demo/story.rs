//! The story, chapter by chapter, told through our own API.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use market::identity::Role;
use market::ids::{ApiKeyId, ProjectId, TenantId};
use serde_json::{Value, json};
use simulator::{Fault, FaultKind, Provider};

use super::client::Client;
use super::summary::{ReservationSummary, Summary, VerificationSummary};
use super::tell::{chapter, say, table};
use super::world::{World, WorldOptions};
use super::DemoArgs;
use crate::http::api_keys::{NewSecret, default_scopes};
use crate::sweep;

/// How long the training run goes on.
const TRAINING_HOURS: i64 = 72;
/// How long the fleet serves on after it.
const SERVING_HOURS: i64 = 24;
/// How much of the clock passes between two looks at a reservation that is coming up.
const LOOK: TimeDelta = TimeDelta::seconds(60);

/// Tells the whole story and counts what happened; without `exit` it then serves until Ctrl-C.
pub(super) async fn tell(args: &DemoArgs) -> Result<Summary> {
    let dir = tempfile::Builder::new().prefix("broker-demo-").tempdir()?;
    let world = World::open(WorldOptions {
        seed: args.seed,
        listen: args.listen.clone(),
        ..WorldOptions::new(dir.path())
    })
    .await?;
    let key = make_key(&world).await?;
    let client = Client::new(world.base_url(), &key)?;

    let ssh_key = json!({ "name": "demo", "public_key": ssh_public_key() });
    client.post("/v1/ssh-keys", &ssh_key).await?;

    read_supply(&world, args).await?;
    let train = reserve_training(&world, &client).await?;
    let serve = reserve_serving(&world, &client).await?;
    use_both(&world, &client, &train).await?;
    let report = show_costs(&world, &client).await?;
    let summary = summarise(&world, &client, [&train, &serve], &report).await?;
    close_books(&summary);

    if !args.exit {
        chapter("Still serving");
        say(format!("at {} until Ctrl-C; try", world.base_url()));
        say(format!("curl -H 'Authorization: Bearer {key}' {}/v1/reservations", world.base_url()));
        tokio::signal::ctrl_c().await?;
    }
    world.close().await;
    Ok(summary)
}

async fn make_key(world: &World) -> Result<String> {
    let broker = world.broker();
    let (tenant, project) = (broker.new_uuid(), broker.new_uuid());
    let tenant = broker
        .store()
        .tenants()
        .ensure("demo", TenantId::from_uuid(tenant), ProjectId::from_uuid(project), broker.now())
        .await?;
    let secret = NewSecret::generate();
    let key = store::api_keys::NewApiKey {
        id: ApiKeyId::from_uuid(broker.new_uuid()),
        name: "demo".into(),
        role: Role::Member,
        scopes: default_scopes(Role::Member),
        prefix: secret.prefix(),
        hash: secret.hash(),
        expires_at: None,
        created_at: broker.now(),
    };
    broker.store().api_keys().of(tenant.id).insert(key, None).await?;
    Ok(secret.reveal().to_owned())
}

/// A fresh public SSH key in OpenSSH form. Nobody has the private half: the nodes are pretended.
fn ssh_public_key() -> String {
    let key = ed25519_dalek::SigningKey::from_bytes(&rand::random()).verifying_key();
    let mut blob = Vec::new();
    for part in [b"ssh-ed25519".as_slice(), key.as_bytes()] {
        blob.extend_from_slice(&u32::try_from(part.len()).unwrap_or(0).to_be_bytes());
        blob.extend_from_slice(part);
    }
    format!("ssh-ed25519 {} demo", STANDARD.encode(blob))
}

async fn read_supply(world: &World, args: &DemoArgs) -> Result<()> {
    chapter("Supply: two simulated providers over their own wire formats, and price lists");
    world.read_price_lists(&args.pricesheets).await?;
    if let Some(failure) = world.read_providers().await.first() {
        bail!("the simulated market could not be read: {}", crate::chain(failure));
    }
    let snapshot = world.broker().snapshot();
    let mut rows = Vec::new();
    for provider in world.broker().store().providers().list().await? {
        let mine = || snapshot.offers().filter(|offer| offer.provider == provider.id);
        let gpus: BTreeSet<_> = mine().map(|offer| offer.gpu.to_string()).collect();
        let orderable = if mine().any(|offer| offer.orderable) { "yes" } else { "compared only" };
        rows.push(vec![
            provider.id.to_string(),
            mine().count().to_string(),
            gpus.len().to_string(),
            provider.skipped.len().to_string(),
            orderable.into(),
        ]);
    }
    table(&["provider", "offers", "GPUs", "skipped", "can be ordered"], rows);
    Ok(())
}

async fn reserve_training(world: &World, client: &Client) -> Result<String> {
    chapter("Training: 16 GPUs for a Llama 3 8B run, joined by a fabric, quoted and confirmed");
    let demand = json!({
        "kind": "train", "model": "Llama 3 8B", "tokens": 20_000_000_000_u64, "gpus": 16,
        "sequence_length": 8192, "tenancy": ["bare_metal"],
        "tags": { "team": "research", "run": "demo-1" },
    });
    let plan = client.post("/v1/plans", &demand).await?;
    show_plan(&plan);
    let rank = first_orderable(&plan)?;
    say("The next machine that the provider starts will have slow memory; nobody has told the broker.");
    world.simulator().break_next(Fault::new(Provider::Voltagepark, FaultKind::SlowMemory))?;
    let body = json!({ "plan_id": plan["id"], "candidate": rank });
    let quote = client.post("/v1/quotes", &body).await?;
    say(format!("Quote {}: frozen until {}", text(&quote, "/id"), text(&quote, "/expires_at")));
    let body = json!({
        "quote_id": quote["id"], "name": "llama-training",
        "attribution": { "owner": "demo", "cost_centre": "research" },
    });
    let reservation = client.post("/v1/reservations", &body).await?;
    let id = text(&reservation, "/id").to_owned();
    say(format!("Reservation {id} is {}", text(&reservation, "/state")));
    client.post(&format!("/v1/reservations/{id}/confirm"), &json!({})).await?;
    until_active(world, client, &id).await?;
    Ok(id)
}

async fn reserve_serving(world: &World, client: &Client) -> Result<String> {
    chapter("Serving: Llama 3 8B at 4 requests per second, in one call");
    world.read_providers().await;
    let body = json!({
        "demand": {
            "kind": "serve_realtime", "model": "Llama 3 8B", "requests_per_second": 4,
            "input_tokens": 1024, "output_tokens": 256, "tags": { "team": "product" },
            "policy": { "deny_providers": ["voltagepark"] },
        },
        "name": "llama-serving", "auto_confirm": true,
        "attribution": { "owner": "demo", "cost_centre": "product" },
    });
    let reservation = client.post("/v1/reservations", &body).await?;
    let id = text(&reservation, "/id").to_owned();
    until_active(world, client, &id).await?;
    Ok(id)
}

/// Turns the clock until the tenant has the nodes, telling each change of state.
async fn until_active(world: &World, client: &Client, id: &str) -> Result<()> {
    let mut told = String::new();
    for _ in 0..180 {
        world.live_on(LOOK).await?;
        let now = client.get(&format!("/v1/reservations/{id}")).await?;
        let (state, leases) = (text(&now, "/state"), lease_words(&now));
        let words = format!("{state}: {leases}");
        if words != told {
            say(format!("{}  {words}", world.clock_time()));
            told.clone_from(&words);
        }
        match state {
            "active" => return show_access(client, id).await,
            "closed" => bail!("reservation {id} closed: {}", text(&now, "/reason")),
            _ => {}
        }
    }
    bail!("reservation {id} did not become active within three hours of the clock")
}

fn lease_words(reservation: &Value) -> String {
    let leases = reservation["leases"].as_array().map(Vec::as_slice).unwrap_or_default();
    let words = leases.iter().map(|lease| {
        let fell = lease["fall_note"].as_str().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("{} {}{fell}", text(lease, "/provider"), text(lease, "/state"))
    });
    words.collect::<Vec<_>>().join(", ")
}

async fn show_access(client: &Client, id: &str) -> Result<()> {
    let access = client.get(&format!("/v1/reservations/{id}/access")).await?;
    let nodes = access["nodes"].as_array().context("access lists its nodes")?;
    let rows = nodes.iter().map(|node| {
        vec![
            node["node"].to_string(),
            format!("{}@{}:{}", text(node, "/user"), text(node, "/host"), node["port"]),
            node["gpus"].to_string(),
        ]
    });
    table(&["node", "reach it at", "GPUs"], rows);
    Ok(())
}

async fn use_both(world: &World, client: &Client, train: &str) -> Result<()> {
    chapter("Use: the clock runs on; the training nodes are released, the fleet stays");
    for _ in 0..TRAINING_HOURS {
        world.live_on(TimeDelta::hours(1)).await?;
    }
    client.post(&format!("/v1/reservations/{train}/release"), &json!({})).await?;
    for _ in 0..60 {
        world.live_on(LOOK).await?;
        let now = client.get(&format!("/v1/reservations/{train}")).await?;
        if text(&now, "/state") == "closed" {
            say(format!("{}  training is closed: {}", world.clock_time(), text(&now, "/reason")));
            for _ in 0..SERVING_HOURS {
                world.live_on(TimeDelta::hours(1)).await?;
            }
            return Ok(());
        }
    }
    bail!("the training reservation did not close within an hour of the clock")
}

async fn show_costs(world: &World, client: &Client) -> Result<Value> {
    chapter("Cost report, by workload, provider and GPU");
    let report = client.get("/v1/reports/costs?group_by=workload,provider,gpu").await?;
    let rows = report["rows"].as_array().context("the report has rows")?;
    let rows = rows.iter().map(|row| {
        let group = row["group"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut cells: Vec<_> = group.iter().map(|part| text(part, "/value").to_owned()).collect();
        let hours = row["gpu_seconds"].as_i64().unwrap_or(0) as f64 / 3600.0;
        cells.push(format!("{hours:.2}"));
        cells.push(text(row, "/amount_usd").to_owned());
        cells
    });
    table(&["workload", "provider", "GPU", "GPU-hours", "USD"], rows);
    let swept = sweep::sweep(world.broker()).await?;
    say(format!("A sweep of both providers ended {} machines that nobody owned.", swept.ended));
    Ok(report)
}

async fn summarise(
    world: &World,
    client: &Client,
    reservations: [&String; 2],
    report: &Value,
) -> Result<Summary> {
    let snapshot = world.broker().snapshot();
    let gpus: BTreeSet<_> = snapshot.offers().map(|offer| offer.gpu.to_string()).collect();
    let billed = client.get("/v1/reports/costs?group_by=reservation").await?;
    let mut summaries = Vec::new();
    for id in reservations {
        let reservation = client.get(&format!("/v1/reservations/{id}")).await?;
        summaries.push(summarise_one(&reservation, &billed)?);
    }
    let store = world.broker().store();
    let mut verifications = VerificationSummary::default();
    for id in reservations {
        let leases = store.leases().across_tenants().of_reservation(id.parse()?).await?;
        for lease in leases {
            let all = store.verifications().across_tenants();
            for attestation in all.attestations_of(lease.id).await? {
                if attestation.verdict.is_pass() {
                    verifications.passed += 1;
                } else {
                    verifications.failed += 1;
                }
            }
        }
    }
    verifications.replaced = summaries.iter().map(|summary| summary.replaced_leases).sum();
    let bills = Provider::ALL.map(|provider| world.simulator().bill(provider).total_usd);
    Ok(Summary {
        providers: store.providers().list().await?.len(),
        offers: snapshot.len(),
        gpus: gpus.len(),
        reservations: summaries,
        verifications,
        provider_bill_usd: bills.iter().sum::<rust_decimal::Decimal>().to_string(),
        ledger_balanced: store.ledger().check().await?.is_balanced(),
        leaked_machines: world.leaked_machines().await?,
        cost_report_rows: report["rows"].as_array().map_or(0, Vec::len),
    })
}

fn summarise_one(reservation: &Value, billed: &Value) -> Result<ReservationSummary> {
    let id = text(reservation, "/id");
    let leases = reservation["leases"].as_array().context("a reservation has leases")?;
    let standing = leases
        .iter()
        .rfind(|lease| lease["replaced_by"].is_null())
        .context("one lease was not replaced")?;
    let rows = billed["rows"].as_array().context("the report has rows")?;
    let row = rows.iter().find(|row| text(row, "/group/0/value") == id);
    let nodes: u64 = leases
        .iter()
        .filter(|lease| lease["replaced_by"].is_null())
        .filter_map(|lease| lease["nodes"].as_u64())
        .sum();
    let gpus_per_node = standing["offer"]["gpus"].as_u64().unwrap_or(0);
    Ok(ReservationSummary {
        id: id.to_owned(),
        kind: text(reservation, "/kind").to_owned(),
        state: text(reservation, "/state").to_owned(),
        nodes,
        gpus: nodes * gpus_per_node,
        provider: text(standing, "/provider").to_owned(),
        internode: text(standing, "/offer/internode").to_owned(),
        tenancy: text(standing, "/offer/tenancy").to_owned(),
        rate_usd_gpu_hour: text(reservation, "/lines/0/rate_usd_gpu_hour").to_owned(),
        metered_gpu_seconds: row.and_then(|row| row["gpu_seconds"].as_i64()).unwrap_or(0),
        billed_usd: row.map_or("0.00", |row| text(row, "/amount_usd")).to_owned(),
        replaced_leases: leases.iter().filter(|lease| !lease["replaced_by"].is_null()).count(),
    })
}

fn close_books(summary: &Summary) {
    chapter("The books");
    let VerificationSummary { passed, failed, replaced } = summary.verifications;
    say(format!("{passed} nodes passed, {failed} failed; {replaced} leases were replaced free of charge"));
    for reservation in &summary.reservations {
        say(format!(
            "{}: {} GPU-seconds at {} USD per GPU-hour make {} USD",
            reservation.kind,
            reservation.metered_gpu_seconds,
            reservation.rate_usd_gpu_hour,
            reservation.billed_usd
        ));
    }
    say(format!("The providers bill {} USD", summary.provider_bill_usd));
    say(format!("The ledger balances: {}", summary.ledger_balanced));
    say(format!("Machines that nobody owns: {}", summary.leaked_machines));
}

fn show_plan(plan: &Value) {
    let candidates = plan["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
    for candidate in candidates.iter().take(3) {
        let line = &candidate["lines"][0];
        say(format!(
            "{}. {} x {} {} at {} ({}, {}): {} USD per GPU-hour",
            candidate["rank"],
            line["nodes"],
            line["gpus"],
            text(line, "/gpu"),
            text(line, "/provider"),
            text(line, "/tenancy"),
            text(line, "/internode"),
            text(line, "/price_usd_gpu_hour"),
        ));
    }
    let why = plan["candidates"][0]["reasons"].as_array().map(Vec::as_slice).unwrap_or_default();
    for reason in why {
        say(format!("   - {}", reason.as_str().unwrap_or_default()));
    }
    let reasons = plan["rejected"]["by_reason"].as_object();
    let reasons: Vec<_> = reasons.into_iter().flatten().map(|(why, n)| format!("{n} {why}")).collect();
    say(format!("{} other offers were refused: {}", plan["rejected"]["total"], reasons.join(", ")));
}

fn first_orderable(plan: &Value) -> Result<u64> {
    let candidates = plan["candidates"].as_array().context("a plan lists candidates")?;
    candidates
        .iter()
        .find(|candidate| candidate["lines"][0]["orderable"] == true)
        .and_then(|candidate| candidate["rank"].as_u64())
        .context("no candidate can be ordered")
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or("-")
}
