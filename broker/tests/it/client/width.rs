//! The output of commands for people keeps to their terminal: no line is wider, no word is broken and no id
//! cut. Colours appear only on a terminal that has them, and never in output for programs.

mod changes;
mod database;
mod selling;
mod terminal;

use std::collections::BTreeSet;
use std::iter::zip;

use broker::cli::Cli;
use broker::tools::simulation::SimulatedMarketOptions;
use chrono::TimeDelta;
use clap::CommandFactory as _;
use futures_util::future::join_all;
use market::identity::Role;
use serde_json::{Value, json};
use simulator::{NodeRunner, Provider};

use super::{Ended, Shell};
use crate::access::fleet;
use crate::belongings::Belongings;
use crate::service::{Key, Service, orderable_demand, usual_world};

/// Columns of terminals.
pub(crate) const WIDTHS: [usize; 4] = [60, 80, 100, 120];

/// Commands that only read from the service.
const READING: [&str; 30] = [
    "offers --limit 60",
    "offers --terms spot",
    "plan --demand {demand}",
    "plan --demand {nothing}",
    "plan --demand {train}",
    "plan --demand {serve}",
    "plan --demand {hybrid} --top 2",
    "show {plan}",
    "show {quote}",
    "show {reservation}",
    "show {later}",
    "show {in_use}",
    "show {attestation}",
    "show {offer}",
    "access {in_use}",
    "reservations",
    "ssh-keys list",
    "projects list",
    "commitments list",
    "report costs --group-by project,provider,reservation",
    "report cancelled-orders",
    "watch {in_use}",
    "whoami",
    "gpus",
    "models",
    "match --offers {list} --demand {demand} --why n3-H100-SXM5x8",
    "match --offers {list} --demand {nothing}",
    "match --offers {list} --demand {train}",
    "match --offers {list} --demand {serve}",
    "match --offers {list} --demand {hybrid}",
];

/// Those of them that show what is sold, row by row.
const SELLING: [&str; 15] = [
    "offers --limit 60",
    "offers --terms spot",
    "plan --demand {demand}",
    "plan --demand {train}",
    "plan --demand {serve}",
    "plan --demand {hybrid} --top 2",
    "show {plan}",
    "show {quote}",
    "show {reservation}",
    "show {later}",
    "show {in_use}",
    "match --offers {list} --demand {demand} --why n3-H100-SXM5x8",
    "match --offers {list} --demand {train}",
    "match --offers {list} --demand {serve}",
    "match --offers {list} --demand {hybrid}",
];

/// What no test of this file runs, each with why.
const ELSEWHERE: [(&str, &str); 12] = [
    ("demo", "a test of its own looks at its story"),
    ("serve", "it answers over HTTP, and says on stderr where"),
    ("bench http", "a test of its own looks at its table"),
    ("bench match", "a test of its own looks at its table"),
    (
        "bench neighbours",
        "its table is made as that of bench match",
    ),
    ("predict training", "on a terminal alone it is a table"),
    ("predict inference", "on a terminal alone it is a table"),
    ("openapi", "it prints a document"),
    ("adapters read", "it prints a document"),
    ("completions", "it prints a script"),
    ("agent", "it prints a script"),
    ("recheck", "it prints a script"),
];

/// The ids in a text, as far as they go.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| {
        let parts = word.split_once('_');
        parts.is_some_and(|(kind, rest)| {
            let is_hex = rest
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
            (2..=4).contains(&kind.len()) && rest.len() > 4 && is_hex
        })
    })
}

/// The faults of a command's output on a terminal of so many columns.
pub(crate) fn faults(command: &str, width: usize, printed: &str) -> Vec<String> {
    // Texts longer than the narrowest terminal have a line of their own: the end of a chain of the audit log,
    // a hash, and paths.
    let is_word = |line: &str| !line.trim().trim_end_matches(" \\").contains(' ');
    let wide = printed
        .lines()
        .filter(|line| line.chars().count() > width && !is_word(line));
    let wide = wide.map(|line| format!("{command} at {width}: {line}"));
    let cut = ids(printed).filter(|id| id.split_once('_').is_some_and(|(_, hex)| hex.len() != 32));
    let cut = cut.map(|id| format!("{command} at {width} cuts {id}"));
    let coloured = printed.contains('\u{1b}');
    let coloured = coloured.then(|| format!("{command} has colours though no terminal reads it"));
    wide.chain(cut).chain(coloured).collect()
}

