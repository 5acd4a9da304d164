//! `docs/predictions.md` lists the columns that `broker predict` reads.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use matcher::perf::rows::Table;

const BEGIN: &str = "<!-- made from matcher/src/perf/rows/columns.rs -->\n";
const END: &str = "<!-- end of what is made -->\n";

fn made() -> String {
    let mut text = String::new();
    for (table, heading) in [
        (Table::Training, "training"),
        (Table::Inference, "inference"),
    ] {
        writeln!(text, "## Columns of `predict {heading}`\n").expect("text");
        text.push_str("Needed ones are in bold. Others may be left out or blank.\n\n");
        text.push_str("| column | what it says | words |\n|---|---|---|\n");
        for column in table.columns() {
            let name = match column.needed {
                true => format!("**`{}`**", column.name),
                false => format!("`{}`", column.name),
            };
            let words = column.words.unwrap_or_default();
            writeln!(text, "| {name} | {} | {words} |", column.meaning).expect("text");
        }
        text.push('\n');
    }
    text
}

#[test]
fn the_list_of_columns_is_that_of_the_reader() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/predictions.md");
    let text = fs::read_to_string(&file).expect("the page");
    let (before, rest) = text.split_once(BEGIN).expect("a mark");
    let (_, after) = rest.split_once(END).expect("another mark");
    let fresh = format!("{before}{BEGIN}{}{END}{after}", made());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&file, &fresh).expect("the page is written");
    }
    let committed = fs::read_to_string(&file).expect("the page");
    assert!(
        committed == fresh,
        "docs/predictions.md is out of date; run `cargo xtask generate` and review it"
    );
}
