//! The output of the command line itself: its help, and errors in the arguments; as wide as the
//! terminal.

use std::io::Write as _;
use std::process::ExitCode;

use console::measure_text_width;

use crate::terminal::screen::{columns, stderr_columns};
use crate::terminal::text::{command_within, hanging_within};

/// The beginnings of commands that may be copied from the help.
const COMMANDS: [&str; 2] = ["broker ", "Example: broker "];

/// Shows why no command runs: help was requested, or the arguments are wrong. Write errors are
/// ignored.
pub(super) fn show(error: &clap::Error) -> ExitCode {
    let text = error.render().ansi().to_string();
    let limit = match error.use_stderr() {
        true => stderr_columns(),
        false => columns(),
    };
    let text = match limit {
        Some(limit) => fitted(limit.into(), &text),
        None => text,
    };
    // Colours that the terminal lacks are left out.
    let _ = match error.use_stderr() {
        true => write!(anstream::stderr(), "{text}"),
        false => write!(anstream::stdout(), "{text}"),
    };
    ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
}

/// The text within this many columns: a description is indented below itself, and a command is broken as
/// a shell reads it.
fn fitted(limit: usize, text: &str) -> String {
    let lines = text.split('\n').map(|line| {
        if measure_text_width(line) <= limit {
            return line.to_owned();
        }
        let (margin, rest) = line.split_at(line.len() - line.trim_start().len());
        if COMMANDS.iter().any(|start| rest.starts_with(start)) {
            return command_within(limit, margin, rest);
        }
        let Some((name, words)) = rest.split_once("  ") else {
            return hanging_within(limit, margin, rest.split(' '));
        };
        let words = words.trim_start();
        let prefix = &line[..line.len() - words.len()];
        if measure_text_width(prefix) <= limit / 2 {
            return hanging_within(limit, prefix, words.split(' '));
        }
        let further = format!("{margin}    ");
        let words = hanging_within(limit, &further, words.split(' '));
        format!("{margin}{name}\n{words}")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use console::strip_ansi_codes;

    use super::*;
    use crate::cli::Cli;

    /// The help of a command and of all its subcommands.
    fn all_help(command: &mut clap::Command, found: &mut Vec<String>) {
        found.push(command.render_long_help().ansi().to_string());
        found.push(command.render_help().ansi().to_string());
        command
            .get_subcommands_mut()
            .for_each(|command| all_help(command, found));
    }

    #[test]
    fn no_line_of_the_help_is_wider_than_the_terminal_and_no_word_is_broken() {
        let mut whole = Cli::command();
        whole.build();
        let mut all = Vec::new();
        all_help(&mut whole, &mut all);
        assert!(all.len() > 100, "{}", all.len());
        let words = |text: &str| {
            let text = strip_ansi_codes(text).into_owned();
            let words = text.split_whitespace().filter(|word| *word != "\\");
            words.map(str::to_owned).collect::<Vec<_>>()
        };
        for help in &all {
            for limit in [60, 80, 100, 120] {
                let shown = fitted(limit, help);
                assert_eq!(words(&shown), words(help));
                let is_word = |line: &str| !line.trim().trim_end_matches(" \\").contains(' ');
                let wide = shown.lines().find(|line| {
                    measure_text_width(line) > limit && !is_word(&strip_ansi_codes(line))
                });
                assert_eq!(wide, None, "{limit}");
            }
        }
    }
}