/// A command with its placeholders replaced by values.
fn filled(command: &str, names: &[(&str, String)]) -> String {
    let mut command = command.to_owned();
    for (name, value) in names {
        command = command.replace(&format!("{{{name}}}"), value);
    }
    assert!(!command.contains('{'), "{command}");
    command
}

/// Every command that is shown to people and has none below it, as it is typed.
fn every_command() -> BTreeSet<String> {
    fn leaves(of: &clap::Command, before: &str, found: &mut BTreeSet<String>) {
        let shown = of.get_subcommands().filter(|one| !one.is_hide_set());
        for command in shown.filter(|one| one.get_name() != "help") {
            let name = format!("{before}{}", command.get_name());
            match command.has_subcommands() {
                true => leaves(command, &format!("{name} "), found),
                false => drop(found.insert(name)),
            }
        }
    }
    let mut found = BTreeSet::new();
    leaves(&Cli::command(), "", &mut found);
    found
}

#[test]
fn every_command_is_looked_at_here_or_says_where() {
    let every = every_command();
    assert!(every.len() > 45, "{every:?}");
    let run = READING
        .into_iter()
        .chain(changes::ALL)
        .chain(database::all());
    let run: BTreeSet<&str> = run.collect();
    for command in &every {
        let is_it = |line: &&str| {
            let rest = line.strip_prefix(command.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let here = run.iter().any(is_it);
        let elsewhere = ELSEWHERE.iter().any(|(name, _)| name == command);
        assert_ne!(here, elsewhere, "`broker {command}`");
    }
    for (name, _) in ELSEWHERE {
        assert!(every.contains(name), "there is no `broker {name}`");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_read_keeps_to_the_terminal_and_to_programs_is_one_document() {
    // One of them sells spot machines, too.
    let service = Service::start_as(SimulatedMarketOptions {
        nodes: NodeRunner::Run,
        providers: [&Provider::DEMONSTRATION[..], &[Provider::VERDA]].concat(),
        ..usual_world()
    })
    .await;
    let member = service.key("acme", Role::Member).await;
    let admin = service.key("acme", Role::Admin).await;
    let things = Belongings::make(&service, &member, &admin, "a name of several words").await;
    let files = Shell::new();
    let later = scheduled(&service, &member).await;
    let mut names = names(&service, &things, &files).await;
    names.push(("later", later));
    let commands = READING.map(|command| filled(command, &names));
    let (mut wrong, mut sold) = (Vec::new(), 0);
    let (service_of, key) = (&service, &admin);
    for (unfilled, command) in zip(READING, &commands) {
        let at_each = WIDTHS.map(|width| async move {
            let shell = Shell::of(service_of, key).with("COLUMNS", &width.to_string());
            (width, shell.run(command).await)
        });
        let forced = Shell::of(service_of, key)
            .with("COLUMNS", "60")
            .with("CLICOLOR_FORCE", "1");
        let json = format!("{command} --json");
        let (at_each, for_programs) = futures_util::join!(join_all(at_each), forced.run(&json));
        let mut shown = Vec::new();
        for (width, ended) in at_each {
            assert_ne!(ended.status, Some(2), "{command}: {ended:?}");
            assert_ne!(ended.stdout, "", "{command}: {ended:?}");
            wrong.extend(faults(command, width, &ended.stdout));
            shown.push(ended.stdout);
        }
        wrong.extend(not_one_document(command, &for_programs));
        for shown in &shown {
            if SELLING.contains(&unfilled) {
                selling::what_changes_the_price_stands_before_it(command, shown);
                sold += 1;
            }
            what_else_is_shown_at_every_width(unfilled, shown, &for_programs.stdout);
        }
        if command.contains(&things.attestation) {
            let [measured, unproved] =
                ["measured", "does not prove"].map(|words| shown[1].find(words));
            assert!(measured.is_some() && measured < unproved, "{}", shown[1]);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(sold, SELLING.len() * WIDTHS.len());
    service.stop().await;
}

/// What single commands show, however narrow the terminal; `json` is what they answer programs.
#[track_caller]
fn what_else_is_shown_at_every_width(command: &str, shown: &str, json: &str) {
    match command {
        "show {later}" => {
            for said in ["when quoted, at", "most", "falls.", "scheduled", "given up"] {
                assert!(shown.contains(said), "{said}: {shown}");
            }
        }
        "reservations" => assert!(shown.contains("scheduled"), "{shown}"),
        "offers --terms spot" => {
            let page: Value = serde_json::from_str(json).expect("JSON");
            let offers = page["items"].as_array().expect("offers").len();
            selling::every_price_is_marked(shown, offers);
        }
        "plan --demand {hybrid} --top 2" => the_pair_that_comes_next_has_its_rows(shown, json),
        _ if command.starts_with("match") && SELLING.contains(&command) => {
            assert!(shown.contains("as of"), "{shown}");
        }
        _ => {}
    }
}

/// The best pair comes next, and its run and its fleet are among the candidates.
#[track_caller]
fn the_pair_that_comes_next_has_its_rows(shown: &str, json: &str) {
    let next = shown.split("Next: ").nth(1).expect("what comes next");
    let next: Vec<_> = next
        .split_whitespace()
        .filter(|word| *word != "\\")
        .collect();
    assert!(next.ends_with(&["--pair", "1"]), "{shown}");
    let plan: Value = serde_json::from_str(json).expect("JSON");
    let pair = &plan["hybrid"]["pairs"][0];
    for half in ["train", "serve"] {
        let row = format!("{} {half}", pair[format!("{half}_candidate")]);
        let is_its = |line: &str| line.trim_start_matches(['#', ' ']).starts_with(&row);
        assert!(shown.lines().any(is_its), "{row}: {shown}");
    }
}

/// Schedules a start under a bound below today's price; returns the reservation's id.
async fn scheduled(service: &Service, key: &Key) -> String {
    let caller = service.with(key);
    let mut demand = fleet(1);
    let start = service.world.broker().now() + TimeDelta::days(3);
    demand["window"] = json!({ "start_earliest": start, "duration_hours": 12 });
    let plan = caller.post("/v1/plans", &demand).await.expect(201);
    let ask = json!({ "plan_id": plan["id"] });
    let quote = caller.post("/v1/quotes", &ask).await.expect(201);
    let ask = json!({
        "quote_id": quote["id"], "name": "a later start", "auto_confirm": true,
        "ceiling": { "usd_per_gpu_hour": "0.10" },
    });
    let placed = caller.post("/v1/reservations", &ask).await.expect(201);
    assert_eq!(placed["state"], "scheduled", "{placed}");
    placed["id"].as_str().expect("an id").to_owned()
}

/// A run, and the fleet that serves its weights.
fn hybrid() -> Value {
    json!({
        "kind": "hybrid",
        "train": { "model": "Llama 3.1 8B", "tokens": 100_000_000, "gpus": 8 },
        "serve": {
            "kind": "serve_realtime", "model": "Llama 3.1 8B", "requests_per_second": 5,
            "input_tokens": 512, "output_tokens": 128, "window": { "duration_hours": 2000 },
        },
    })
}

/// What the names of commands stand for.
async fn names(
    service: &Service,
    things: &Belongings,
    files: &Shell,
) -> Vec<(&'static str, String)> {
    let written = |name: &str, demand: Value| files.write(name, &demand.to_string());
    let nothing = json!({
        "kind": "gpus", "gpu": "H100-SXM", "count": 8, "ceiling": { "usd_per_hour": "0.01" },
    });
    let train = json!({
        "kind": "train", "model": "Llama 3 8B", "tokens": 20_000_000_000_u64, "gpus": 16,
        "sequence_length": 8192, "policy": { "allow_ethernet": true },
    });
    let serve = json!({
        "kind": "serve_realtime", "model": "Llama 3 70B", "requests_per_second": 20,
        "input_tokens": 512, "output_tokens": 256,
    });
    let offers = service.anyone().get("/v1/offers?limit=1").await.expect(200);
    let offer = offers["items"][0]["offer_id"].as_str().expect("an id");
    let list = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../adapters/data/demo-sheet.csv"
    );
    let demand = orderable_demand(service).await;
    vec![
        ("demand", written("demand.json", demand)),
        ("nothing", written("nothing.json", nothing)),
        ("train", written("train.json", train)),
        ("serve", written("serve.json", serve)),
        ("hybrid", written("hybrid.json", hybrid())),
        ("list", list.to_owned()),
        ("offer", offer.to_owned()),
        ("plan", things.plan.clone()),
        ("quote", things.quote.clone()),
        ("reservation", things.reservation.clone()),
        ("in_use", things.in_use.clone()),
        ("attestation", things.attestation.clone()),
    ]
}

/// The faults of output for a program.
fn not_one_document(command: &str, ended: &Ended) -> Option<String> {
    let is_document = ended.stdout.lines().count() == 1
        && serde_json::from_str::<Value>(&ended.stdout).is_ok()
        && !ended.stdout.contains('\u{1b}');
    (!is_document).then(|| format!("{command} --json: {ended:?}"))
}
