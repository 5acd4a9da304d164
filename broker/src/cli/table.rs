//! Tables for people, and lines for programs.

use std::io::{ErrorKind, Write as _};
use std::iter::zip;

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, Width, presets,
};
use console::{Term, measure_text_width};
use verifier::plain::is_plain;

/// How wide a line is where nobody says how wide the terminal is, and how wide a text is at most.
const LINE: usize = 100;
/// What a table leaves of a line: the margin of the demo's story.
const MARGIN: usize = 3;
/// The narrowest terminal that is believed.
const NARROWEST: u16 = 20;

/// A cell of so many columns or fewer stands on one line.
const SHORT: usize = 16;
/// What stands between the texts of two columns. Units: columns.
const GAP: usize = 3;

/// How wide what is printed may be: what `COLUMNS` says, else the terminal; `None` where stdout is
/// none, and lines may be as long as they like.
pub(crate) fn columns() -> Option<u16> {
    let said = std::env::var("COLUMNS").ok();
    let said = said.and_then(|columns| columns.parse().ok());
    said.filter(|columns| *columns >= NARROWEST).or_else(|| {
        let terminal = Term::stdout();
        (terminal.is_term()).then(|| terminal.size_checked().map_or(80, |(_, columns)| columns))
    })
}

/// Draws rows under their headings, as wide as the terminal. Where there is none, in lines of [`LINE`]
/// columns, and in longer ones where words need them: programs read row by row. Columns of numbers stand flush right, long
/// cells are broken between words.
pub(crate) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let usual = LINE - MARGIN;
    let limit = match columns() {
        Some(columns) => Some(usize::from(columns) - MARGIN),
        None => widths(usual, headings, &rows).map(|_| usual),
    };
    fitted(
        limit.and_then(|limit| u16::try_from(limit).ok()),
        headings,
        rows,
    )
}

