//! Every table of the command line keeps to its terminal, with words broken nowhere and ids whole.

use futures_util::future::join_all;
use market::identity::Role;
use serde_json::json;

use super::Shell;
use crate::belongings::Belongings;
use crate::service::{Service, orderable_demand};

/// Columns of terminals.
const WIDTHS: [usize; 4] = [60, 80, 100, 120];

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

/// What is wrong with what a command printed on a terminal of so many columns.
fn faults(command: &str, width: usize, printed: &str) -> Vec<String> {
    // The end of a chain of the audit log is a hash, longer than the narrowest terminal; it stands alone.
    let is_hash =
        |line: &str| line.len() == 64 && line.bytes().all(|byte| byte.is_ascii_hexdigit());
    let wide = printed
        .lines()
        .filter(|line| line.chars().count() > width && !is_hash(line));
    let wide = wide.map(|line| format!("{command} at {width}: {line}"));
    let cut = ids(printed).filter(|id| id.split_once('_').is_some_and(|(_, hex)| hex.len() != 32));
    let cut = cut.map(|id| format!("{command} at {width} cuts {id}"));
    wide.chain(cut).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_table_is_wider_than_its_terminal_and_no_id_is_cut() {
    let service = Service::start_with_nodes().await;
    let member = service.key("acme", Role::Member).await;
    let admin = service.key("acme", Role::Admin).await;
    let things = Belongings::make(&service, &member, &admin, "a name of several words").await;
    let files = Shell::new();
    let demand = orderable_demand(&service).await;
    let demand = files.write("demand.json", &demand.to_string());
    let nothing = json!({ "kind": "gpus", "gpu": "H100-SXM", "count": 8, "ceiling": { "usd_per_hour": "0.01" } });
    let nothing = files.write("nothing.json", &nothing.to_string());
    let data = service
        .world
        .broker()
        .config()
        .data_dir
        .display()
        .to_string();
    let list = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../adapters/data/demo-sheet.csv"
    );
    let offers = service.anyone().get("/v1/offers?limit=1").await.expect(200);
    let offer = offers["items"][0]["offer_id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let Belongings {
        plan,
        quote,
        reservation,
        in_use,
        attestation,
        ..
    } = &things;
    let commands = [
        "offers --limit 60".to_owned(),
        "offers --terms spot".to_owned(),
        format!("plan --demand {demand}"),
        format!("plan --demand {nothing}"),
        format!("show {plan}"),
        format!("quote {plan}"),
        format!("show {quote}"),
        format!("show {reservation}"),
        format!("show {in_use}"),
        format!("show {attestation}"),
        format!("show {offer}"),
        format!("access {in_use}"),
        "reservations".to_owned(),
        "ssh-keys list".to_owned(),
        "projects list".to_owned(),
        "commitments list".to_owned(),
        "report costs --group-by project,provider,reservation".to_owned(),
        "whoami".to_owned(),
        "gpus".to_owned(),
        "models".to_owned(),
        format!("match --offers {list} --demand {demand}"),
        format!("match --offers {list} --demand {nothing}"),
        format!("providers list --data-dir {data}"),
        format!("keys list --data-dir {data}"),
        format!("ledger check --data-dir {data}"),
        format!("audit check --data-dir {data}"),
        format!("migrate status --data-dir {data}"),
    ];
    let mut wrong = Vec::new();
    let (service_of, key) = (&service, &admin);
    for command in &commands {
        let at_each = WIDTHS.map(|width| async move {
            let shell = Shell::of(service_of, key).with("COLUMNS", &width.to_string());
            (width, shell.run(command).await)
        });
        let mut shown = Vec::new();
        for (width, ended) in join_all(at_each).await {
            assert_ne!(ended.status, Some(2), "{command}: {ended:?}");
            assert_ne!(ended.stdout, "", "{command}: {ended:?}");
            wrong.extend(faults(command, width, &ended.stdout));
            shown.push(ended.stdout);
        }
        if command.starts_with("offers") {
            for shown in &shown {
                let at = |heading: &str| shown.find(heading);
                assert!(
                    at("terms") < at("fabric") && at("fabric") < at("place"),
                    "{shown}"
                );
                assert!(
                    at("SKU").is_none_or(|sku| at("place") < Some(sku)),
                    "{shown}"
                );
                assert!(at("terms").is_some(), "{shown}");
            }
        }
        if command.ends_with("spot") {
            for shown in &shown {
                let mut after = shown.split("spot ").skip(1);
                let is_price = |after: &str| after.starts_with(|c: char| c.is_ascii_digit());
                assert!(after.any(is_price), "{shown}");
            }
        }
        if command.contains(attestation) {
            let [measured, unproved] =
                ["measured", "does not prove"].map(|words| shown[1].find(words));
            assert!(measured.is_some() && measured < unproved, "{}", shown[1]);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    service.stop().await;
}
