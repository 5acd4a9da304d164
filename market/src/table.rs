//! Reads the tables of facts in the `data/` of a crate, which are compiled in.

use serde::de::DeserializeOwned;

/// All rows of a compiled-in CSV table.
///
/// # Panics
///
/// If the table does not match its row type. A test beside each table reads all of it.
#[must_use]
pub fn rows<Row: DeserializeOwned>(table: &'static str) -> Vec<Row> {
    csv::Reader::from_reader(table.as_bytes())
        .into_deserialize()
        .collect::<Result<_, _>>()
        // The bytes are part of the program, and the tests beside each table read all of its rows through
        // this very function. A program that passed them cannot fail here.
        .unwrap_or_else(|error| panic!("a compiled-in table cannot be read: {error}"))
}

/// A name without case and punctuation: only lower-case letters and digits are left.
pub(crate) fn squeeze(name: &str) -> String {
    name.chars()
        .filter(char::is_ascii_alphanumeric)
        .map(|c| c.to_ascii_lowercase())
        .collect()
}