/// As [`table`], within so many columns: where its words are wider, each row stands as labelled lines.
/// Without a limit, no cell is broken.
pub(crate) fn fitted(
    columns: Option<u16>,
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let widths = match columns.map(usize::from) {
        None => None,
        Some(limit) => match widths(limit, headings, &rows) {
            None => return stacked(limit, headings, &rows),
            fitting => fitting,
        },
    };
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_HORIZONTAL_ONLY)
        .remove_style(TableComponent::HorizontalLines)
        .remove_style(TableComponent::MiddleIntersections)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(headings.to_vec());
    for (at, column) in table.column_iter_mut().enumerate() {
        let cells = || rows.iter().filter_map(|row| row.get(at));
        let is_number = |cell: &String| {
            let number = cell.strip_prefix(SPOT).unwrap_or(cell);
            number.parse::<f64>().is_ok()
        };
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

/// Draws each row as labelled lines, an empty line between two; what is not said is left out, and a short
/// cell stands on one line.
fn stacked(limit: usize, headings: &[&str], rows: &[Vec<String>]) -> String {
    let margin = headings
        .iter()
        .map(|heading| measure_text_width(heading))
        .max()
        .unwrap_or(0)
        + 2;
    let line = |heading: &str, cell: &str| {
        let words = match measure_text_width(cell) <= SHORT {
            true => vec![cell],
            false => cell.split(' ').collect(),
        };
        hanging_within(limit, &format!("{heading:<margin$}"), words)
    };
    let rows = rows.iter().map(|row| {
        let said = zip(headings, row).filter(|(_, cell)| !matches!(cell.as_str(), "" | "-"));
        let lines = said.map(|(heading, cell)| line(heading, cell));
        lines.collect::<Vec<_>>().join("\n")
    });
    rows.collect::<Vec<_>>().join("\n\n")
}

/// How wide a column may be. Units: columns of the terminal.
struct Needs {
    /// So that no word is broken.
    words: usize,
    /// So that no short cell is either.
    least: usize,
    /// So that no cell is.
    cells: usize,
    /// So that its heading is not either.
    heading: usize,
}

/// How wide each column is, so that all fit: none narrower than its longest word, nor than its short cells
/// where these fit. What room is left goes to whichever lacks most of its cells, then of its heading.
/// `None` where the words are wider than all that there is.
fn widths(limit: usize, headings: &[&str], rows: &[Vec<String>]) -> Option<Vec<usize>> {
    let needs: Vec<_> = (headings.iter().enumerate())
        .map(|(at, heading)| {
            let cells = rows.iter().filter_map(|row| row.get(at));
            let first = Needs {
                words: longest_word(heading),
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
                    words: needs.words.max(longest_word(cell)),
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
    let narrow = [|needs: &Needs| needs.least, |needs: &Needs| needs.words];
    let mut narrow = narrow
        .iter()
        .map(|least| needs.iter().map(least).collect::<Vec<_>>());
    let mut widths = narrow.find(|widths| drawn(widths) <= limit)?;
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
    Some(widths)
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

/// What stands before the price of what its provider may take back.
pub(crate) const SPOT: &str = "spot ";

/// Breaks a text between words into lines that the terminal holds, of [`LINE`] columns at most; the
/// first begins with the prefix, the others as far in.
pub(crate) fn hanging(prefix: &str, text: &str) -> String {
    let limit = columns().map_or(LINE, |columns| LINE.min(columns.into()));
    hanging_within(limit, prefix, text.split(' '))
}

/// As [`hanging`], within so many columns. A word that does not fit so far in stands further out; none
/// is broken.
fn hanging_within<'a>(
    limit: usize,
    prefix: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> String {
    let margin = measure_text_width(prefix);
    let mut lines = prefix.to_owned();
    let mut column = margin;
    for (at, word) in words.into_iter().enumerate() {
        let width = measure_text_width(word);
        let gap = usize::from(at > 0);
        if column > 0 && column + gap + width > limit {
            let margin = margin.min(limit.saturating_sub(width));
            lines.truncate(lines.trim_end().len());
            if !lines.is_empty() {
                lines.push('\n');
            }
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

/// Prints what people read, on a terminal broken between words where a line is wider than that.
pub(crate) fn print_text(text: &str) -> std::io::Result<()> {
    let Some(limit) = columns().map(usize::from) else {
        return print_line(text);
    };
    let lines = text.lines().map(|line| {
        if measure_text_width(line) <= limit {
            return line.to_owned();
        }
        let (margin, text) = line.split_at(line.len() - line.trim_start().len());
        hanging_within(limit, margin, text.split(' '))
    });
    print_line(&lines.collect::<Vec<_>>().join("\n"))
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
        let drawn = fitted(Some(97), &["what", "USD"], rows);
        assert!(
            drawn.lines().all(|line| line.chars().count() <= 97),
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
    fn a_table_whose_words_are_wider_than_the_terminal_stands_as_labelled_lines() {
        let id = "rsv_0123456789abcdef0123456789abcdef";
        let rows = [id, "at_one", "-"].map(|second| {
            let row = [
                id,
                second,
                "-",
                "words that are many and go on for a while yet",
            ];
            row.map(str::to_owned).to_vec()
        });
        let drawn = fitted(
            Some(60),
            &["id", "other id", "nothing", "why it fell"],
            rows,
        );
        assert!(
            drawn.lines().all(|line| measure_text_width(line) <= 60),
            "{drawn}"
        );
        assert_eq!(drawn.matches(id).count(), 4, "{drawn}");
        assert_eq!(drawn.matches("nothing").count(), 0, "{drawn}");
        assert_eq!(drawn.split("\n\n").count(), 3, "{drawn}");
        assert!(
            drawn.starts_with(&format!(
                "id           {id}\nother id     {id}\nwhy it fell  words"
            )),
            "{drawn}"
        );
    }

    #[test]
    fn a_word_that_does_not_fit_so_far_in_stands_further_out() {
        let key = "SHA256:0123456789012345678901234567890123456789012";
        let words = [key, "which", "is", "new"];
        let drawn = hanging_within(60, "the key of this host  ", words);
        assert_eq!(
            drawn,
            format!("the key of this host\n          {key}\n                      which is new")
        );
        let drawn = hanging_within(60, "            ", words);
        assert!(drawn.starts_with(&format!("          {key}\n")), "{drawn}");
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
