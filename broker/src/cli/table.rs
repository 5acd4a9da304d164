//! Tables for people, and lines for programs.

use std::io::{ErrorKind, Write as _};

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, Width, presets,
};
use console::measure_text_width;
use verifier::plain::is_plain;

/// How wide a line is at most.
const COLUMNS: u16 = 100;
/// How wide a table is at most: a line, less the margin of the demo's story.
const TABLE_COLUMNS: u16 = COLUMNS - 3;

/// A cell of so many columns or fewer stands on one line.
const SHORT: usize = 16;
/// What stands between the texts of two columns. Units: columns.
const GAP: usize = 3;

/// Draws rows under their headings; columns of numbers stand flush right, long cells are broken between
/// words.
pub(crate) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    fitted(Some(TABLE_COLUMNS), headings, rows)
}

/// As [`table`], within so many columns, or as many as its words take; without a limit, no cell is
/// broken.
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
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(headings.to_vec());
    let widths = columns.map(|limit| widths(usize::from(limit), headings, &rows));
    for (at, column) in table.column_iter_mut().enumerate() {
        let cells = || rows.iter().filter_map(|row| row.get(at));
        let is_number = |cell: &String| cell.parse::<f64>().is_ok();
        let is_nothing = |cell: &String| matches!(cell.as_str(), "" | "-");
        if cells().all(|cell| is_number(cell) || is_nothing(cell)) && cells().any(is_number) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        if let Some(width) = widths.as_ref().and_then(|widths| widths.get(at)) {
            let padded = u16::try_from(width + 2).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(padded)));
        }
    }
    table.add_rows(rows);
    let lines: Vec<_> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// How wide a column may be. Units: columns of the terminal.
struct Needs {
    /// So that no word and no short cell is broken.
    least: usize,
    /// So that no cell is.
    cells: usize,
    /// So that its heading is not either.
    heading: usize,
}

/// How wide each column is, so that all fit: none narrower than its longest word. What room is left goes to
/// whichever lacks most of its cells, then of its heading. Headings are broken only where all fits then.
fn widths(limit: usize, headings: &[&str], rows: &[Vec<String>]) -> Vec<usize> {
    let needs: Vec<_> = (headings.iter().enumerate())
        .map(|(at, heading)| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            let first = Needs {
                least: longest_word(heading),
                cells: 1,
                heading: measure_text_width(heading),
            };
            cells.fold(first, |needs, cell| {
                let whole = measure_text_width(cell);
                let unbroken = if whole <= SHORT {
                    whole
                } else {
                    longest_word(cell)
                };
                Needs {
                    least: needs.least.max(unbroken),
                    cells: needs.cells.max(whole),
                    heading: needs.heading.max(unbroken),
                }
            })
        })
        .collect();
    let drawn = |widths: &[usize]| {
        (widths.iter().map(|width| width + GAP).sum::<usize>()).saturating_sub(1)
    };
    let mut widths: Vec<usize> = needs.iter().map(|needs| needs.least).collect();
    if drawn(&widths) > limit {
        return needs.iter().map(|needs| needs.heading).collect();
    }
    for whole in [|needs: &Needs| needs.cells, |needs: &Needs| needs.heading] {
        while drawn(&widths) < limit {
            let lack =
                |(at, width): (usize, &usize)| (whole(&needs[at]).saturating_sub(*width), at);
            let (most, at) = widths.iter().enumerate().map(lack).max().unwrap_or((0, 0));
            if most == 0 {
                break;
            }
            widths[at] += 1;
        }
    }
    widths
}

fn longest_word(text: &str) -> usize {
    let words = text.split(' ').map(measure_text_width);
    words.max().unwrap_or(0)
}

/// A text without the characters that steer a terminal, or are unseen in it.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if is_plain(c) { c } else { ' ' })
        .collect()
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
        let long = "xxxxx ".repeat(60);
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
    fn no_word_is_broken_and_no_short_cell_however_narrow_the_table() {
        let row = [
            "hyperstack",
            "gpu-h100-sxm_8gpu-128vcpu-1600gb",
            "8 x H100-SXM",
            "a longer text of several words",
        ];
        let row = row.map(str::to_owned).to_vec();
        for limit in [10, 60, 80, 97, 200] {
            let drawn = fitted(
                Some(limit),
                &["provider", "SKU", "GPUs", "why"],
                [row.clone()],
            );
            for cell in &row[..3] {
                assert!(drawn.contains(cell), "{limit}: {drawn}");
            }
            for word in row[3].split(' ') {
                assert!(drawn.contains(word), "{limit}: {drawn}");
            }
            let widest = drawn.lines().map(|line| line.chars().count()).max();
            // So many the words take, with what is between.
            let least = 10 + 32 + 12 + 7 + 4 * GAP - 1;
            assert!(
                widest <= Some(usize::from(limit).max(least)),
                "{limit}: {drawn}"
            );
        }
        let wide = fitted(
            Some(200),
            &["provider", "SKU", "GPUs", "why"],
            [row.clone()],
        );
        assert!(wide.contains(&row[3]), "{wide}");
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
