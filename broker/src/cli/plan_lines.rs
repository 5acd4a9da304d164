//! What is said below the table of a plan, the same offline and by a service: how its engines are
//! started, what other precisions would cost, and how many offers satisfy the demand.

use market::counted::counted;

use super::table::hanging;

/// How an engine is started. `on` is what it is started on, where a fleet stands on several offers.
pub(super) fn launch(on: Option<&str>, engine: &str, ports: &[String], command: &str) -> String {
    let on = on.map(|offer| format!("on {offer}: ")).unwrap_or_default();
    let word = if ports.len() == 1 { "port" } else { "ports" };
    let told = format!("{on}{engine}, {word} {}: {command}", ports.join(" "));
    hanging("  start ", &told)
}

/// What a fleet would cost with weights of another precision. `saves` is a sum in US dollars, below
/// zero where it costs more.
pub(super) fn alternative(weights: &str, price: &str, saves: &str) -> String {
    let difference = match saves.strip_prefix('-') {
        Some(more) => format!("{more} more"),
        None => format!("{saves} less"),
    };
    format!("  with weights in {weights}: {price} USD per hour, {difference}; not taken")
}

/// "1 offer satisfies", "2 offers satisfy".
pub(crate) fn satisfy(offers: u64) -> String {
    let verb = if offers == 1 { "satisfies" } else { "satisfy" };
    format!("{} {verb}", counted(offers, "offer"))
}

/// How many offers satisfy the demand and how many do not.
pub(super) fn verdict(eligible: u64, rejected: u64) -> String {
    let (verb, end) = match rejected {
        0 => ("do", "."),
        1 => ("does", ":"),
        _ => ("do", ":"),
    };
    format!(
        "{} the demand, {rejected} {verb} not{end}",
        satisfy(eligible)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_told_as_one() {
        assert_eq!(verdict(1, 1), "1 offer satisfies the demand, 1 does not:");
        assert_eq!(verdict(0, 12), "0 offers satisfy the demand, 12 do not:");
        assert_eq!(verdict(3, 0), "3 offers satisfy the demand, 0 do not.");
        let ports = ["8000".to_owned()];
        assert_eq!(
            launch(None, "vLLM", &ports, "x"),
            "  start vLLM, port 8000: x"
        );
        let ports = ["8000".to_owned(), "8001".to_owned()];
        assert_eq!(
            launch(Some("lambda gpu_8x"), "vLLM", &ports, "x"),
            "  start on lambda gpu_8x: vLLM, ports 8000 8001: x"
        );
    }

    #[test]
    fn a_dearer_alternative_says_how_much_more() {
        let told = alternative("fp8", "12.00", "-1.50");
        assert_eq!(
            told,
            "  with weights in fp8: 12.00 USD per hour, 1.50 more; not taken"
        );
        let told = alternative("fp8", "12.00", "3.25");
        assert_eq!(
            told,
            "  with weights in fp8: 12.00 USD per hour, 3.25 less; not taken"
        );
    }
}
