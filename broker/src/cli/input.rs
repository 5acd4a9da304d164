//! Reads the input of a command: a file, or standard input for `-`.

use std::io::Read as _;
use std::path::Path;

use serde::de::DeserializeOwned;

use crate::http::read_strictly;
use crate::platform::json_fault;
use crate::terminal::ending::Ending;

/// Reads all of a file, or of standard input for `-`.
///
/// Errors: the input (`the demand`, `the key file`) and why it cannot be read.
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

/// Reads JSON of a file, or of standard input for `-`.
///
/// Errors: as [`read_text`]; text that is not JSON; a value of the wrong type, with its field.
pub(super) fn read_json<T: DeserializeOwned>(what: &str, file: &Path) -> Result<T, Ending> {
    let text = read_text(what, file)?;
    let wrong = |why: String| {
        let shown = file.display();
        Ending::wrong_input(format!("{what} {shown} is not valid: {why}"))
    };
    let value = read_strictly(text.as_bytes()).map_err(|error| wrong(error.to_string()))?;
    json_fault::read(value).map_err(wrong)
}
