//! `broker match` over price lists written here by hand.

use std::fs::File;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::{Ended, HEADER, OFFER_FIELDS, Place, fields};

/// Ten rows of which six give offers: nine offers in all. The comment of each states its part.
pub(super) const ROWS: [&str; 10] = [
    // 1: two offers.
    "nebius,h100-a,H100-SXM,8,128,1600,81920,20,9.5,eu-north1,",
    // 2: two offers.
    "nebius,h100-b,H100-SXM,8,128,1600,81920,23.60,12,eu-north1,",
    // 3: a price of zero is none; the spot price stays. One offer.
    "nebius,h100-c,H100-SXM,8,128,1600,81920,0,11,eu-north1,",
    // 4: spot above on demand is dropped, the rest stays. One offer.
    "nebius,h100-d,H100-SXM,8,128,1600,81920,18.4,19,eu-north1,",
    // 5: one GPU. One offer.
    "nebius,h100-e,H100-SXM,1,16,200,81920,2.95,,eu-north1,",
    // 6: another GPU, spot alone and on demand. Two offers.
    "vast,l4,L4,1,8,32,23034,0.44,0.2,\"Denmark, DK, EU\",",
    // 7: no GPU of this world.
    "nebius,what,Quantum-9000,8,1,1,81920,1,,eu-north1,",
    // 8: no number.
    "nebius,h100-f,H100-SXM,eight,128,1600,81920,20,,eu-north1,",
    // 9: both prices blank.
    "nebius,h100-g,H100-SXM,8,128,1600,81920,,,eu-north1,",
    // 10: eight GPUs for less than their electricity.
    "nebius,h100-h,H100-SXM,8,128,1600,81920,0.01,,eu-north1,",
];

pub(super) struct Lists {
    pub(super) place: Place,
    pub(super) files: Vec<PathBuf>,
}

/// The rows above, a file whose header nobody knows, and an empty one.
pub(super) fn lists() -> Lists {
    let place = Place::new();
    let files = vec![
        place.write("list.csv", &format!("{HEADER}\n{}\n", ROWS.join("\n"))),
        place.write("servers.csv", "vendor,model,cores\na,b,1\na,c,2\na,d,3\n"),
        place.write("empty.csv", ""),
    ];
    Lists { place, files }
}

impl Lists {
    fn try_match(&self, demand: &str, more: &[&str]) -> Ended {
        let demand = self.place.write("demand.json", demand);
        let mut args = vec![
            "match".into(),
            "--json".into(),
            "--demand".into(),
            demand.into_os_string(),
        ];
        args.extend(more.iter().map(Into::into));
        args.push("--offers".into());
        args.extend(self.files.iter().map(|file| file.clone().into_os_string()));
        self.place.broker(args)
    }

    pub(super) fn answer(&self, demand: &Value, more: &[&str]) -> Value {
        self.try_match(&demand.to_string(), more).json(0)
    }
}

pub(super) fn prices(answer: &Value) -> Vec<&str> {
    let candidates = answer["candidates"].as_array().expect("candidates");
    candidates
        .iter()
        .map(|one| one["price_usd_hour"].as_str().expect("a decimal string"))
        .collect()
}

pub(super) fn h100(count: u32) -> Value {
    json!({ "kind": "gpus", "gpu": "H100-SXM", "count": count })
}

#[test]
fn what_became_of_an_offer_is_said_by_its_name_with_its_own_figures() {
    let lists = lists();
    let why = |names: &[&str]| {
        let args = names.iter().flat_map(|name| ["--why", name]);
        lists.answer(&h100(8), &args.collect::<Vec<_>>())["asked"].clone()
    };
    let asked = why(&["h100-a", "h100-e", "l4"]);
    let of = |sku: &str| -> Vec<&Value> {
        let asked = asked.as_array().expect("asked");
        let named = asked.iter().filter(|one| one["sku"] == sku);
        named.map(|one| &one["verdicts"][0]).collect()
    };
    let outcomes =
        |sku: &str| -> Vec<&Value> { of(sku).iter().map(|one| &one["outcome"]).collect() };
    // On demand it is a candidate, its spot price is refused.
    assert_eq!(outcomes("h100-a"), ["candidate", "refused"]);
    assert_eq!(of("h100-a")[1]["reason"], "terms");
    assert_eq!(of("h100-e")[0]["reason"], "gpus_per_node");
    let said = of("h100-e")[0]["why"].as_str().expect("a sentence");
    assert!(
        said.contains("1 x H100-SXM") && said.contains("8 x H100-SXM"),
        "{said}"
    );
    assert_eq!(outcomes("l4"), ["refused", "refused"]);
    // Its id names the one offer.
    let id = asked[0]["offer_id"].as_str().expect("an id");
    assert_eq!(why(&[id]).as_array().expect("asked").len(), 1);
    let ended = lists.try_match(&h100(8).to_string(), &["--why", "h100-z"]);
    assert!(ended.refused().contains("h100-z"), "{ended:?}");
}

