//! The lines below the table of a plan, the same offline and from a service: how to start its engines, the
//! price of other precisions, and how many offers satisfy the demand.

use console::measure_text_width;
use market::counted::counted;

use crate::terminal::text::{clean, command_within, hanging, line};

/// The heading of the cost of a candidate's work, a run or a batch of requests. It ranks the candidates.
pub(crate) const COST: &str = "cost USD";

/// How an engine is started.
pub(crate) struct Launch<'a> {
    /// The offer that it runs on, if a fleet uses several offers.
    pub(crate) on: Option<&'a str>,
    pub(crate) engine: &'a str,
    pub(crate) ports: &'a [String],
    pub(crate) command: &'a str,
    /// The name and the text of its configuration file.
    pub(crate) config: Option<(&'a str, &'a str)>,
}

/// The start command of an engine, followed by its configuration file, ready to copy, without characters
/// that control the terminal.
pub(crate) fn launch(launch: &Launch<'_>) -> String {
    let on = launch.on.map(|offer| format!("on {offer}: "));
    let word = if launch.ports.len() == 1 {
        "port"
    } else {
        "ports"
    };
    let told = clean(&format!(
        "{}{}, {word} {}:",
        on.unwrap_or_default(),
        launch.engine,
        launch.ports.join(" "),
    ));
    let command = clean(launch.command);
    let whole = format!("  start {told} {command}");
    let mut lines = match measure_text_width(&whole) <= line() {
        true => vec![whole],
        false => vec![
            hanging("  start ", &told),
            command_within(line(), "    ", &command),
        ],
    };
    if let Some((file, contents)) = launch.config {
        lines.push(format!("  {}:", clean(file)));
        // Line by line, because cleaning a line removes the newline.
        lines.extend(contents.lines().map(|line| format!("    {}", clean(line))));
    }
    lines.join("\n")
}

/// The price of a fleet with weights of another precision. `saves` is a sum in US dollars,
/// `per_million` the price of 1e6 output tokens with the requested and the other precision.
pub(crate) fn alternative(
    weights: &str,
    price: &str,
    saves: &str,
    per_million: Option<(&str, &str)>,
) -> String {
    let tokens = per_million.map(|(asked, with)| {
        format!("; {with} in place of {asked} USD per 1e6 output tokens at full load")
    });
    format!(
        "  with weights in {weights}: {price} USD per hour, {saves} less{}; not taken",
        tokens.unwrap_or_default()
    )
}

/// "1 offer satisfies", "2 offers satisfy".
pub(crate) fn satisfy(offers: u64) -> String {
    let verb = if offers == 1 { "satisfies" } else { "satisfy" };
    format!("{} {verb}", counted(offers, "offer"))
}

/// How many offers satisfy the demand and how many do not.
pub(crate) fn verdict(eligible: u64, rejected: u64) -> String {
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

/// How many offers can do each half of a demand, and how often an offer was refused for a half.
pub(crate) fn verdict_of_halves(train: u64, serve: u64, rejected: u64) -> String {
    let end = if rejected == 0 { "." } else { ":" };
    format!(
        "{} can train, {} can serve; for one half or the other an offer was refused {rejected} times{end}",
        counted(train, "offer"),
        counted(serve, "offer"),
    )
}

#[cfg(test)]
mod tests {
    use crate::terminal::plan_lines::*;

    #[test]
    fn one_is_told_as_one() {
        assert_eq!(verdict(1, 1), "1 offer satisfies the demand, 1 does not:");
        assert_eq!(verdict(0, 12), "0 offers satisfy the demand, 12 do not:");
        assert_eq!(verdict(3, 0), "3 offers satisfy the demand, 0 do not.");
        assert_eq!(
            verdict_of_halves(1, 10, 22),
            "1 offer can train, 10 offers can serve; for one half or the other an offer was refused 22 times:"
        );
        let [first, second] = ["8000".to_owned(), "8001".to_owned()];
        let one = Launch {
            on: None,
            engine: "vLLM",
            ports: std::slice::from_ref(&first),
            command: "x",
            config: None,
        };
        assert_eq!(launch(&one), "  start vLLM, port 8000: x");
        let two = Launch {
            on: Some("lambda gpu_8x"),
            ports: &[first.clone(), second],
            ..one
        };
        assert_eq!(
            launch(&two),
            "  start on lambda gpu_8x: vLLM, ports 8000 8001: x"
        );
        let hostile = Launch {
            on: Some("lambda a\u{1b}[2J"),
            command: "x\u{7}",
            config: Some(("f\u{9b}", "a\u{1b}\nb")),
            ..two
        };
        assert_eq!(
            launch(&hostile),
            "  start on lambda a [2J: vLLM, ports 8000 8001: x \n  f :\n    a \n    b"
        );
    }

    #[test]
    fn a_long_command_goes_on_as_a_shell_reads_it() {
        let command = format!("vllm serve {}--last 1", "--flag value ".repeat(12));
        let told = launch(&Launch {
            on: None,
            engine: "vLLM",
            ports: &["8000".to_owned()],
            command: &command,
            config: None,
        });
        let (what, lines) = told.split_once('\n').expect("several lines");
        assert_eq!(what, "  start vLLM, port 8000:");
        assert!(lines.lines().all(|line| line.len() <= 100), "{told}");
        let joined = lines.replace(" \\\n", " ");
        let words: Vec<_> = joined.split_whitespace().collect();
        assert_eq!(words, command.split(' ').collect::<Vec<_>>());
    }

    #[test]
    fn the_file_that_an_engine_reads_is_told_as_it_stands() {
        let ports = ["8000".to_owned()];
        let told = launch(&Launch {
            on: None,
            engine: "TensorRT-LLM",
            ports: &ports,
            command: "x",
            config: Some(("engine.yaml", "a: true\nb:\n  c: fp8\n")),
        });
        assert_eq!(
            told,
            "  start TensorRT-LLM, port 8000: x\n  engine.yaml:\n    a: true\n    b:\n      c: fp8"
        );
    }

    #[test]
    fn an_alternative_says_what_it_saves_and_what_tokens_cost_before_and_after() {
        assert_eq!(
            alternative("fp8", "12.00", "3.25", None),
            "  with weights in fp8: 12.00 USD per hour, 3.25 less; not taken"
        );
        assert_eq!(
            alternative("fp8", "12.00", "3.25", Some(("0.08", "0.05"))),
            "  with weights in fp8: 12.00 USD per hour, 3.25 less; 0.05 in place of 0.08 USD per 1e6 \
             output tokens at full load; not taken"
        );
    }
}
