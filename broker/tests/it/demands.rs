//! `docs/demands/README.md` describes every field of a demand as the published schema does, and states how to
//! try every example.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use broker::http::document;
use serde_json::Value;

const BEGIN: &str = "<!-- made from openapi/broker.json -->\n";
const END: &str = "<!-- end of what is made -->\n";

/// The schemas whose fields are listed, in order, with the heading of each.
const TABLES: [(&str, &str); 17] = [
    ("GpusDemand", "`gpus`"),
    ("TrainDemand", "`train`"),
    ("ServeRealtimeDemand", "`serve_realtime`"),
    ("ServeBatchDemand", "`serve_batch`"),
    ("HybridDemand", "`hybrid`"),
    ("Window", "`window`"),
    ("Ceiling", "`ceiling`"),
    ("Places", "`places`"),
    ("Policy", "`policy`"),
    ("ModelShape", "`model`, by shape"),
    ("Checkpointing", "`checkpointing`"),
    ("TrainCalibration", "`calibration` of a run"),
    ("ServeCalibration", "`calibration` of a fleet"),
    ("UserShare", "`users`"),
    ("LatencyObjective", "`latency`"),
    (
        "ServeHalfServeRealtime",
        "`serve` of `hybrid`, as they come",
    ),
    ("ServeHalfServeBatch", "`serve` of `hybrid`, a batch"),
];

/// The fields that every kind has: they are listed once.
const SHARED: [&str; 10] = [
    "gpu_memory_gib",
    "host_memory_gib",
    "vcpus",
    "window",
    "ceiling",
    "places",
    "tenancy",
    "policy",
    "verification",
    "tags",
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/demands")
}

struct Schemas(Value);

impl Schemas {
    fn of(&self, name: &str) -> &Value {
        let found = &self.0[name];
        assert!(found.is_object(), "there is no schema {name}");
        found
    }

    /// A field without its `null`, and its type.
    fn core<'a>(&'a self, field: &'a Value) -> (&'a Value, Option<&'a str>) {
        let options = field["oneOf"].as_array();
        let field = options
            .and_then(|options| options.iter().find(|one| one["type"] != "null"))
            .unwrap_or(field);
        let name = field["$ref"]
            .as_str()
            .and_then(|path| path.strip_prefix("#/components/schemas/"));
        (field, name)
    }

    /// The values that a field takes, in words.
    fn kind(&self, field: &Value) -> String {
        let (field, name) = self.core(field);
        if let Some(name) = name {
            let schema = self.of(name);
            return match TABLES.iter().find(|(schema, _)| *schema == name) {
                _ if name == "Model" => "a name, or a shape (below)".to_owned(),
                _ if name == "ServeHalf" => "a demand to serve (below)".to_owned(),
                _ if name == "GpusWanted" => {
                    "a text such as `H100`, or a list, 1 to 32 of them".to_owned()
                }
                _ if name == "Counts" => {
                    "an integer, 1 to 1024, or such as `{\"min\": 4, \"max\": 8}`".to_owned()
                }
                Some(_) => "an object (below)".to_owned(),
                None if schema["enum"].is_array() => words(&schema["enum"]),
                None => self.kind(schema),
            };
        }
        if field["enum"].is_array() {
            return words(&field["enum"]);
        }
        let types = match &field["type"] {
            Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
            other => vec![other.as_str().unwrap_or_default()],
        };
        let limits = |low: &str, high: &str| match (&field[low], &field[high]) {
            (Value::Null, Value::Null) => String::new(),
            (Value::Null, high) => format!(", at most {high}"),
            (low, Value::Null) => format!(", at least {low}"),
            (low, high) => format!(", {low} to {high}"),
        };
        let kind = types.into_iter().find(|kind| *kind != "null");
        match kind.unwrap_or_default() {
            "array" => format!(
                "a list{} of {}",
                limits("minItems", "maxItems"),
                self.kind(&field["items"])
            ),
            "object" => "words by words".to_owned(),
            "boolean" => "`true` or `false`".to_owned(),
            "string" if field["format"] == "date-time" => "a time (RFC 3339)".to_owned(),
            "string" => match field["examples"][0].as_str() {
                Some(example) => format!("a text such as `{example}`"),
                None => "a text".to_owned(),
            },
            number => format!(
                "a{} {number}{}",
                article(number),
                limits("minimum", "maximum")
            ),
        }
    }

    /// The fields of a schema as a table.
    fn table(&self, name: &str, fields: impl Fn(&str) -> bool) -> String {
        let schema = self.of(name);
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut text = "| field | what may stand there | |\n|---|---|---|\n".to_owned();
        for (field, shape) in schema["properties"].as_object().expect("fields") {
            if !fields(field) {
                continue;
            }
            let (core, named) = self.core(shape);
            let said = [core, shape]
                .into_iter()
                .chain(named.map(|name| self.of(name)))
                .find_map(|at| at["description"].as_str())
                .unwrap_or_default()
                .replace('\n', " ");
            let needed = if required.contains(&field.as_str()) {
                " **Needed.**".to_owned()
            } else {
                let usual = &shape["default"];
                match usual {
                    Value::Null => String::new(),
                    usual => format!(" Else {usual}."),
                }
            };
            let said = if field == "kind" {
                "The kind of the demand.".to_owned()
            } else {
                said
            };
            writeln!(
                text,
                "| `{field}` | {} | {said}{needed} |",
                self.kind(shape)
            )
            .expect("text");
        }
        text
    }
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "n"
    } else {
        ""
    }
}

