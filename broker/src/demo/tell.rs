//! How the story looks on a terminal: headings, one line a fact, tables.

use comfy_table::{ContentArrangement, Table, TableComponent, presets};

/// Begins a chapter.
pub(super) fn chapter(title: &str) {
    eprintln!("\n== {title}");
}

/// Says one thing.
pub(super) fn say(line: impl AsRef<str>) {
    eprintln!("   {}", line.as_ref());
}

/// Shows rows under their headings.
pub(super) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .set_content_arrangement(ContentArrangement::Disabled)
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections)
        .set_header(headings.to_vec());
    for row in rows {
        table.add_row(row);
    }
    for line in table.to_string().lines() {
        eprintln!("   {line}");
    }
}
