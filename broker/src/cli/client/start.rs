//! A later start in tables and sheets: its time, the bound on its price, and the events about it.

use chrono::{DateTime, Utc};
use rust_decimal::Decimal;
use serde_json::Value;

use super::sheet::{dollars, items, second, text, time};
use crate::terminal::price::AT_MOST;

/// The heading of the bounds of lines.
pub(super) const BOUND: &str = "at most";

/// When the rate of a line with a bound was the price of its offer.
#[derive(Debug, Clone, Copy)]
pub(super) enum PriceOf {
    /// A quote, which lapses soon.
    Today,
    /// A reservation, which may have been placed long ago.
    TheQuote,
}

impl PriceOf {
    const fn words(self) -> &'static str {
        match self {
            Self::Today => "today",
            Self::TheQuote => "when quoted",
        }
    }
}

/// The start of a reservation that is not handed off yet; `None` if it starts at once, is in use or ends.
pub(super) fn ahead(it: &Value) -> Option<DateTime<Utc>> {
    let waits =
        !it["active_at"].is_string() && it["state"] != "releasing" && it["state"] != "closed";
    time(it, "/starts_at").filter(|_| waits)
}

/// Whether the price of any line is a bound.
pub(super) fn is_bounded(priced: &Value) -> bool {
    let mut lines = items(priced, "lines").iter();
    lines.any(|line| line["rate_at_most"].is_string())
}

/// The bound of all lines in US dollars per hour; `None` if every rate is frozen.
pub(super) fn bound_per_hour(priced: &Value) -> Option<String> {
    if !is_bounded(priced) {
        return None;
    }
    // A reservation's, which its ceiling on everything may lower.
    if let Some(most) = rate(priced, "price_at_most_usd_hour") {
        return Some(dollars(most, 4));
    }
    let of_line = |line: &Value| {
        let most = rate(line, "rate_at_most").or_else(|| rate(line, "rate_usd_gpu_hour"))?;
        most.checked_mul(line["gpus"].as_u64()?.into())
    };
    let lines: Option<Vec<Decimal>> = items(priced, "lines").iter().map(of_line).collect();
    Some(dollars(lines?.iter().sum(), 4))
}

/// A price of all lines, with their bound if there is one: "40.00 today, at most 50.00".
pub(super) fn with_bound(priced: &Value, price: String, of: PriceOf) -> String {
    match bound_per_hour(priced) {
        Some(bound) => format!("{price} {}, {AT_MOST}{bound}", of.words()),
        None => price,
    }
}

/// The warning that lines have bounds below the price of their offers; `None` if none has.
pub(super) fn below_price(priced: &Value, of: PriceOf) -> Option<String> {
    let is_below = |line: &&Value| {
        let rates = rate(line, "rate_at_most").zip(rate(line, "rate_usd_gpu_hour"));
        rates.is_some_and(|(most, rate)| most < rate)
    };
    let lines = items(priced, "lines").iter().filter(is_below);
    let lines: Vec<String> = lines.map(|line| text(line, "/line")).collect();
    let when = of.words();
    match &lines[..] {
        [] => None,
        [line] => Some(format!(
            "The bound of line {line} is below its price {when}, so it is ordered only if the price falls."
        )),
        lines => Some(format!(
            "The bounds of lines {} are below their prices {when}, so they are ordered only if the \
             prices fall.",
            lines.join(", ")
        )),
    }
}

fn rate(line: &Value, field: &str) -> Option<Decimal> {
    line[field].as_str()?.parse().ok()
}

