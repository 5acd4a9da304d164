//! Tables for people.

use std::iter::zip;

use comfy_table::{
    CellAlignment, ColumnConstraint, ContentArrangement, Table, TableComponent, Width, presets,
};
use console::measure_text_width;

use crate::terminal::colour::Colours;
use crate::terminal::price::unmarked;
use crate::terminal::screen::columns;
use crate::terminal::text::{LINE, clean, command_within, hanging_within};

/// The part of a line that a table leaves free: the margin of the demo's story.
pub(crate) const MARGIN: usize = 3;

/// A cell of at most this many columns stays on one line.
const SHORT: usize = 16;
/// The gap between two columns. Units: columns of the terminal.
const GAP: usize = 3;

/// Draws rows under their headings, as wide as the terminal. Without a terminal, lines have [`LINE`]
/// columns, or more if words need them, because programs read row by row. Columns of numbers are
/// right-aligned, and long cells are broken between words. No cell can control the terminal.
pub(crate) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    table_without(headings, rows, &[])
}

/// As [`table`]; a terminal that is too narrow hides the named columns, as [`fitted_without`] describes.
pub(crate) fn table_without(
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    spare: &[&str],
) -> String {
    let rows = cleaned(rows);
    let usual = LINE - MARGIN;
    let limit = match columns() {
        Some(columns) => Some(usize::from(columns) - MARGIN),
        None => widths(usual, headings, &rows).map(|_| usual),
    };
    let limit = limit.and_then(|limit| u16::try_from(limit).ok());
    match columns() {
        Some(_) => fitted_without(limit, headings, rows, spare),
        None => fitted(limit, headings, rows),
    }
}

/// As [`fitted`], but hides the named columns in their order, as many as needed. If the others do not fit
/// either, it shows all columns as labelled lines.
pub(crate) fn fitted_without(
    columns: Option<u16>,
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
    spare: &[&str],
) -> String {
    let rows = cleaned(rows);
    if let Some(limit) = columns.map(usize::from) {
        let (mut fewer, mut left) = (headings.to_vec(), rows.clone());
        drop_columns(limit, &mut fewer, &mut left, spare);
        if widths(limit, &fewer, &left).is_some() {
            return fitted(columns, &fewer, left);
        }
    }
    fitted(columns, headings, rows)
}

/// Rows without characters that control the terminal.
fn cleaned(rows: impl IntoIterator<Item = Vec<String>>) -> Vec<Vec<String>> {
    let rows = rows.into_iter();
    rows.map(|row| row.iter().map(|cell| clean(cell)).collect())
        .collect()
}

fn drop_columns(limit: usize, headings: &mut Vec<&str>, rows: &mut [Vec<String>], spare: &[&str]) {
    for name in spare {
        let needs = needs_of(headings, rows);
        if drawn(needs.iter().map(|needs| needs.least)) <= limit {
            return;
        }
        if let Some(at) = headings.iter().position(|heading| heading == name) {
            headings.remove(at);
            rows.iter_mut().for_each(|row| {
                row.remove(at);
            });
        }
    }
}

/// As [`table`], within this many columns: if the words do not fit, each row becomes labelled lines.
/// Without a limit, no cell is broken.
pub(crate) fn fitted(
    columns: Option<u16>,
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    painted(Colours::of_stdout(), columns, headings, rows)
}