#[test]
fn every_row_gave_an_offer_or_is_counted_by_one_skipped_entry() {
    let answer = lists().answer(&h100(8), &[]);
    assert_eq!(
        fields(&answer),
        [
            "alternatives",
            "candidates",
            "eligible",
            "offers",
            "refused",
            "rejected",
            "rows_read",
            "skipped"
        ]
    );
    let skipped = answer["skipped"].as_array().expect("skipped");
    let rows: u64 = skipped
        .iter()
        .map(|entry| entry["rows"].as_u64().expect("rows"))
        .sum();
    assert_eq!((answer["rows_read"].as_u64(), rows), (Some(13), 13 - 6));
    assert_eq!(answer["offers"], 9);

    let found: Vec<(Option<u64>, u64, &str)> = skipped
        .iter()
        .filter(|entry| {
            entry["file"]
                .as_str()
                .is_some_and(|file| file.ends_with("list.csv"))
        })
        .map(|entry| {
            let reason = entry["reason"].as_str().expect("a reason");
            (
                entry["row"].as_u64(),
                entry["rows"].as_u64().expect("rows"),
                reason,
            )
        })
        .collect();
    let expected = [
        (Some(3), 0, "no_price"),
        (Some(4), 0, "spot_above_on_demand"),
        (Some(7), 1, "unknown_gpu"),
        (Some(8), 1, "unreadable"),
        (Some(9), 1, "no_price"),
        (Some(10), 1, "implausible_price"),
    ];
    assert_eq!(found, expected);
    for entry in skipped {
        assert_eq!(
            fields(entry),
            ["file", "reason", "row", "rows", "sku", "why"]
        );
        assert!(
            entry["why"].as_str().is_some_and(|why| !why.is_empty()),
            "{entry}"
        );
    }
}

#[test]
fn a_file_with_an_unknown_header_counts_as_its_rows_in_one_entry() {
    let answer = lists().answer(&h100(8), &[]);
    let skipped = answer["skipped"].as_array().expect("skipped");
    let of = |name: &str| {
        let mut entries = skipped
            .iter()
            .filter(|e| e["file"].as_str().is_some_and(|f| f.ends_with(name)));
        let one = entries.next().expect("an entry");
        assert!(entries.next().is_none(), "one entry for {name}");
        (
            one["row"].is_null(),
            one["rows"].as_u64(),
            one["reason"].as_str().map(str::to_owned),
        )
    };
    assert_eq!(
        of("servers.csv"),
        (true, Some(3), Some("unknown_header".into()))
    );
    assert_eq!(
        of("empty.csv"),
        (true, Some(0), Some("unknown_header".into()))
    );
}

#[test]
fn candidates_are_the_offers_cheapest_first_and_all_others_are_counted() {
    let lists = lists();
    let answer = lists.answer(&h100(8), &[]);
    assert_eq!(prices(&answer), ["18.40", "20.00", "23.60"]);
    assert_eq!(answer["eligible"], 3);
    assert_eq!(answer["rejected"]["total"], 6);
    let by_reason = answer["rejected"]["by_reason"]
        .as_object()
        .expect("reasons");
    assert_eq!(by_reason.values().filter_map(Value::as_u64).sum::<u64>(), 6);
    assert_eq!(
        answer["rejected"]["by_reason"],
        json!({ "gpu": 2, "gpus_per_node": 1, "terms": 3 })
    );
    for candidate in answer["candidates"].as_array().expect("candidates") {
        let mut expected = OFFER_FIELDS.to_vec();
        expected.extend(["candidate", "facts", "reasons"]);
        expected.sort_unstable();
        assert_eq!(fields(candidate), expected);
        assert_eq!(candidate["orderable"], false);
        assert!(
            candidate["reasons"]
                .as_array()
                .is_some_and(|reasons| !reasons.is_empty())
        );
    }
    let refused = answer["refused"].as_array().expect("an example of each");
    let reasons: Vec<_> = refused.iter().map(|one| &one["reason"]).collect();
    assert_eq!(reasons, ["gpu", "gpus_per_node", "terms"]);
    let first = &answer["candidates"][0];
    assert_eq!(first["candidate"], 1);
    assert_eq!(
        (
            &first["sku"],
            &first["gpu"],
            &first["gpus"],
            &first["price_usd_gpu_hour"]
        ),
        (
            &json!("h100-d"),
            &json!("H100-SXM"),
            &json!(8),
            &json!("2.30")
        )
    );
    assert_eq!(
        (&first["place"]["country"], &first["terms"]),
        (&json!("FI"), &json!("on_demand"))
    );

    let spot = json!({ "kind": "gpus", "gpu": "H100-SXM", "count": 8, "spot": true });
    assert_eq!(
        prices(&lists.answer(&spot, &[])),
        ["9.50", "11.00", "12.00"]
    );
    let somewhere =
        json!({ "kind": "gpus", "gpu": "L4", "count": 1, "places": { "countries": ["DK"] } });
    assert_eq!(prices(&lists.answer(&somewhere, &[])), ["0.44"]);
}