fn words(list: &Value) -> String {
    let words = list.as_array().expect("words").iter();
    let words: Vec<String> = words
        .filter_map(Value::as_str)
        .map(|word| format!("`{word}`"))
        .collect();
    words.join(", ")
}

/// All fields of a demand, as the document has them.
fn made() -> String {
    let document = document();
    let schemas = Schemas(document.value()["components"]["schemas"].clone());
    let mut text = "### Of every kind\n\n".to_owned();
    text.push_str(&schemas.table("GpusDemand", |field| SHARED.contains(&field)));
    for (name, heading) in TABLES {
        let of_demand = name.ends_with("Demand") || name.starts_with("ServeHalf");
        writeln!(text, "\n### {heading}\n").expect("text");
        if let Some(kind) = name.strip_prefix("ServeHalf") {
            let kind = if kind == "ServeBatch" {
                "serve_batch"
            } else {
                "serve_realtime"
            };
            writeln!(text, "As `{kind}`, with `\"kind\": \"{kind}\"`.").expect("text");
            continue;
        }
        let listed = |field: &str| !(of_demand && SHARED.contains(&field));
        text.push_str(&schemas.table(name, listed));
    }
    text
}

#[test]
fn the_list_of_a_demands_fields_is_that_of_the_schema() {
    let file = folder().join("README.md");
    let text = fs::read_to_string(&file).expect("the readme of the demands");
    let (before, rest) = text.split_once(BEGIN).expect("a mark");
    let (_, after) = rest.split_once(END).expect("another mark");
    let fresh = format!("{before}{BEGIN}{}{END}{after}", made());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &fresh).expect("the readme is written");
    }
    let committed = fs::read_to_string(&file).expect("the readme of the demands");
    assert!(
        committed == fresh,
        "docs/demands/README.md is out of date; run `cargo xtask generate` and review it"
    );
}

#[test]
fn every_kind_and_every_object_of_a_demand_is_listed() {
    let document = document();
    let schemas = Schemas(document.value()["components"]["schemas"].clone());
    let kinds = schemas.of("Demand")["discriminator"]["mapping"].as_object();
    assert_eq!(kinds.expect("kinds").len(), 5);
    for (name, _) in TABLES {
        let fields = schemas.of(name)["properties"].as_object().expect("fields");
        for (field, shape) in fields {
            let (_, named) = schemas.core(shape);
            let Some(named) = named.filter(|name| schemas.of(name)["properties"].is_object())
            else {
                continue;
            };
            let is_listed = TABLES.iter().any(|(listed, _)| *listed == named);
            assert!(
                is_listed,
                "{name}.{field} is a {named}, whose fields are not listed"
            );
        }
    }
}

#[test]
fn every_example_is_shown_with_the_command_that_tries_it() {
    let text = fs::read_to_string(folder().join("README.md")).expect("the readme");
    let mut examples = 0;
    for entry in fs::read_dir(folder()).expect("the examples") {
        let name = entry.expect("a file").file_name();
        let name = name.to_str().expect("a name");
        if name.ends_with(".json") {
            let shown = format!("({name})");
            let tried = format!("--demand docs/demands/{name}");
            assert!(text.contains(&shown) && text.contains(&tried), "{name}");
            examples += 1;
        }
    }
    assert!(examples > 3);
}