/// As [`fitted`], with headings and states in these colours.
fn painted(
    colours: Colours,
    columns: Option<u16>,
    headings: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> String {
    let rows = cleaned(rows);
    let widths = match columns.map(usize::from) {
        None => None,
        Some(limit) => match widths(limit, headings, &rows) {
            None => return stacked(colours, limit, headings, &rows),
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
        let is_number = |cell: &String| unmarked(cell).parse::<f64>().is_ok();
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
    let lines = match colours.are_shown() {
        true => {
            let drawn = table.column_max_content_widths().into_iter();
            let widths = widths.unwrap_or_else(|| drawn.map(usize::from).collect());
            paint(colours, lines, headings, &widths)
        }
        false => lines,
    };
    lines.join("\n")
}

/// Whether the column with this heading has states or verdicts.
pub(crate) fn holds_states(heading: &str) -> bool {
    matches!(heading, "state" | "verdict" | "outcome")
}

/// Whether the column with this heading has commands to copy, which are never broken between words.
fn holds_commands(heading: &str) -> bool {
    heading.ends_with("reach it by")
}

/// The lines of a table with its headings and states in colours.
fn paint(
    colours: Colours,
    mut lines: Vec<String>,
    headings: &[&str],
    widths: &[usize],
) -> Vec<String> {
    let rule = lines.iter().position(|line| line.starts_with('═'));
    let rule = rule.unwrap_or(0);
    for heading in lines.iter_mut().take(rule).skip(1) {
        *heading = colours.heading(heading);
    }
    let mut starts = Vec::new();
    let mut start = 1;
    for width in widths {
        starts.push(start);
        start += width + GAP;
    }
    let columns = zip(headings, zip(starts, widths)).filter(|(heading, _)| holds_states(heading));
    // From the last on, because a colour moves the text behind it.
    let columns: Vec<_> = columns.map(|(_, place)| place).rev().collect();
    for line in lines.iter_mut().skip(rule + 1) {
        for (start, width) in &columns {
            let (before, rest) = line.split_at(at_column(line, *start));
            let (cell, after) = rest.split_at(at_column(rest, **width));
            let state = cell.trim_end();
            let gap = &cell[state.len()..];
            *line = [before, &colours.state(state), gap, after].concat();
        }
    }
    lines
}

/// Where a column of the terminal begins in a line. Units: bytes.
fn at_column(line: &str, column: usize) -> usize {
    let mut width = 0;
    for (at, character) in line.char_indices() {
        if width >= column {
            return at;
        }
        width += measure_text_width(character.encode_utf8(&mut [0; 4]));
    }
    line.len()
}

/// Draws each row as labelled lines, with an empty line between two rows. Empty cells are left out, and a
/// short cell stays on one line.
fn stacked(colours: Colours, limit: usize, headings: &[&str], rows: &[Vec<String>]) -> String {
    let margin = headings
        .iter()
        .map(|heading| measure_text_width(heading))
        .max()
        .unwrap_or(0)
        + 2;
    let line = |heading: &str, cell: &str| {
        let gap = " ".repeat(margin - measure_text_width(heading));
        let label = colours.heading(heading) + &gap;
        if holds_commands(heading) {
            return command_within(limit, &label, cell);
        }
        let cell = match holds_states(heading) {
            true => colours.state(cell),
            false => cell.to_owned(),
        };
        let words = match measure_text_width(&cell) <= SHORT {
            true => vec![cell.as_str()],
            false => cell.split(' ').collect(),
        };
        hanging_within(limit, &label, words)
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
    /// So that no short cell is broken either.
    least: usize,
    /// So that no cell is broken.
    cells: usize,
    /// So that its heading is not broken either.
    heading: usize,
}

/// What each column needs. A command counts as one word.
fn needs_of(headings: &[&str], rows: &[Vec<String>]) -> Vec<Needs> {
    (headings.iter().enumerate())
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
                let word = match holds_commands(heading) {
                    true => whole,
                    false => longest_word(cell),
                };
                let unbroken = if whole <= SHORT { whole } else { word };
                Needs {
                    words: needs.words.max(word),
                    least: needs.least.max(unbroken),
                    cells: needs.cells.max(whole),
                    heading: needs.heading.max(unbroken),
                }
            })
        })
        .collect()
}

/// The width of a table with columns of these widths.
fn drawn(widths: impl Iterator<Item = usize>) -> usize {
    (widths.map(|width| width + GAP).sum::<usize>()).saturating_sub(1)
}

