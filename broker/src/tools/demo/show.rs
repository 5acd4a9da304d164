//! The output of the chapters, from the API's replies.

use anyhow::{Context as _, Result};
use rust_decimal::Decimal;
use serde_json::Value;

use super::client::Client;
use super::summary::{Summary, VerificationSummary, text};
use super::tell::{say, say_at, say_item, table, table_without};
use crate::terminal::plan_lines::satisfy;
use crate::terminal::price::marked_price;
use crate::terminal::text::each_once;

/// The best candidates of the chosen one's half, and the reasons for the chosen one.
pub(super) fn plan(plan: &Value, chosen: &Value) {
    let all = plan["candidates"].as_array().into_iter().flatten();
    let of_half = all.filter(|candidate| candidate["half"] == chosen["half"]);
    let candidates: Vec<_> = of_half.collect();
    let beyond = candidates
        .iter()
        .skip(3)
        .filter(|candidate| candidate["rank"] == chosen["rank"]);
    table_without(
        &[
            "#",
            "provider",
            "nodes x GPUs",
            "machine",
            "terms",
            "fabric",
            "place",
            "USD/GPU-h",
            "USD/h",
            "order",
        ],
        candidates
            .iter()
            .take(3)
            .chain(beyond)
            .map(|candidate| candidate_row(candidate)),
        &["USD/h"],
    );
    let half = text(chosen, "/half");
    let eligible = plan["hybrid"][format!("eligible_{half}")].as_u64();
    say(format!(
        "{} the {half} half. Why #{}:",
        satisfy(eligible.unwrap_or(0)),
        chosen["rank"]
    ));
    for reason in chosen["reasons"].as_array().into_iter().flatten() {
        say_item(reason.as_str().unwrap_or_default());
    }
}

/// How many offers were refused for each reason.
pub(super) fn refused(plan: &Value) {
    let reasons = plan["rejected"]["by_reason"].as_object();
    let reasons: Vec<_> = reasons
        .into_iter()
        .flatten()
        .map(|(why, n)| format!("{why} {n}"))
        .collect();
    say(format!(
        "Refused: {}, by reason: {}",
        plan["rejected"]["total"],
        reasons.join(", ")
    ));
}

/// The dates and dollars of a pair.
pub(super) fn pair(pair: &Value) {
    let date = |field: &str| minute(text(pair, field));
    let usd = |field: &str| cents(text(pair, field));
    let legs = pair["staging"].as_array().into_iter().flatten();
    let staging: i64 = legs.filter_map(|leg| leg["seconds"].as_i64()).sum();
    say(format!(
        "Planned: the run is done {} and costs {} USD. Its weights arrive {staging} seconds later (its nodes, \
         if they are kept for that long: {} USD). The fleet serves from {}: {} USD for {} hours.",
        date("/trained_at"),
        usd("/train_usd"),
        usd("/staging_hold_usd"),
        date("/serves_from"),
        usd("/serve_usd"),
        pair["serve_seconds"].as_i64().unwrap_or(0) / 3_600,
    ));
}

/// A time to the minute.
pub(super) fn minute(time: &str) -> String {
    let (day, clock) = time.split_once('T').unwrap_or((time, ""));
    format!("{day} {}", clock.get(..5).unwrap_or(clock))
}

fn candidate_row(candidate: &Value) -> Vec<String> {
    let lines = candidate["lines"].as_array();
    let lines = lines.map(Vec::as_slice).unwrap_or_default();
    let of_lines = |of: &dyn Fn(&Value) -> String| each_once(lines.iter().map(of));
    let words = |pointer: &str| of_lines(&|line| text(line, pointer).replace('_', " "));
    let is_spot = lines.iter().any(|line| line["terms"] == "spot");
    let price = |pointer: &str| marked_price(text(candidate, pointer), is_spot);
    vec![
        candidate["rank"].to_string(),
        words("/provider"),
        of_lines(&|line| {
            let gpu = text(line, "/gpu");
            format!("{} x {} {gpu}", line["nodes"], line["gpus"])
        }),
        words("/tenancy"),
        words("/terms"),
        words("/internode"),
        of_lines(&|line| {
            let [country, region] =
                ["/place/country", "/place/region"].map(|part| text(line, part));
            format!("{country} {region}")
        }),
        price("/price_usd_gpu_hour"),
        price("/price_usd_hour"),
        match lines.iter().all(|line| line["orderable"] == true) {
            true => "yes",
            false => "no",
        }
        .into(),
    ]
}

