//! `docs/identity.md` shows how far each role reaches: made from the types and from the table that
//! is asked.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use broker::http::access::role_reaches;
use market::identity::{ResourceFamily, Role, Scope};
use serde::Serialize;

const TYPES: &str = "market/src/identity.rs";
const BEGIN: &str = "<!-- made from market/src/identity.rs and broker/src/http/access.rs -->\n";
const END: &str = "<!-- end of what is made -->\n";

fn read(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    fs::read_to_string(path).expect(file)
}

/// The documentation of an enum's variants, by their names.
fn documented(name: &str) -> BTreeMap<String, String> {
    let source = read(TYPES);
    let start = format!("pub enum {name} {{\n");
    let (_, rest) = source.split_once(&start).expect("the enum");
    let (variants, _) = rest.split_once("\n}\n").expect("its end");
    let (mut documented, mut said) = (BTreeMap::new(), Vec::new());
    for line in variants.lines().map(str::trim) {
        if let Some(words) = line.strip_prefix("/// ") {
            said.push(words);
        } else if !line.starts_with('#') {
            let variant = line.trim_end_matches(',').to_owned();
            documented.insert(variant, said.join(" "));
            said.clear();
        }
    }
    documented
}

/// The word of a variant on the wire.
fn word(variant: impl Serialize) -> String {
    let word = serde_json::to_value(variant).expect("JSON");
    word.as_str().expect("a word").to_owned()
}

fn made() -> String {
    let mut text = "| role | is there for |\n|---|---|\n".to_owned();
    let said = documented("Role");
    for role in Role::ALL {
        let meaning = &said[&format!("{role:?}")];
        writeln!(text, "| `{}` | {meaning} |", role.as_str()).expect("text");
    }
    text.push_str("\n| family | what is in it |");
    for role in Role::ALL {
        write!(text, " {} |", role.as_str()).expect("text");
    }
    text.push_str("\n|---|---|");
    text.push_str(&"---|".repeat(Role::ALL.len()));
    text.push('\n');
    let said = documented("ResourceFamily");
    for family in ResourceFamily::ALL {
        let meaning = &said[&format!("{family:?}")];
        write!(text, "| `{}` | {meaning} |", word(family)).expect("text");
        for role in Role::ALL {
            let reach = match role_reaches(role, family) {
                Scope::None => "–".to_owned(),
                scope => word(scope),
            };
            write!(text, " {reach} |").expect("text");
        }
        text.push('\n');
    }
    text.push_str("\n| scope | lets a key at a family |\n|---|---|\n");
    let said = documented("Scope");
    for scope in [Scope::None, Scope::Read, Scope::Write] {
        let meaning = &said[&format!("{scope:?}")];
        writeln!(text, "| `{}` | {meaning} |", word(scope)).expect("text");
    }
    text
}

#[test]
fn the_tables_of_roles_and_scopes_are_those_that_are_asked() {
    let page = read("docs/identity.md");
    let (before, rest) = page.split_once(BEGIN).expect("a mark");
    let (_, after) = rest.split_once(END).expect("another mark");
    let fresh = format!("{before}{BEGIN}\n{}\n{END}{after}", made());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/identity.md");
        fs::write(file, &fresh).expect("the page is written");
        return;
    }
    assert!(
        page == fresh,
        "docs/identity.md is out of date; run `cargo xtask generate` and review it"
    );
}