/// An event about the start or the end of a reservation in words; `None` for other events, which a
/// reservation shows itself.
pub(super) fn announcement(event: &Value) -> Option<String> {
    let data = &event["data"];
    let at = |field: &str| time(data, field).map_or_else(String::new, second);
    Some(match event["type"].as_str()? {
        "reservation.start_moved" => format!(
            "the start moved from {} to {}",
            at("/previous_start"),
            at("/starts_at")
        ),
        "reservation.start_held_back" => {
            format!("the start is held back: {}", text(data, "/why"))
        }
        "reservation.run_failed" => format!(
            "the run before it failed or was cancelled; it starts at {} unless you cancel it",
            at("/starts_at")
        ),
        "reservation.starts_soon" => {
            format!(
                "starts in {} min, at {}",
                text(data, "/minutes_left"),
                at("/at")
            )
        }
        "reservation.ends_soon" => {
            format!(
                "ends in {} min, at {}",
                text(data, "/minutes_left"),
                at("/at")
            )
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_bound_stands_beside_the_price_that_it_limits() {
        let line = |line: u32, most: Option<&str>| json!({ "line": line, "gpus": 8, "rate_usd_gpu_hour": "2.5", "rate_at_most": most });
        let shown = |lines: &[Value]| {
            let priced = json!({ "lines": lines });
            let price = with_bound(&priced, "40.00".to_owned(), PriceOf::Today);
            (price, below_price(&priced, PriceOf::TheQuote))
        };
        assert_eq!(shown(&[line(0, None)]), ("40.00".to_owned(), None));
        let bounded = [line(0, Some("3")), line(1, None)];
        let price = "40.00 today, at most 44.00".to_owned();
        assert_eq!(shown(&bounded), (price, None));
        let below = [
            line(0, Some("2")),
            line(1, Some("2.5")),
            line(2, Some("2.4")),
        ];
        let (price, warning) = shown(&below);
        assert_eq!(price, "40.00 today, at most 55.20");
        assert_eq!(
            warning.as_deref(),
            Some(
                "The bounds of lines 0, 2 are below their prices when quoted, so they are ordered \
                 only if the prices fall."
            )
        );
        let (_, warning) = shown(&below[..1]);
        assert_eq!(
            warning.as_deref(),
            Some(
                "The bound of line 0 is below its price when quoted, so it is ordered only if the \
                 price falls."
            )
        );
    }

    #[test]
    fn a_start_lies_ahead_until_the_hand_off_or_the_end() {
        let it = |state: &str, active_at: Option<&str>| json!({ "state": state, "active_at": active_at, "starts_at": "2026-12-24T18:00:00Z" });
        for state in ["held", "scheduled", "confirmed", "handing_off"] {
            assert!(ahead(&it(state, None)).is_some(), "{state}");
        }
        assert_eq!(ahead(&it("active", Some("2026-12-24T18:00:00Z"))), None);
        assert_eq!(ahead(&it("closed", None)), None);
        assert_eq!(ahead(&json!({ "state": "held", "starts_at": null })), None);
    }

    #[test]
    fn every_event_about_a_start_or_an_end_has_words() {
        let told = |kind: &str, data: Value| announcement(&json!({ "type": kind, "data": data }));
        let [earlier, later] = ["2026-12-24T18:00:00Z", "2026-12-24T20:30:00Z"];
        for (kind, data, words) in [
            (
                "start_moved",
                json!({ "starts_at": later, "previous_start": earlier }),
                "the start moved from 2026-12-24 18:00:00 UTC to 2026-12-24 20:30:00 UTC",
            ),
            (
                "start_held_back",
                json!({ "why": "no offer\u{1b}" }),
                "the start is held back: no offer ",
            ),
            (
                "run_failed",
                json!({ "starts_at": later }),
                "the run before it failed or was cancelled; it starts at 2026-12-24 20:30:00 UTC \
                 unless you cancel it",
            ),
            (
                "starts_soon",
                json!({ "at": later, "minutes_left": 60 }),
                "starts in 60 min, at 2026-12-24 20:30:00 UTC",
            ),
            (
                "ends_soon",
                json!({ "at": later, "minutes_left": 10 }),
                "ends in 10 min, at 2026-12-24 20:30:00 UTC",
            ),
        ] {
            let kind = format!("reservation.{kind}");
            assert_eq!(told(&kind, data).as_deref(), Some(words), "{kind}");
        }
        assert_eq!(told("reservation.active", json!({})), None);
    }
}
