//! Tables for people, and lines for programs.

use std::io::{ErrorKind, Write as _};

use comfy_table::{CellAlignment, ContentArrangement, Table, TableComponent, presets};

/// How wide a line is at most.
const COLUMNS: u16 = 100;
/// How wide a table is at most: a line, less the margin of the demo's story.
const TABLE_COLUMNS: u16 = COLUMNS - 3;

/// Draws rows under their headings; columns of numbers stand flush right, long cells are broken.
pub(crate) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(TABLE_COLUMNS)
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
