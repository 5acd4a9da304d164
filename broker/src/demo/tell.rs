//! How the story looks on a terminal: headings, one line a fact, tables. Nobody may be listening:
//! what cannot be written is left out.

use std::io::Write as _;

use crate::cli::table::table as draw;

/// What a terminal is wide at least, less the margin.
const COLUMNS: usize = 97;

/// Begins a chapter, and says what it shows.
pub(super) fn chapter(title: &str, shows: &str) {
    write_line("");
    write_line(&format!("== {title}"));
    say(format!("Shows: {shows}"));
    write_line("");
}

/// Says one thing.
pub(super) fn say(text: impl AsRef<str>) {
    for line in wrapped(text.as_ref(), COLUMNS) {
        write_line(&format!("   {line}"));
    }
}

/// Says one thing that happened at a time of the market's clock.
pub(super) fn say_at(time: &str, text: impl AsRef<str>) {
    let margin = " ".repeat(time.len());
    for (at, line) in wrapped(text.as_ref(), COLUMNS - time.len() - 2)
        .iter()
        .enumerate()
    {
        write_line(&format!(
            "   {}  {line}",
            if at == 0 { time } else { &margin }
        ));
    }
}

/// Shows something to copy, in one line however long it is.
pub(super) fn command(text: &str) {
    write_line(&format!("   {text}"));
}

/// Shows rows under their headings.
pub(super) fn table(headings: &[&str], rows: impl IntoIterator<Item = Vec<String>>) {
    for line in draw(headings, rows).lines() {
        write_line(&format!("   {line}"));
    }
}

fn write_line(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Breaks a text between words; the lines after the first stand two columns in.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let many = lines.len();
        let line = &mut lines[many - 1];
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= columns {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("  {word}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_broken_between_words_and_loses_none() {
        let text = "one two three four five six";
        let lines = wrapped(text, 12);
        assert!(
            lines.iter().all(|line| line.chars().count() <= 12),
            "{lines:?}"
        );
        let words: Vec<_> = lines
            .iter()
            .flat_map(|line| line.split_whitespace())
            .collect();
        assert_eq!(words.join(" "), text);
    }
}