/// The leases that are not replaced or gone, by provider and state.
pub(super) fn living_leases(reservation: &Value) -> String {
    let leases = reservation["leases"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let standing = leases
        .iter()
        .filter(|lease| lease["replaced_by"].is_null() && lease["state"] != "gone");
    let words = standing.map(|lease| {
        let (nodes, state) = (lease["nodes"].as_u64().unwrap_or(0), text(lease, "/state"));
        let plural = if nodes == 1 { "" } else { "s" };
        format!(
            "{nodes} node{plural} at {} {}",
            text(lease, "/provider"),
            state.replace('_', " ")
        )
    });
    words.collect::<Vec<_>>().join(", ")
}

/// The failure of a lease, with the measurements if it failed its verification.
pub(super) async fn fall(client: &Client, time: &str, lease: &Value) -> Result<()> {
    let note = text(lease, "/fall_note");
    let provider = text(lease, "/provider");
    let Some(id) = note
        .split(['(', ')', ' '])
        .find(|word| word.starts_with("att_"))
    else {
        say_at(
            time,
            format!("the lease at {provider} failed ({note}) and is replaced, free of charge"),
        );
        return Ok(());
    };
    let attestation = client.get(&format!("/v1/attestations/{id}")).await?;
    let findings = attestation["document"]["findings"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let failed = findings
        .iter()
        .filter(|finding| finding["outcome"] == "failed" && finding["weight"] != "shadow");
    let words: Vec<_> = failed.map(finding_words).collect();
    say_at(
        time,
        format!(
            "a node at {provider} FAILED its verification. {}",
            words.join(" ")
        ),
    );
    let margin = " ".repeat(time.len());
    say_at(
        &margin,
        format!("Signed in {id}. Its lease is replaced; the tenant pays nothing for it."),
    );
    Ok(())
}

fn finding_words(finding: &Value) -> String {
    let note = text(finding, "/note");
    let unit = text(finding, "/unit");
    let amount = |field: &str| {
        let amount = finding[field].as_f64()?;
        Some(if unit == "mb_per_s" {
            format!("{} GB/s", amount / 1e3)
        } else {
            format!("{amount} {unit}")
        })
    };
    match (amount("measured"), amount("floor")) {
        (Some(measured), Some(floor)) => format!("{note} Measured: {measured}; needed: {floor}."),
        _ => note.to_owned(),
    }
}

/// How to connect to the tenant's nodes.
pub(super) async fn access(client: &Client, id: &str) -> Result<()> {
    let access = client.get(&format!("/v1/reservations/{id}/access")).await?;
    let nodes = access["nodes"]
        .as_array()
        .context("access lists its nodes")?;
    let rows = nodes.iter().map(|node| {
        vec![
            node["node"].to_string(),
            format!(
                "ssh {}@{} -p {}",
                text(node, "/user"),
                text(node, "/host"),
                node["port"]
            ),
            node["gpus"].to_string(),
        ]
    });
    table(&["node", "handed off; reach it by", "GPUs"], rows);
    Ok(())
}

/// The rows of a cost report, grouped by these, and their sum.
pub(super) fn costs(report: &Value, groups: &[&'static str]) -> Result<()> {
    let rows = report["rows"].as_array().context("the report has rows")?;
    let total = total_row(report, groups.len());
    let rows = rows.iter().map(|row| {
        let group = row["group"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut cells: Vec<_> = group
            .iter()
            .map(|part| text(part, "/value").to_owned())
            .collect();
        cells.extend([
            gpu_hours(&row["gpu_seconds"]),
            cents(text(row, "/amount_usd")),
        ]);
        cells
    });
    let mut headings = groups.to_vec();
    headings.extend(["GPU-hours", "USD, to the cent"]);
    table(&headings, rows.chain([total]));
    Ok(())
}

fn total_row(report: &Value, groups: usize) -> Vec<String> {
    let (hours, amount) = (
        gpu_hours(&report["total_gpu_seconds"]),
        cents(text(report, "/total_usd")),
    );
    let mut row = vec![String::new(); groups];
    row[0] = "in all".into();
    row.extend([hours, amount]);
    row
}

/// The verifications, the charges and the provider bill, exact to the unit.
pub(super) fn books(summary: &Summary, charged_usd: &str, swept: usize) {
    let VerificationSummary {
        passed,
        failed,
        replaced,
    } = summary.verifications;
    say(format!(
        "Nodes that passed verification: {passed}; that failed: {failed}; leases replaced: {replaced}"
    ));
    for reservation in &summary.reservations {
        say(format!(
            "{}: {} GPU-seconds / 3600 x {} USD per GPU-hour = {} USD",
            reservation.kind,
            reservation.metered_gpu_seconds,
            reservation.rate_usd_gpu_hour,
            reservation.billed_usd
        ));
    }
    say(format!(
        "The tenant is charged {charged_usd} USD; the providers bill {} USD.",
        summary.provider_bill_usd
    ));
    if let (Ok(billed), Ok(charged)) = (summary.provider_bill_usd.parse(), charged_usd.parse()) {
        let (billed, charged): (Decimal, Decimal) = (billed, charged);
        say(format!(
            "The difference of {} USD is the broker's: time before hand-off, and the gang that failed.",
            (billed - charged).normalize()
        ));
    }
    say(format!(
        "The ledger balances: {}",
        if summary.ledger_balanced { "yes" } else { "NO" }
    ));
    say(format!(
        "Orphaned machines, counted at the providers: {} (reconciliation ended {swept})",
        summary.leaked_machines
    ));
}

fn gpu_hours(gpu_seconds: &Value) -> String {
    format!("{:.2}", gpu_seconds.as_f64().unwrap_or(0.0) / 3600.0)
}

fn cents(amount_usd: &str) -> String {
    amount_usd.parse::<Decimal>().map_or_else(
        |_| amount_usd.to_owned(),
        |usd| format!("{:.2}", usd.round_dp(2)),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_row_is_of_all_lines_of_its_candidate() {
        let line = |terms: &str, region: &str, orderable| {
            json!({
                "provider": "lambda", "nodes": 1, "gpus": 8, "gpu": "H100-SXM", "tenancy": "vm",
                "terms": terms, "internode": "ethernet", "orderable": orderable,
                "place": { "country": "US", "region": region },
            })
        };
        let candidate = json!({
            "rank": 1, "price_usd_gpu_hour": "2.00", "price_usd_hour": "32.00",
            "lines": [line("on_demand", "us-east-1", true), line("spot", "us-west-2", false)],
        });
        assert_eq!(
            candidate_row(&candidate),
            [
                "1",
                "lambda",
                "1 x 8 H100-SXM",
                "vm",
                "on demand, spot",
                "ethernet",
                "US us-east-1, US us-west-2",
                "spot 2.00",
                "spot 32.00",
                "no",
            ]
        );
    }
}
