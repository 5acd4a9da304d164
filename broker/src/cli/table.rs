//! Tables for people, and lines for programs.

use std::io::{ErrorKind, Write as _};

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, presets,
};

/// How wide a line is at most.
const COLUMNS: u16 = 100;
/// How wide a table is at most: a line, less the margin of the demo's story.
const TABLE_COLUMNS: u16 = COLUMNS - 3;

/// Draws rows under their headings; columns of numbers stand flush right, long cells are broken.
pub(crate) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    fitted(Some(TABLE_COLUMNS), headings, rows)
}

/// As [`table`], within so many columns; without a limit, no cell is broken. Ids, which are copied,
/// are never broken.
pub(crate) fn fitted(
    columns: Option<u16>,
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections)
        .set_header(headings.to_vec());
    match columns {
        Some(columns) => table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(columns),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    for (at, column) in table.column_iter_mut().enumerate() {
        let cells = || rows.iter().filter_map(|row| row.get(at));
        let is_number = |cell: &String| cell.parse::<f64>().is_ok();
        let is_nothing = |cell: &String| matches!(cell.as_str(), "" | "-");
        if cells().all(|cell| is_number(cell) || is_nothing(cell)) && cells().any(is_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if headings.get(at) == Some(&"id") {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.add_rows(rows);
    let lines: Vec<_> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// Breaks a text between words into lines that a terminal holds; the first begins with the prefix,
/// the others as far in.
pub(crate) fn hanging(prefix: &str, text: &str) -> String {
    let margin = prefix.chars().count();
    let mut lines = prefix.to_owned();
    let mut column = margin;
    for (at, word) in text.split(' ').enumerate() {
        let width = word.chars().count();
        if at > 0 && column + 1 + width > usize::from(COLUMNS) {
            lines.push('\n');
            lines.push_str(&" ".repeat(margin));
            column = margin;
        } else if at > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += width;
    }
    lines
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
                .all(|line| line.chars().count() <= usize::from(TABLE_COLUMNS)),
            "{drawn}"
        );
        assert!(drawn.lines().any(|line| line.ends_with(" 1.5")), "{drawn}");
        assert_eq!(drawn.matches('x').count(), 300, "{drawn}");
    }

    #[test]
    fn without_a_terminal_no_cell_is_broken_and_an_id_never_is() {
        let row = vec![
            "rsv_0123456789abcdef0123".to_owned(),
            "word ".repeat(30),
            "-".to_owned(),
        ];
        let wide = fitted(None, &["id", "text", "USD"], [row.clone()]);
        assert!(
            wide.lines().any(|line| line.contains(row[1].trim())),
            "{wide}"
        );
        let narrow = fitted(Some(60), &["id", "text", "USD"], [row.clone()]);
        assert!(
            narrow.contains(&row[0]) && narrow.lines().count() > 4,
            "{narrow}"
        );
    }

    #[test]
    fn a_long_text_is_broken_between_words_and_loses_none() {
        let text = "words of several lengths ".repeat(20);
        let lines = hanging("   11:20  ", text.trim_end());
        assert!(
            lines.lines().count() > 2 && lines.lines().all(|line| line.chars().count() <= 100),
            "{lines}"
        );
        assert!(
            lines
                .lines()
                .skip(1)
                .all(|line| line.starts_with("          ") && !line.ends_with(' '))
        );
        let words: Vec<_> = lines.split_whitespace().skip(1).collect();
        assert_eq!(words.join(" "), text.trim_end());
    }
}
