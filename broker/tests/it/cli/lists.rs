//! The reports of `broker match` on lists that cannot be read, on names that sellers write in their own way,
//! and on the engines of a fleet.

use serde_json::json;

use super::matching::{ROWS, h100, lists, prices};
use super::{HEADER, Place};

#[test]
fn when_no_file_is_a_price_list_each_says_why_and_the_status_is_2() {
    let place = Place::new();
    let servers = place.write("servers.csv", "vendor,model,cores\na,b,1\n");
    let empty = place.write("empty.csv", "");
    let (servers, empty) = (
        servers.to_str().expect("a path"),
        empty.to_str().expect("a path"),
    );
    for more in [&[][..], &["--json"]] {
        let args = [
            &["match", "--demand", "-", "--offers", servers, empty],
            more,
        ]
        .concat();
        let ended = place.broker_reading(&h100(8).to_string(), args);
        let sentence = ended.refused();
        for said in [
            "servers.csv was not read: its columns are not those of a price list; missing: provider",
            "not known: vendor",
            "empty.csv was not read: the file is empty",
            "docs/price-lists.md",
        ] {
            assert!(sentence.contains(said), "{said}: {sentence}");
        }
    }
}

#[test]
fn beside_lists_that_are_read_one_that_is_not_is_told_with_its_reason() {
    let lists = lists();
    let mut args: Vec<&str> = vec!["match", "--demand", "-", "--offers"];
    args.extend(
        lists
            .files
            .iter()
            .map(|file| file.to_str().expect("a path")),
    );
    let ended = lists.place.broker_reading(&h100(8).to_string(), args);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let told = ended
        .stdout
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ");
    assert!(
        told.contains("servers.csv was not read: its columns"),
        "{told}"
    );
    assert!(
        told.contains("empty.csv was not read: the file is empty"),
        "{told}"
    );
}

#[test]
fn a_list_that_is_given_twice_is_refused() {
    let lists = lists();
    let list = lists.files[0].to_str().expect("a path");
    let copy = lists.place.path().join("copy.csv");
    std::fs::copy(&lists.files[0], &copy).expect("a copy");
    let around = format!("{}/./list.csv", lists.place.path().display());
    for again in [list, copy.to_str().expect("a path"), &around] {
        let args = ["match", "--demand", "-", "--offers", list, again];
        let ended = lists.place.broker_reading(&h100(8).to_string(), args);
        let sentence = ended.refused();
        assert!(
            sentence.contains("are the same; give it once"),
            "{sentence}"
        );
    }
}

#[test]
fn the_list_that_comes_with_the_sources_is_as_old_as_it_says_whenever_it_was_checked_out() {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let list = format!("{repository}/adapters/data/demo-sheet.csv");
    let args = ["match", "--json", "--demand", "-", "--offers", &list];
    let found = Place::new()
        .broker_reading(&h100(8).to_string(), args)
        .json(0);
    let first = &found["candidates"][0];
    assert_eq!(first["observed_at"], "2026-08-25T00:00:00Z");
    let reasons = first["reasons"].to_string();
    assert!(reasons.contains("Listed on 2026-08-25"), "{reasons}");
}

/// Those whose nodes must be joined, and the fabric of the first candidate.
const JOINED: [(&str, &str); 5] = [
    ("llama-70b-256-gpus", "infiniband_ndr400"),
    ("llama-405b", "infiniband_ndr400"),
    ("lora-over-ethernet", "ethernet"),
    ("mixtral-moe", "infiniband_ndr400"),
    ("hybrid", "infiniband_ndr400"),
];

#[test]
fn every_example_finds_a_plan_in_the_list_that_comes_with_the_sources() {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let readme = std::fs::read_to_string(format!("{repository}/docs/demands/README.md"));
    let readme = readme.expect("the readme of the demands");
    let place = Place::new();
    let mut tried = 0;
    for line in readme.lines() {
        let Some(args) = line.strip_prefix("broker match ") else {
            continue;
        };
        let path = |word: &str| match word.contains('/') {
            true => format!("{repository}/{word}"),
            false => word.to_owned(),
        };
        let args: Vec<_> = args.split(' ').map(path).collect();
        let given = ["match", "--json", "--top", "1"].map(str::to_owned);
        let found = place.broker(given.iter().chain(&args)).json(0);
        let first = &found["candidates"][0];
        for (name, fabric) in JOINED {
            if line.contains(&format!("/{name}.json")) {
                assert_eq!(first["internode"], fabric, "{line}");
                assert!(first["nodes"].as_u64() > Some(1), "{line}");
            }
        }
        tried += 1;
    }
    assert_eq!(tried, 12);
}