/// The width of each column, so that all fit: at least its longest word, and its short cells if these
/// fit. Free room goes to the column that lacks most of its cells, then of its heading. `None` if the
/// words do not fit.
fn widths(limit: usize, headings: &[&str], rows: &[Vec<String>]) -> Option<Vec<usize>> {
    let needs = needs_of(headings, rows);
    let narrow = [|needs: &Needs| needs.least, |needs: &Needs| needs.words];
    let mut narrow = narrow
        .iter()
        .map(|least| needs.iter().map(least).collect::<Vec<_>>());
    let mut widths = narrow.find(|widths| drawn(widths.iter().copied()) <= limit)?;
    for whole in [|needs: &Needs| needs.cells, |needs: &Needs| needs.heading] {
        while drawn(widths.iter().copied()) < limit {
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

#[cfg(test)]
mod tests {
    use crate::terminal::table::*;

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
            // This is the width of the words, with the gaps.
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
            &["id", "other id", "nothing", "why it ends"],
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
                "id           {id}\nother id     {id}\nwhy it ends  words"
            )),
            "{drawn}"
        );
    }
    #[test]
    fn a_narrow_terminal_does_without_what_can_be_spared_and_no_more() {
        let row = || {
            ["lambda", "a-long-machine-name", "1.99"]
                .map(str::to_owned)
                .to_vec()
        };
        let headings = ["provider", "SKU", "USD"];
        let shown = |limit| fitted_without(Some(limit), &headings, [row(), row()], &["SKU"]);
        let has = |limit, words: &[&str]| {
            let shown = shown(limit);
            let has = headings.map(|heading| shown.contains(heading));
            assert_eq!(
                has,
                headings.map(|heading| words.contains(&heading)),
                "{shown}"
            );
            shown
        };
        has(80, &headings);
        // The exact width: its cells and the gaps between them.
        has(39, &headings);
        let narrower = has(38, &["provider", "USD"]);
        assert!(!narrower.contains("a-long"), "{narrower}");
        // Breaking between words makes enough room.
        let row = ["lambda", "several words of a name", "1.99"].map(str::to_owned);
        let broken = fitted_without(Some(30), &headings, [row.to_vec()], &["SKU"]);
        assert!(broken.contains("several"), "{broken}");
        // Too narrow for any table: each row becomes labelled lines, with all of it.
        let narrowest = has(16, &headings);
        assert!(narrowest.contains("a-long-machine-name"), "{narrowest}");
    }

    #[test]
    fn a_command_is_never_broken_but_as_a_shell_reads_it() {
        let command = "ssh -p 2222 ubuntu@198.51.100.7";
        let row = ["0", command, &"word ".repeat(20)].map(str::to_owned);
        let headings = ["node", "reach it by", "why it fell"];
        for columns in [None, Some(20), Some(44), Some(60), Some(80), Some(100)] {
            let shown = fitted(columns, &headings, [row.to_vec()]);
            let joined = shown.replace(" \\\n", " ");
            let joined = joined
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>());
            let mut lines = joined.map(|words| words.join(" "));
            assert!(
                lines.any(|line| line.contains(command)),
                "{columns:?}: {shown}"
            );
        }
    }

    #[test]
    fn headings_and_states_have_colours_and_the_same_places() {
        let row = |name: &str, state: &str| [name, state, "1.5"].map(str::to_owned).to_vec();
        let rows = [
            row("rsv_1", "active"),
            row("a longer name", "failed (by two of its checks)"),
            row("語語", "booting"),
        ];
        let headings = ["id", "state", "USD"];
        for columns in [None, Some(80), Some(30), Some(20)] {
            let plain = painted(Colours::NONE, columns, &headings, rows.clone());
            let drawn = painted(Colours::ALL, columns, &headings, rows.clone());
            assert!(!plain.contains('\u{1b}'), "{plain}");
            assert_eq!(console::strip_ansi_codes(&drawn), plain, "{columns:?}");
            for colour in [
                "\u{1b}[32mactive\u{1b}[0m",
                "\u{1b}[31mfailed",
                "\u{1b}[33mbooting\u{1b}[0m",
                "\u{1b}[1m",
            ] {
                assert!(drawn.contains(colour), "{columns:?}: {drawn:?}");
            }
        }
    }
}