#[test]
fn a_list_is_as_old_as_its_file_and_no_list_is_too_old() {
    let lists = lists();
    let written: DateTime<Utc> = "2017-06-05T04:03:02Z".parse().expect("a time");
    let file = File::options()
        .append(true)
        .open(&lists.files[0])
        .expect("opened");
    file.set_modified(written.into()).expect("dated");
    let answer = lists.answer(&h100(8), &[]);
    assert_eq!(
        (&answer["eligible"], prices(&answer)[0]),
        (&json!(3), "18.40")
    );
    let first = &answer["candidates"][0];
    assert_eq!(first["observed_at"], "2017-06-05T04:03:02Z");
    assert!(
        first["reasons"]
            .to_string()
            .contains("Listed on 2017-06-05"),
        "{first}"
    );
    let list = lists.files[0].to_str().expect("a path");
    let args = ["match", "--offers", list, "--demand", "-"];
    let ended = lists.place.broker_reading(&h100(8).to_string(), args);
    assert_eq!(
        ended.stdout.matches(" 2017-06-05").count(),
        3 + 1,
        "{}",
        ended.stdout
    );
}

#[test]
fn lists_of_every_dialect_are_compared_with_each_other() {
    let place = Place::new();
    let files = [
        place.write("plain.csv", &format!("{HEADER}\n{}\n", ROWS[0])),
        place.write(
            "rows.csv",
            "offer_id,provider,instance_type,gpu,gpu_count,gpu_memory_gib,vcpus,memory_gib,disk_gib,region,country,continent,kind,fabric,fabric_gbps,spot,price_micro_usd_hour,nodes_available,min_term_hours,reliability_bp\n\
             1,acme,box,H100-SXM,8,80,192,2048,0,eu-1,DE,EU,bare_metal,ib_ndr400,3200,false,19000000,4,0,9990\n",
        ),
        place.write(
            "verda.csv",
            "Region,Price,SpotPrice,GPUInfo,MemoryGiB,vCPUs,AcceleratorCount,AcceleratorName,InstanceType\n\
             FIN-03,18.5,9,H100 SXM,1480,176,8.0,H100-SXM,8H100.80S.176V\n\
             FIN-03,0.1,,,16,4,,,CPU.4V\n",
        ),
    ];
    let lists = Lists {
        place,
        files: files.into(),
    };
    let answer = lists.answer(&h100(8), &[]);
    assert_eq!(prices(&answer), ["18.50", "19.00", "20.00"]);
    assert_eq!(
        (
            &answer["rows_read"],
            &answer["offers"],
            &answer["skipped"][0]["reason"]
        ),
        (&json!(4), &json!(5), &json!("no_gpu"))
    );
}

#[test]
fn the_price_of_an_hour_is_for_all_nodes() {
    let demand = json!({ "kind": "gpus", "gpu": "H100-SXM", "count": 8, "nodes": 3 });
    let answer = lists().answer(&demand, &["--top", "1"]);
    let candidate = &answer["candidates"][0];
    assert_eq!(
        (
            &candidate["nodes"],
            &candidate["price_usd_hour"],
            &candidate["price_usd_gpu_hour"]
        ),
        (&json!(3), &json!("55.20"), &json!("2.30"))
    );
}

#[test]
fn top_limits_what_is_shown_and_nothing_that_is_counted() {
    let lists = lists();
    let (all, one) = (
        lists.answer(&h100(8), &[]),
        lists.answer(&h100(8), &["--top", "1"]),
    );
    assert_eq!(prices(&one), ["18.40"]);
    for counted in ["rows_read", "offers", "eligible", "rejected", "skipped"] {
        assert_eq!(all[counted], one[counted], "{counted}");
    }
    assert_eq!(prices(&lists.answer(&h100(8), &["--top", "0"])), [""; 0]);
}

