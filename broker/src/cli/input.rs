//! What a command reads: a file, or standard input where `-` is said.

use std::io::Read as _;
use std::path::Path;

use super::Ending;

/// Reads all of a file, or of standard input for `-`.
///
/// Errors: what it is (`the demand`, `the key file`) and why it cannot be read.
pub(super) fn read_text(what: &str, file: &Path) -> Result<String, Ending> {
    let text = if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(file)
    };
    text.map_err(|error| {
        let shown = file.display();
        Ending::wrong_input(format!("{what} {shown} cannot be read: {error}"))
    })
}
