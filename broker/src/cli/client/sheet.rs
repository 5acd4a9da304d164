//! Output for people: tables fitted to their terminal, sheets of labelled lines, money, ages.
//!
//! Texts from the service pass through [`clean`], so that none of them can control the terminal.

use chrono::{DateTime, TimeDelta, Utc};
use rust_decimal::Decimal;
use serde_json::Value;

use crate::terminal::colour::Colours;
use crate::terminal::ending::Ending;
use crate::terminal::screen::columns;
use crate::terminal::table::{fitted_without, holds_states, table};
use crate::terminal::text::{clean, hanging, print_line};

/// The placeholder for an absent value.
pub(super) const NOTHING: &str = "-";

/// Prints rows under their headings; numbers are right-aligned.
pub(super) fn print_table(
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Result<(), Ending> {
    print_table_without(headings, rows, &[])
}

/// As [`print_table`]; a terminal that is too narrow hides the named columns, as [`fitted_without`]
/// describes.
pub(super) fn print_table_without(
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    spare: &[&str],
) -> Result<(), Ending> {
    Ok(print_line(&fitted_without(
        columns(),
        headings,
        rows,
        spare,
    ))?)
}

/// As [`print_table_without`]; if stdout is no terminal, long cells are broken, so that the table is
/// as wide as the text around it.
pub(super) fn print_table_within(
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    spare: &[&str],
) -> Result<(), Ending> {
    match columns() {
        Some(_) => print_table_without(headings, rows, spare),
        None => Ok(print_line(&table(headings, rows))?),
    }
}

/// Prints labelled lines with aligned values; empty ones are left out.
pub(super) fn print_sheet(lines: &[(&str, String)]) -> Result<(), Ending> {
    let margin = lines
        .iter()
        .map(|(label, _)| label.len())
        .max()
        .unwrap_or(0)
        + 2;
    let colours = Colours::of_stdout();
    for (label, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        let value = match holds_states(label) {
            true => colours.state(value),
            false => value.clone(),
        };
        let gap = " ".repeat(margin - label.len());
        let label = colours.heading(label) + &gap;
        print_line(&match columns() {
            Some(_) => hanging(&label, &value),
            None => label + &value,
        })?;
    }
    Ok(())
}

/// The text at a JSON pointer; empty if absent. Numbers are written out.
pub(super) fn text(value: &Value, pointer: &str) -> String {
    match value.pointer(pointer) {
        Some(Value::String(text)) => clean(text),
        None | Some(Value::Null) => String::new(),
        Some(other) => clean(&other.to_string()),
    }
}

/// As [`text`], with a dash if absent.
pub(super) fn cell(value: &Value, pointer: &str) -> String {
    let text = text(value, pointer);
    if text.is_empty() {
        NOTHING.to_owned()
    } else {
        text
    }
}

/// A word of the API in readable form: `handed_off` is "handed off".
pub(super) fn words(value: &Value, pointer: &str) -> String {
    cell(value, pointer).replace('_', " ")
}

/// The items of a list; none if there is no list.
pub(super) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

/// The things in an answer that is one thing or a list of several under this field.
pub(super) fn one_or_several<'a>(answer: &'a Value, field: &str) -> &'a [Value] {
    match answer[field].as_array() {
        Some(several) => several,
        None => std::slice::from_ref(answer),
    }
}

/// US dollars of a price: two to four digits after the point.
pub(super) fn price(value: &Value, pointer: &str) -> String {
    text(value, pointer)
        .parse::<Decimal>()
        .map_or_else(|_| NOTHING.to_owned(), |usd| dollars(usd, 4))
}

/// US dollars of a sum: to the cent.
pub(super) fn sum(value: &Value, pointer: &str) -> String {
    text(value, pointer)
        .parse::<Decimal>()
        .map_or_else(|_| NOTHING.to_owned(), |usd| dollars(usd, 2))
}

/// US dollars with at least two and at most `most` digits after the point.
pub(super) fn dollars(usd: Decimal, most: u32) -> String {
    let rounded = usd.round_dp(most).normalize();
    format!("{rounded:.*}", rounded.scale().max(2) as usize)
}

/// The time at a JSON pointer.
pub(super) fn time(value: &Value, pointer: &str) -> Option<DateTime<Utc>> {
    value.pointer(pointer)?.as_str()?.parse().ok()
}

/// How long ago, or in how long, in readable form: one unit, rounded down.
pub(super) fn age(at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> String {
    let Some(at) = at else {
        return NOTHING.to_owned();
    };
    let past = now - at;
    if past.num_seconds().abs() < 1 {
        return "now".to_owned();
    }
    if past < TimeDelta::zero() {
        format!("in {}", span(-past))
    } else {
        format!("{} ago", span(past))
    }
}

/// A length of time in one unit, rounded down.
pub(super) fn span(length: TimeDelta) -> String {
    let seconds = length.num_seconds();
    match seconds {
        seconds if seconds < 120 => format!("{seconds} s"),
        seconds if seconds < 7_200 => format!("{} min", seconds / 60),
        seconds if seconds < 172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

/// A time and how far away it is: "2026-11-21 13:00:00 UTC (in 2 h)".
pub(super) fn moment(value: &Value, pointer: &str, now: DateTime<Utc>) -> String {
    time(value, pointer).map_or_else(String::new, |at| {
        format!("{} ({})", second(at), age(Some(at), now))
    })
}

/// A time to the second: "2026-11-21 13:00:00 UTC".
pub(super) fn second(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// A time to the minute: "2026-11-21 13:00".
pub(super) fn minute(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M").to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn money_is_written_as_people_write_it() {
        let body =
            json!({ "rate": "2.4375", "whole": "3", "tiny": "0.00001", "sum": "1234.56789" });
        assert_eq!(price(&body, "/rate"), "2.4375");
        assert_eq!(price(&body, "/whole"), "3.00");
        assert_eq!(price(&body, "/tiny"), "0.00");
        assert_eq!(sum(&body, "/sum"), "1234.57");
        assert_eq!(sum(&body, "/absent"), "-");
    }

    #[test]
    fn a_length_of_time_is_one_unit_and_tells_past_from_future() {
        let now: DateTime<Utc> = "2026-11-21T13:00:00Z".parse().expect("a time");
        for (seconds, told) in [
            (0, "now"),
            (59, "59 s ago"),
            (120, "2 min ago"),
            (7_199, "119 min ago"),
            (86_400, "24 h ago"),
            (259_200, "3 d ago"),
            (-600, "in 10 min"),
        ] {
            assert_eq!(age(Some(now - TimeDelta::seconds(seconds)), now), told);
        }
        assert_eq!(age(None, now), "-");
    }

    #[test]
    fn an_answer_is_one_thing_or_a_list_of_several() {
        let one = json!({ "id": 1, "lines": [] });
        assert_eq!(one_or_several(&one, "quotes"), std::slice::from_ref(&one));
        let pair = json!({ "quotes": [{ "id": 1 }, { "id": 2 }] });
        assert_eq!(one_or_several(&pair, "quotes").len(), 2);
    }

    #[test]
    fn no_text_of_the_service_can_steer_a_terminal() {
        let body = json!({ "name": "a\u{1b}[31mb\nc", "n": 3, "none": null });
        assert_eq!(text(&body, "/name"), "a [31mb c");
        assert_eq!(
            (cell(&body, "/n"), cell(&body, "/none")),
            ("3".into(), "-".into())
        );
    }
}
