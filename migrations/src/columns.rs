//! The column types of the schema.
//!
//! Ids are their prefixed text; a closed set of words is a short string with a check; JSON is
//! text, so that it reads back byte for byte on every database; money and GPU-seconds are 64-bit
//! integers, because a decimal column is a floating-point number on SQLite.

use sea_orm_migration::prelude::{ColumnDef, Expr};
use sea_orm_migration::schema::{
    string_len, string_len_null, text, text_null, timestamp_with_time_zone,
    timestamp_with_time_zone_null,
};

/// A typed, prefixed id.
pub(crate) fn id(name: &'static str) -> ColumnDef {
    string_len(name, 40)
}

/// A typed, prefixed id that may be absent.
pub(crate) fn id_null(name: &'static str) -> ColumnDef {
    string_len_null(name, 40)
}

/// A word of a closed set; the check is the table's.
pub(crate) fn word(name: &'static str) -> ColumnDef {
    string_len(name, 24)
}

/// A word of a closed set that may be absent.
pub(crate) fn word_null(name: &'static str) -> ColumnDef {
    string_len_null(name, 24)
}

/// A moment, in microseconds.
pub(crate) fn moment(name: &'static str) -> ColumnDef {
    timestamp_with_time_zone(name)
}

/// A moment that may be absent.
pub(crate) fn moment_null(name: &'static str) -> ColumnDef {
    timestamp_with_time_zone_null(name)
}

/// A JSON document, kept as text.
pub(crate) fn document(name: &'static str) -> ColumnDef {
    text(name)
}

/// A JSON document that may be absent.
pub(crate) fn document_null(name: &'static str) -> ColumnDef {
    text_null(name)
}

/// A check that `column` holds one of `words`.
pub(crate) fn one_of(column: &str, words: &[&str]) -> Expr {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    Expr::cust(format!("{column} IN ({})", quoted.join(", ")))
}