#[test]
fn a_gpu_is_read_as_sellers_write_it_in_demands_and_in_lists() {
    let place = Place::new();
    let rows = [
        "acme,box,H100 SXM5,8,128,1600,81920,20,,here,",
        "acme,card,NVIDIA H100 80GB PCIe,8,128,1600,,18,,here,",
        "acme,odd,H100 SXM4,8,128,1600,81920,10,,here,",
    ];
    let list = place.write("list.csv", &format!("{HEADER}\n{}\n", rows.join("\n")));
    let list = list.to_str().expect("a path");
    let args = ["match", "--json", "--demand", "-", "--offers", list];
    let demand = json!({ "kind": "gpus", "gpu": "NVIDIA H100 80GB SXM", "count": 8 });
    let found = place.broker_reading(&demand.to_string(), args).json(0);
    assert_eq!(
        (&found["eligible"], prices(&found)),
        (&json!(1), vec!["20.00"])
    );
    assert_eq!(found["candidates"][0]["gpu"], "H100-SXM");
    let skipped = &found["skipped"][0];
    assert_eq!(skipped["reason"], "unknown_gpu");
    let why = skipped["why"].as_str().expect("words");
    assert!(why.contains("the nearest names are H100-SXM"), "{why}");
    let odd = json!({ "kind": "gpus", "gpu": "H100 SXM4", "count": 8 });
    let refused = place.broker_reading(&odd.to_string(), args);
    let sentence = refused.refused();
    assert!(
        sentence.contains("the nearest names are H100-SXM") && sentence.contains("`broker gpus`"),
        "{sentence}"
    );
}

#[test]
fn one_row_and_one_offer_are_told_as_one() {
    let place = Place::new();
    let list = place.write("list.csv", &format!("{HEADER}\n{}\n", ROWS[4]));
    let args = [
        "match",
        "--demand",
        "-",
        "--offers",
        list.to_str().expect("a path"),
    ];
    let ended = place.broker_reading(&h100(1).to_string(), args);
    let said = "1 row read: 1 offer; 1 offer satisfies the demand, 0 do not.";
    assert!(ended.stdout.contains(said), "{}", ended.stdout);
}

#[test]
fn each_engine_of_a_fleet_says_where_it_is_started_with_the_batch_of_its_reason() {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let list = format!("{repository}/adapters/data/demo-sheet.csv");
    let demand = format!("{repository}/docs/demands/chat-8b-three-regions.json");
    let told = Place::new()
        .broker(["match", "--offers", &list, "--demand", &demand])
        .stdout;
    let told = told.split_whitespace().collect::<Vec<_>>().join(" ");
    let starts: Vec<&str> = told.split(" start on ").skip(1).collect();
    assert!(starts.len() > 1, "{told}");
    for start in starts {
        let (on, command) = start.split_once(": ").expect("an offer");
        let after = |text: &str, mark: &str| {
            let (_, rest) = text.split_once(mark)?;
            let number: String = rest.chars().take_while(char::is_ascii_digit).collect();
            number.parse::<u32>().ok()
        };
        let started = after(command, "--max_batch_size ").expect("a batch");
        let reason = told
            .split(&format!("{on}: A replica"))
            .nth(1)
            .expect("its reason");
        assert_eq!(after(reason, "in batches of "), Some(started), "{on}");
    }
}

#[test]
fn no_text_of_a_price_list_steers_the_terminal() {
    const HOSTILE: &str = "x\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}";
    let place = Place::new();
    let rows = [
        format!("nebius,{HOSTILE}a,H100-SXM,8,128,1600,81920,20,,{HOSTILE},"),
        format!("nebius,{HOSTILE}b,L4,1,8,32,23034,0.44,,{HOSTILE},"),
    ];
    let list = place.write("list.csv", &format!("{HEADER}\n{}\n", rows.join("\n")));
    let unread = place.write(&format!("{HOSTILE}.csv"), &format!("{HOSTILE},b\n1,2\n"));
    let [list, unread] = [&list, &unread].map(|file| file.to_str().expect("a path"));
    let sku = format!("{HOSTILE}a");
    let tell = |offers: &[&str], why: &[&str]| {
        let args = ["match", "--demand", "-", "--offers"].iter();
        let args: Vec<&str> = args.chain(offers).chain(why).copied().collect();
        let ended = place.broker_reading(&h100(8).to_string(), args);
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert!(all.chars().all(|c| c == '\n' || !c.is_control()), "{all:?}");
        (ended.status, all)
    };
    let (status, told) = tell(&[list, unread], &["--why", &sku]);
    assert_eq!(status, Some(0), "{told}");
    for said in [
        "Of nebius x ]0;title",
        "such as nebius x ]0;title",
        "was not read",
    ] {
        assert!(told.contains(said), "{said}: {told}");
    }
    // Its SKU and its place stand in the table.
    assert!(told.matches("]0;title").count() > 6, "{told}");
    let (status, told) = tell(&[unread], &[]);
    assert_eq!(status, Some(2), "{told}");
}
