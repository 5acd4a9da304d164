//! `broker providers list`, `enable`, `disable` and `quarantine`: whether a provider is read and sold.

use chrono::{DateTime, SecondsFormat, Utc};
use market::acceptance::AcceptanceRecord;
use serde_json::json;
use store::providers::{Provider, ProviderChange};

use super::{Desk, FormArgs, OneArgs, QuarantineArgs};
use crate::flow::providers;
use crate::platform::clock::{Clock as _, SystemClock};
use crate::terminal::ending::Ending;
use crate::terminal::table::table;
use crate::terminal::text::print_line;

pub(super) async fn list(form: &FormArgs) -> Result<(), Ending> {
    let desk = Desk::open(form).await?;
    let providers = desk.store.providers().list().await?;
    let acceptance = desk.acceptance().await?;
    let accepted = |id| acceptance.get(id).copied().unwrap_or_default();
    if desk.json {
        let items = providers
            .iter()
            .map(|one| desk.json_of(one, &accepted(&one.id)));
        let items: Vec<_> = items.collect();
        return Ok(print_line(&json!({ "items": items }).to_string())?);
    }
    let now = SystemClock.now();
    let rows = providers.iter().map(|provider| {
        let quarantine = provider.quarantine_at(now);
        let sold = match (provider.enabled, quarantine) {
            (false, _) => "disabled",
            (true, Some(_)) => "suspended",
            (true, None) => "yes",
        };
        let note = quarantine
            .map(|held| format!("until {}: {}", time(held.until), held.reason))
            .or_else(|| provider.stale_reason.clone())
            .or_else(|| unread(provider));
        vec![
            provider.id.to_string(),
            sold.to_owned(),
            desk.connected_by(provider).to_owned(),
            provider.live_offers.to_string(),
            provider.last_read_at.map_or("never".to_owned(), time),
            passed(&accepted(&provider.id)),
            note.unwrap_or_default(),
        ]
    });
    let headings = [
        "id",
        "sold",
        "connected by",
        "offers",
        "last read",
        "passed",
        "note",
    ];
    Ok(print_line(&table(&headings, rows))?)
}

/// What the last reading could not parse: the number of records, and the first one with its reason.
fn unread(provider: &Provider) -> Option<String> {
    let mut records = provider.skipped.iter().filter(|one| one.is_unread());
    let first = records.next()?;
    let sku = first.sku.as_deref().unwrap_or("a record without a SKU");
    Some(match records.count() {
        0 => format!("unread: {sku}: {}", first.why),
        more => format!("unread: {sku}: {}, and {more} more", first.why),
    })
}

/// How many orders of the last 30 days got a machine that passed its checks.
fn passed(record: &AcceptanceRecord) -> String {
    match record.outcomes() {
        0 => "-".to_owned(),
        all => format!("{} of {all}", record.passed),
    }
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

pub(super) async fn switch(args: &OneArgs, enabled: bool) -> Result<(), Ending> {
    let desk = Desk::open(&args.form).await?;
    let (operation, told) = match enabled {
        true => ("providers enable", "Enabled"),
        false => ("providers disable", "Disabled"),
    };
    let change = ProviderChange {
        enabled: Some(enabled),
        ..ProviderChange::default()
    };
    let provider = desk.change(&args.id, operation, &change).await?;
    desk.tell(&provider, &format!("{told} {}.", args.id)).await
}

pub(super) async fn quarantine(args: &QuarantineArgs) -> Result<(), Ending> {
    let id = &args.one.id;
    let desk = Desk::open(&args.one.form).await?;
    let row = desk.find(id).await?;
    let begun = match (args.reason.as_deref(), args.until) {
        (Some(reason), Some(until)) => {
            let begun = providers::quarantine(&row, reason, until, SystemClock.now());
            Some(begun.map_err(Ending::wrong_input)?)
        }
        _ => None,
    };
    let told = match &begun {
        Some(held) => format!("{id} is suspended until {}.", time(held.until)),
        None => format!("{id} is no longer suspended."),
    };
    let change = ProviderChange {
        quarantine: Some(begun),
        ..ProviderChange::default()
    };
    let provider = desk.change(id, "providers quarantine", &change).await?;
    desk.tell(&provider, &told).await
}