#[test]
fn when_nothing_matches_the_answer_is_whole_and_the_status_is_1() {
    let ended = lists().try_match(r#"{"kind":"gpus","gpu":"B200","count":8}"#, &[]);
    let answer = ended.json(1);
    assert_eq!(
        (&answer["eligible"], &answer["candidates"]),
        (&json!(0), &json!([]))
    );
    assert_eq!(answer["rejected"]["total"], answer["offers"]);
    assert!(
        ended.stderr.contains("no offer satisfies the demand"),
        "{}",
        ended.stderr
    );
}

#[test]
fn a_demand_that_is_no_demand_is_refused_with_status_2_and_words_that_help() {
    let lists = lists();
    for (demand, help) in [
        ("{\"kind\":\"gpus\"", "demand.json is not valid"),
        ("[1]", "demand.json is not valid"),
        ("{}", "`kind`"),
        (r#"{"kind":"lease"}"#, "`serve_realtime`"),
        (r#"{"kind":"gpus","gpu":"H100-SXM"}"#, "`count`"),
        (
            r#"{"kind":"gpus","gpu":"H100-SXM","count":8,"colour":"red"}"#,
            "`colour`",
        ),
        (
            r#"{"kind":"gpus","gpu":"H100-SXN","count":8}"#,
            "the nearest names are H100-SXM",
        ),
        (
            r#"{"kind":"gpus","gpu":"H100-SXM","count":0}"#,
            "count: must be between 1 and 1024",
        ),
        (r#"{"kind":"gpus","gpu":"H100-SXM","count":-8}"#, "-8"),
        (
            r#"{"kind":"gpus","gpu":"H100-SXM","count":8,"nodes":20000}"#,
            "nodes: must be between 1 and 10000",
        ),
        (
            r#"{"kind":"gpus","gpu":"H100-SXM","count":8,"ceiling":{"usd_per_hour":"-1"}}"#,
            "above zero",
        ),
        (
            r#"{"kind":"gpus","gpu":"H100-SXM","count":8,"window":{"end":"2020-01-01T00:00:00Z"}}"#,
            "window.end: 2020-01-01T00:00:00Z is in the past",
        ),
        (
            r#"{"kind":"train","model":"Lama 3 8B","tokens":1000}"#,
            "the nearest names are Llama 3 8B",
        ),
    ] {
        let ended = lists.try_match(demand, &[]);
        let sentence = ended.refused();
        assert!(sentence.contains(help), "{demand}: {sentence}");
    }
}

#[test]
fn a_file_that_is_not_there_is_refused_by_name() {
    let place = Place::new();
    let list = place.write("list.csv", HEADER);
    let list = list.to_str().expect("a path");
    let demand = place.write("demand.json", &h100(8).to_string());
    let demand = demand.to_str().expect("a path");
    let missing = place.broker(["match", "--offers", "nowhere.csv", "--demand", demand]);
    assert!(missing.refused().contains("nowhere.csv"), "{missing:?}");
    let missing = place.broker(["match", "--offers", list, "--demand", "nowhere.json"]);
    assert!(missing.refused().contains("nowhere.json"), "{missing:?}");
    assert_eq!(
        place.broker(["match", "--offers", list]).status,
        Some(2),
        "no demand"
    );
    assert_eq!(
        place.broker(["match", "--demand", demand]).status,
        Some(2),
        "no list"
    );
}

#[test]
fn a_demand_may_come_from_standard_input_and_the_answer_be_a_table() {
    let lists = lists();
    let list = lists.files[0].to_str().expect("a path");
    let args = ["match", "--offers", list, "--demand", "-"];
    let ended = lists.place.broker_reading(&h100(8).to_string(), args);
    assert_eq!((ended.status, ended.stderr.as_str()), (Some(0), ""));
    for shown in [
        "h100-d",
        "on demand",
        "place",
        "FI eu-north1",
        "as of",
        "18.40",
        "2.30",
        "Why the first:",
        "10 rows read: 9 offers",
        "unknown_gpu",
    ] {
        assert!(ended.stdout.contains(shown), "{shown} in {}", ended.stdout);
    }
    // The table is for programs where there is no terminal, and breaks no cell.
    let told = ended.stdout.split("Why the first:").nth(1);
    let told = told.expect("the lines below the table");
    assert!(
        told.lines().all(|line| line.chars().count() <= 100),
        "{told}"
    );
}

#[test]
fn each_line_of_a_fleet_of_several_offers_shows_its_own_price() {
    let place = Place::new();
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let list = format!("{repository}/adapters/data/demo-sheet.csv");
    let demand = format!("{repository}/docs/demands/chat-8b-three-regions.json");
    let table = place
        .broker(["match", "--offers", &list, "--demand", &demand])
        .stdout;
    for line in [
        ["1", "hyperstack", "19.20", "2.40"],
        ["1", "nebius", "14.75", "2.95"],
    ] {
        let shown = |row: &str| {
            let cells: Vec<_> = row.split_whitespace().collect();
            line.iter().all(|cell| cells.contains(cell))
        };
        assert!(table.lines().any(shown), "{line:?} in {table}");
    }
    assert!(table.contains("The first in total: 33.95 USD/h"), "{table}");
}
