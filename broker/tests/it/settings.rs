//! `docs/settings.md` is made from the configuration: its types, their doc comments, and the defaults.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::eventually::output_of;

/// The structs of the configuration by name.
type Structs = BTreeMap<String, Struct>;

#[derive(Debug, Default)]
struct Struct {
    /// Whether serde fills in missing fields.
    is_filled_in: bool,
    fields: Vec<Field>,
}

#[derive(Debug)]
struct Field {
    name: String,
    /// As it is written: `Option<u32>`.
    kind: String,
    documentation: String,
    is_filled_in: bool,
}

/// One setting.
#[derive(Debug)]
struct Setting {
    /// As in `broker.toml`, from the root: `server.listen`.
    name: String,
    default: String,
    unit: &'static str,
    meaning: String,
}

/// The structs of a source as rustfmt writes it, a field a line.
fn structs(source: &str) -> Structs {
    let mut structs = Structs::new();
    let (mut open, mut documentation, mut attributes) = (None, Vec::new(), String::new());
    for line in source.lines() {
        let line = line.trim();
        if let Some(said) = line.strip_prefix("///") {
            documentation.push(said.trim());
            continue;
        }
        if line.starts_with("#[") {
            attributes.push_str(line);
            continue;
        }
        let is_filled_in = attributes.contains("default");
        if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.trim_end_matches(" {").to_owned();
            let fields = Vec::new();
            structs.insert(
                name.clone(),
                Struct {
                    is_filled_in,
                    fields,
                },
            );
            open = Some(name);
        } else if line == "}" {
            open = None;
        } else if let Some(of) = open.as_ref().and_then(|name| structs.get_mut(name)) {
            let field = line
                .strip_prefix("pub ")
                .and_then(|line| line.split_once(": "));
            let (name, kind) = field.unwrap_or_else(|| panic!("no field: {line}"));
            of.fields.push(Field {
                name: name.to_owned(),
                kind: kind.trim_end_matches(',').to_owned(),
                documentation: documentation.join(" "),
                is_filled_in,
            });
        }
        documentation.clear();
        attributes.clear();
    }
    structs
}

/// The name of a type, and what stands between its angle brackets last.
fn taken_apart(kind: &str) -> (&str, &str) {
    let (outer, within) = kind.split_once('<').unwrap_or((kind, ""));
    let within = within.trim_end_matches('>');
    (outer, within.rsplit(", ").next().unwrap_or(within))
}

/// The unit that a name ends in.
fn unit(name: &str) -> &'static str {
    match name.rsplit('.').next().unwrap_or_default() {
        "per_second" => "calls per second",
        "burst" => "calls",
        "usd_per_hour" => "US dollars per hour",
        name if name.ends_with("_seconds") => "seconds",
        name if name.ends_with("_days") => "days",
        _ => "",
    }
}

/// Every setting of a struct at `place`, in the order of the source.
fn settings(structs: &Structs, of: &Struct, place: &str, defaults: &Value) -> Vec<Setting> {
    let mut found = Vec::new();
    for field in &of.fields {
        let name = format!("{place}{}", field.name);
        let default = &defaults[&field.name];
        let (outer, within) = taken_apart(&field.kind);
        let (inner, place) = match outer {
            "BTreeMap" => (within, format!("{name}.ID.")),
            "Vec" => (within, format!("{name}[].")),
            "Option" => (within, format!("{name}.")),
            _ => (outer, format!("{name}.")),
        };
        if let Some(inner) = structs.get(inner) {
            found.extend(settings(structs, inner, &place, default));
            continue;
        }
        let filled = of.is_filled_in || field.is_filled_in;
        let default = match (default, outer) {
            (Value::Null, "Option") => "–".to_owned(),
            (Value::Null, "bool") if filled => "`false`".to_owned(),
            (Value::Null, _) if filled => "–".to_owned(),
            (Value::Null, _) => "required".to_owned(),
            (Value::Array(none), _) if none.is_empty() => "none".to_owned(),
            (default, _) => format!("`{default}`"),
        };
        found.push(Setting {
            default,
            unit: unit(&name),
            meaning: field.documentation.clone(),
            name,
        });
    }
    found
}

fn every_setting() -> Vec<Setting> {
    let read = |source: &str| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        structs(&std::fs::read_to_string(source).expect("a source of the configuration"))
    };
    let mut structs = read("src/platform/config.rs");
    structs.extend(read("src/platform/config/provider.rs"));
    structs.extend(read("../market/src/provider_facts.rs"));
    let defaults = broker::platform::config::defaults();
    settings(&structs, &structs["Config"], "", &defaults)
}

#[test]
fn the_page_of_settings_is_made_from_the_configuration() {
    const HEAD: &str = "| setting | default | unit | means |\n|---|---|---|---|\n";
    let mut table = HEAD.to_owned();
    for setting in every_setting() {
        let Setting {
            name,
            default,
            unit,
            meaning,
        } = setting;
        assert!(!meaning.is_empty(), "{name} does not say what it means");
        let meaning = meaning.replace('|', "\\|");
        writeln!(table, "| `{name}` | {default} | {unit} | {meaning} |").expect("text");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/settings.md");
    let text = std::fs::read_to_string(&file).expect("docs/settings.md");
    let start = text.find(HEAD).expect("the table");
    let end = text[start..].find("\n\n");
    let end = end.map_or(text.len(), |end| start + end + 1);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let text = format!("{}{table}{}", &text[..start], &text[end..]);
        std::fs::write(&file, text).expect("the table is written");
        return;
    }
    assert!(
        text[start..end] == table,
        "docs/settings.md is out of date; run `cargo xtask generate` and review it"
    );
}

/// Puts a value where a setting of this name stands.
fn put(document: &mut toml::Table, name: &str) {
    let (first, rest) = name
        .split_once('.')
        .map_or((name, None), |(a, b)| (a, Some(b)));
    let (key, is_list) = first
        .strip_suffix("[]")
        .map_or((first, false), |key| (key, true));
    let Some(rest) = rest else {
        document.insert(key.to_owned(), toml::Value::Boolean(true));
        return;
    };
    let mut inner = toml::Table::new();
    put(&mut inner, rest);
    let inner = toml::Value::Table(inner);
    let value = match is_list {
        true => toml::Value::Array(vec![inner]),
        false => inner,
    };
    document.insert(key.to_owned(), value);
}

/// The binary's message about a `broker.toml`.
fn complaint(document: &toml::Table) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("broker.toml"), document.to_string()).expect("a file");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_broker"));
    command.args(["migrate", "status"]);
    let ended = output_of(command.current_dir(folder.path()).env_clear());
    String::from_utf8(ended.stderr).expect("text")
}

#[test]
fn each_setting_of_the_page_is_known_and_one_more_is_not() {
    let all = every_setting();
    assert!(all.len() > 40, "{all:?}");
    for name in all
        .iter()
        .map(|setting| setting.name.as_str())
        .chain(["server.no_such_one"])
    {
        let mut document = toml::Table::new();
        put(&mut document, name);
        let told = complaint(&document);
        let is_unknown = told.contains("there is no `");
        assert_eq!(is_unknown, name == "server.no_such_one", "{name}: {told}");
    }
}
