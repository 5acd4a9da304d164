//! Prepaid capacity in tables and sheets: its rate, and its end.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde_json::Value;

use super::sheet::{NOTHING, items, minute, moment, price, time};

/// The headings of [`cells`].
pub(super) const HEADINGS: [&str; 2] = ["covered at", "covered until"];

/// The cells of a line: its rate per GPU-hour while a commitment covers it, and the time from which its
/// own rate applies. `covered` is that of the line, or `null`.
pub(super) fn cells(covered: &Value) -> [String; 2] {
    let until = time(covered, "/until");
    let until = until.map_or_else(|| NOTHING.to_owned(), minute);
    [price(covered, "/rate_usd_gpu_hour"), until]
}

/// The rate of a line per GPU-hour at a time: the covered rate until that ends, then its own.
pub(super) fn rate_at(line: &Value, now: DateTime<Utc>) -> Option<Decimal> {
    let covered = &line["covered"];
    let rate = match time(covered, "/until") {
        Some(until) if now < until => covered["rate_usd_gpu_hour"].as_str(),
        _ => line["rate_usd_gpu_hour"].as_str(),
    };
    rate?.parse().ok()
}

/// The first end of a commitment that covers a line, and how the price changes then; empty if no line
/// is covered any more.
pub(super) fn first_end(priced: &Value, now: DateTime<Utc>) -> String {
    let lines = items(priced, "lines").iter();
    let ends = lines.filter_map(|line| {
        let until = time(line, "/covered/until").filter(|until| now < *until)?;
        Some((until, line))
    });
    let Some((_, line)) = ends.min_by_key(|(until, _)| *until) else {
        return String::new();
    };
    format!(
        "{}; {} USD per GPU-hour until then, {} after it",
        moment(line, "/covered/until", now),
        price(line, "/covered/rate_usd_gpu_hour"),
        price(line, "/rate_usd_gpu_hour"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().expect("a time")
    }

    #[test]
    fn a_line_costs_what_it_is_covered_at_until_that_ends() {
        let line = json!({
            "rate_usd_gpu_hour": "3.5",
            "covered": { "rate_usd_gpu_hour": "0.15", "until": "2026-12-10T16:00:00Z" },
        });
        assert_eq!(cells(&line["covered"]), ["0.15", "2026-12-10 16:00"]);
        assert_eq!(cells(&Value::Null), [NOTHING, NOTHING]);
        let rate = |now: &str| rate_at(&line, at(now)).map(|rate| rate.to_string());
        assert_eq!(rate("2026-12-10T15:59:59Z").as_deref(), Some("0.15"));
        assert_eq!(rate("2026-12-10T16:00:00Z").as_deref(), Some("3.5"));
        let own = json!({ "rate_usd_gpu_hour": "2" });
        let rate = rate_at(&own, at("2026-12-10T16:00:00Z"));
        assert_eq!(rate, Some(Decimal::TWO));
        assert_eq!(rate_at(&json!({}), at("2026-12-10T16:00:00Z")), None);
    }

    #[test]
    fn a_sheet_says_when_the_first_commitment_ends_and_what_it_costs_from_then_on() {
        let covered = |rate: &str, until: &str| {
            json!({
                "rate_usd_gpu_hour": "3.5",
                "covered": { "rate_usd_gpu_hour": rate, "until": until },
            })
        };
        let later = covered("0.2", "2026-12-20T16:00:00Z");
        let first = covered("0.15", "2026-12-10T16:00:00Z");
        let priced = json!({ "lines": [{ "rate_usd_gpu_hour": "1" }, later, first] });
        assert_eq!(
            first_end(&priced, at("2026-12-10T15:00:00Z")),
            "2026-12-10 16:00:00 UTC (in 60 min); 0.15 USD per GPU-hour until then, 3.50 after it"
        );
        assert!(first_end(&priced, at("2026-12-11T00:00:00Z")).contains("0.20 USD"));
        assert_eq!(first_end(&priced, at("2026-12-21T00:00:00Z")), "");
    }
}
