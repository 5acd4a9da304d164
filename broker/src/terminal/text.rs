//! Text for people, wrapped to the width of their terminal, and lines for programs.

use std::io::{ErrorKind, Write as _};

use console::measure_text_width;
use verifier::plain::is_plain;

use crate::terminal::screen::columns;

/// The width of a line on an unknown terminal, and the maximum width of a text.
pub(crate) const LINE: usize = 100;

/// The end of a line of a command that continues in the next one.
const GOES_ON: &str = " \\";

/// A text without characters that control the terminal or are invisible.
pub(crate) fn clean(text: &str) -> String {
    text.chars()
        .map(|c| if is_plain(c) { c } else { ' ' })
        .collect()
}

/// Values as one text, in their order and without repeats.
pub(crate) fn each_once(values: impl IntoIterator<Item = String>) -> String {
    let mut all: Vec<String> = Vec::new();
    for value in values {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    all.join(", ")
}

/// A text as one word of a shell: quoted if it holds more than letters, digits and `/._-`.
pub(crate) fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// The maximum width of a text: that of the terminal, and [`LINE`] columns at most.
pub(crate) fn line() -> usize {
    columns().map_or(LINE, |columns| LINE.min(columns.into()))
}

/// Wraps a text into lines of [`line`] columns; the first line begins with the prefix, the others are
/// indented to the same column.
pub(crate) fn hanging(prefix: &str, text: &str) -> String {
    hanging_within(line(), prefix, text.split(' '))
}

/// As [`hanging`], within this many columns. A word that does not fit at the indent is indented less; no
/// word is broken.
pub(crate) fn hanging_within<'a>(
    limit: usize,
    prefix: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> String {
    broken(limit, prefix, words, "")
}

/// A command behind a prefix, ready to copy: on a narrow terminal it continues in more lines, as a shell
/// reads them.
pub(crate) fn command(prefix: &str, command: &str) -> String {
    match columns() {
        Some(columns) => command_within(columns.into(), prefix, command),
        None => format!("{prefix}{command}"),
    }
}

/// As [`command`], within this many columns.
pub(crate) fn command_within(limit: usize, prefix: &str, command: &str) -> String {
    if measure_text_width(prefix) + measure_text_width(command) <= limit {
        return format!("{prefix}{command}");
    }
    broken(limit, prefix, parts_of(command, limit), GOES_ON)
}

/// The parts between which a command may be broken: its words, and flags with their values if these are
/// no wider than a line. A quoted text is one word.
fn parts_of(command: &str, limit: usize) -> Vec<&str> {
    let (mut quote, mut parts, mut flag) = (None, Vec::new(), None);
    let (mut start, mut is_escaped) = (0, false);
    let ends = command.char_indices().filter_map(|(at, c)| {
        let is_literal = std::mem::take(&mut is_escaped);
        match (quote, c) {
            _ if is_literal => return None,
            (None | Some('"'), '\\') => is_escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            _ => {}
        }
        (quote.is_none() && c == ' ').then_some(at)
    });
    let ends: Vec<_> = ends.chain([command.len()]).collect();
    for end in ends {
        let is_flag = command[start..end].starts_with('-');
        let with_flag = flag.map(|flag| &command[flag..end]);
        match with_flag.filter(|both| !is_flag && measure_text_width(both) + 8 <= limit) {
            Some(both) => {
                parts.pop();
                parts.push(both);
                flag = None;
            }
            None => {
                parts.push(&command[start..end]);
                flag = is_flag.then_some(start);
            }
        }
        start = end + 1;
    }
    parts
}

/// Breaks before words that would pass the limit. Every line but the last ends in `end`.
fn broken<'a>(
    limit: usize,
    prefix: &str,
    words: impl IntoIterator<Item = &'a str>,
    end: &str,
) -> String {
    let margin = measure_text_width(prefix);
    let mut lines = prefix.to_owned();
    let mut column = margin;
    let mut words = words.into_iter().enumerate().peekable();
    while let Some((at, word)) = words.next() {
        let width = measure_text_width(word);
        let gap = usize::from(at > 0);
        let after = words.peek().map_or(0, |_| end.len());
        if column > 0 && column + gap + width + after > limit {
            let margin = margin.min(limit.saturating_sub(width + after));
            lines.truncate(lines.trim_end().len());
            if !lines.is_empty() {
                if at > 0 {
                    lines.push_str(end);
                }
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

/// A text with each line wrapped to this many columns; continuation lines keep the indent of their
/// line.
pub(crate) fn wrapped(limit: usize, text: &str) -> String {
    let lines = text.lines().map(|line| {
        if measure_text_width(line) <= limit {
            return line.to_owned();
        }
        let (margin, text) = line.split_at(line.len() - line.trim_start().len());
        hanging_within(limit, margin, text.split(' '))
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Prints a text for people, wrapped to the terminal.
pub(crate) fn print_text(text: &str) -> std::io::Result<()> {
    match columns() {
        Some(columns) => print_line(&wrapped(columns.into(), text)),
        None => print_line(text),
    }
}

/// Prints an answer: unchanged for programs, else as [`print_text`] does.
pub(crate) fn print_answer(answer: &str, for_programs: bool) -> std::io::Result<()> {
    match for_programs {
        true => print_line(answer),
        false => print_text(answer),
    }
}

/// Prints the next command.
pub(crate) fn print_next(next: &str) -> std::io::Result<()> {
    print_line(&command("Next: ", next))
}

/// Prints a line on stdout. A reader that closed early, such as `head`, needs no more of it.
pub(crate) fn print_line(line: &str) -> std::io::Result<()> {
    match writeln!(std::io::stdout().lock(), "{line}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        printed => printed,
    }
}

#[cfg(test)]
mod tests {
    use crate::terminal::text::*;

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

    #[test]
    fn colours_take_no_room_in_a_line() {
        let word = "\u{1b}[1mbold\u{1b}[0m";
        let line = format!("{word} {word} {word}");
        assert_eq!(wrapped(14, &line), line);
        assert_eq!(wrapped(13, &line), format!("{word} {word}\n{word}"));
    }

    #[test]
    fn a_command_that_goes_on_in_further_lines_is_the_same_to_a_shell() {
        let command =
            "curl -H \"Authorization: Bearer of nothing\" 'https://example.com/a b' --fail";
        for limit in [30, 40, 60] {
            let lines = command_within(limit, "   ", command);
            assert!(lines.lines().count() > 1, "{lines}");
            for line in lines.lines() {
                assert!(line.chars().count() <= limit.max(46), "{limit}: {lines}");
            }
            let (last, before) = lines.rsplit_once('\n').map_or(("", ""), |(a, b)| (b, a));
            assert!(before.lines().all(|line| line.ends_with(" \\")), "{lines}");
            assert!(!last.ends_with('\\'), "{lines}");
            let joined = lines.replace(" \\\n", " ");
            let joined = parts_of(joined.trim(), 0);
            let words: Vec<_> = joined.into_iter().filter(|word| !word.is_empty()).collect();
            assert_eq!(words, parts_of(command, 0));
        }
        assert_eq!(
            parts_of("broker reserve --quote quo_1 --yes -c 'a b' x", 60),
            [
                "broker",
                "reserve",
                "--quote quo_1",
                "--yes",
                "-c 'a b'",
                "x"
            ]
        );
        assert_eq!(command_within(100, "   ", command), format!("   {command}"));
        let quoted = shell_word("/home/it's a home/config");
        assert_eq!(quoted, r"'/home/it'\''s a home/config'");
        let command = format!("ssh -F {quoted} node");
        assert_eq!(parts_of(&command, 60).last(), Some(&"node"));
        assert_eq!(parts_of(&command, 0)[2], quoted);
    }
}
