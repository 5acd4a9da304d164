//! Tables for people, and lines for programs.

use std::io::{ErrorKind, Write as _};

use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent, presets};

/// What a terminal is wide at least, less the margin of the demo's story.
const COLUMNS: u16 = 97;

/// Draws rows under their headings; columns of numbers stand flush right, long cells are broken.
pub(crate) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(COLUMNS)
        .set_header(headings.to_vec());
    for (at, column) in table.column_iter_mut().enumerate() {
        let numbers = rows
            .iter()
            .filter_map(|row| row.get(at))
            .all(|cell| cell.parse::<f64>().is_ok());
        if numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.add_rows(rows);
    let lines: Vec<_> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// Prints a line on stdout. A reader that went away early, such as `head`, wants no more of it.
pub(crate) fn print_line(line: &str) -> std::io::Result<()> {
    match writeln!(std::io::stdout().lock(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_flush_right_and_no_line_is_wider_than_a_terminal() {
        let long = "x".repeat(300);
        let rows = [
            vec!["a".to_owned(), "1.5".to_owned()],
            vec![long, "12.5".to_owned()],
        ];
        let drawn = table(&["what", "USD"], rows);
        assert!(
            drawn
                .lines()
                .all(|line| line.chars().count() <= usize::from(COLUMNS)),
            "{drawn}"
        );
        assert!(drawn.lines().any(|line| line.ends_with(" 1.5")), "{drawn}");
        assert_eq!(drawn.matches('x').count(), 300, "{drawn}");
    }
}
