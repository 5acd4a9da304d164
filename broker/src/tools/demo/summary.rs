//! The one JSON object that `demo --json` prints as the last line of stdout.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use rust_decimal::Decimal;
use serde::Serialize;
use serde_json::Value;
use simulator::Provider;

use super::client::Client;
use crate::tools::simulation::SimulatedMarket;

/// The counted results of the demo.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    /// Providers that were read, price lists included.
    pub providers: usize,
    /// Live offers.
    pub offers: usize,
    /// Different GPUs among them.
    pub gpus: usize,
    /// The reservations.
    pub reservations: Vec<ReservationSummary>,
    /// The verifications.
    pub verifications: VerificationSummary,
    /// The bills of the providers, by their own arithmetic. US dollars.
    pub provider_bill_usd: String,
    /// Whether every transaction sums to zero and every total agrees with its parts.
    pub ledger_balanced: bool,
    /// Machines at the providers without an open lease, counted at the providers.
    pub leaked_machines: usize,
    /// Rows of the cost report.
    pub cost_report_rows: usize,
}

/// One reservation.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReservationSummary {
    /// Its id.
    pub id: String,
    /// The demand's kind.
    pub kind: String,
    /// Its state.
    pub state: String,
    /// Nodes.
    pub nodes: u64,
    /// GPUs of all nodes.
    pub gpus: u64,
    /// The final providers.
    pub provider: String,
    /// The fabric between the nodes.
    pub internode: String,
    /// The kind of machine.
    pub tenancy: String,
    /// US dollars per GPU-hour, as quoted and billed.
    pub rate_usd_gpu_hour: String,
    /// GPU-seconds between hand-off and release.
    pub metered_gpu_seconds: i64,
    /// The charge to the tenant. US dollars.
    pub billed_usd: String,
    /// Leases that failed and were replaced, at no cost to the tenant.
    pub replaced_leases: usize,
}

/// The verifications, by nodes, and the leases that were replaced after one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct VerificationSummary {
    /// Nodes that passed.
    pub passed: usize,
    /// Nodes that failed.
    pub failed: usize,
    /// Leases that were replaced.
    pub replaced: usize,
}

impl Summary {
    /// Counts the results of these reservations. The tenant's side is read from the API, the providers'
    /// side from the simulator.
    pub(super) async fn of(
        world: &SimulatedMarket,
        client: &Client,
        reservations: [&String; 2],
        report: &Value,
    ) -> Result<Self> {
        let snapshot = world.broker().snapshot();
        let gpus: BTreeSet<_> = snapshot
            .offers()
            .map(|offer| offer.gpu().to_string())
            .collect();
        let billed = client.get("/v1/reports/costs?group_by=reservation").await?;
        let mut summaries = Vec::new();
        for id in reservations {
            let reservation = client.get(&format!("/v1/reservations/{id}")).await?;
            summaries.push(ReservationSummary::of(&reservation, &billed)?);
        }
        let mut verifications = count_verdicts(world, reservations).await?;
        verifications.replaced = summaries
            .iter()
            .map(|summary| summary.replaced_leases)
            .sum();
        let bills =
            Provider::DEMONSTRATION.map(|provider| world.simulator().bill(provider).total_usd);
        let store = world.broker().store();
        Ok(Self {
            providers: store.providers().list().await?.len(),
            offers: snapshot.len(),
            gpus: gpus.len(),
            reservations: summaries,
            verifications,
            provider_bill_usd: bills.iter().sum::<Decimal>().to_string(),
            ledger_balanced: store.ledger().check().await?.is_balanced(),
            leaked_machines: world.leaked_machines().await?,
            cost_report_rows: report["rows"].as_array().map_or(0, Vec::len),
        })
    }

    /// The fault of the demo, if there is one.
    pub(super) fn fault(&self) -> Option<&'static str> {
        if !self.ledger_balanced {
            return Some("the ledger does not balance");
        }
        (self.leaked_machines > 0).then_some("a machine runs without an owner")
    }
}

async fn count_verdicts(
    world: &SimulatedMarket,
    reservations: [&String; 2],
) -> Result<VerificationSummary> {
    let store = world.broker().store();
    let mut counted = VerificationSummary::default();
    for id in reservations {
        for lease in store
            .leases()
            .across_tenants()
            .of_reservation(id.parse()?)
            .await?
        {
            // A node of a gang has a second attestation, of the gang.
            let mut nodes: BTreeMap<u32, bool> = BTreeMap::new();
            let verifications = store.verifications().across_tenants();
            for attestation in verifications.attestations_of(lease.id).await? {
                let passed = nodes.entry(attestation.node_index).or_insert(true);
                *passed &= attestation.verdict.is_pass();
            }
            for passed in nodes.into_values() {
                match passed {
                    true => counted.passed += 1,
                    false => counted.failed += 1,
                }
            }
        }
    }
    Ok(counted)
}

impl ReservationSummary {
    fn of(reservation: &Value, billed: &Value) -> Result<Self> {
        let id = text(reservation, "/id");
        let leases = reservation["leases"]
            .as_array()
            .context("a reservation has leases")?;
        let standing: Vec<_> = leases
            .iter()
            .filter(|lease| lease["replaced_by"].is_null())
            .collect();
        let last = *standing.last().context("one lease was not replaced")?;
        let rows = billed["rows"].as_array().context("the report has rows")?;
        let row = rows.iter().find(|row| text(row, "/group/0/value") == id);
        let nodes: u64 = standing
            .iter()
            .filter_map(|lease| lease["nodes"].as_u64())
            .sum();
        let gpus_per_node = last["offer"]["gpus"].as_u64().unwrap_or(0);
        Ok(Self {
            id: id.to_owned(),
            kind: text(reservation, "/kind").to_owned(),
            state: text(reservation, "/state").to_owned(),
            nodes,
            gpus: nodes * gpus_per_node,
            provider: text(last, "/provider").to_owned(),
            internode: text(last, "/offer/internode").to_owned(),
            tenancy: text(last, "/offer/tenancy").to_owned(),
            rate_usd_gpu_hour: text(reservation, "/lines/0/rate_usd_gpu_hour").to_owned(),
            metered_gpu_seconds: row.and_then(|row| row["gpu_seconds"].as_i64()).unwrap_or(0),
            billed_usd: row
                .map_or("0.00", |row| text(row, "/amount_usd"))
                .to_owned(),
            replaced_leases: leases.len() - standing.len(),
        })
    }
}

/// A text within an answer; `-` where there is none.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("-")
}
