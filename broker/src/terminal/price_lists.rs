//! The price lists named on the command line.

use std::path::PathBuf;

use adapters::pricesheet::{PriceSheet, PriceSheets};
use market::catalog::Skipped;

use super::ending::Ending;

/// Reads the files of price lists. The same content in two files would count twice, so that is
/// refused.
pub(crate) fn read_sheets(files: &[PathBuf]) -> Result<Vec<PriceSheet>, Ending> {
    let open = |file: &PathBuf| {
        PriceSheet::open(file).map_err(|error| {
            Ending::wrong_input(format!(
                "the price list {} cannot be read: {error}",
                file.display()
            ))
        })
    };
    let sheets: Vec<PriceSheet> = files.iter().map(open).collect::<Result<_, _>>()?;
    for (at, sheet) in sheets.iter().enumerate() {
        let same = |other: &&PriceSheet| !sheet.bytes.is_empty() && other.bytes == sheet.bytes;
        if let Some(first) = sheets[..at].iter().find(same) {
            return Err(Ending::wrong_input(format!(
                "the price lists {} and {} are the same; give it once",
                first.name, sheet.name
            )));
        }
    }
    Ok(sheets)
}

/// Refuses lists that cannot be read at all, each with its reason.
pub(crate) fn all_readable(read: &PriceSheets) -> Result<(), Ending> {
    let unread: Vec<String> = read.unread_files().map(why_unread).collect();
    if unread.is_empty() {
        return Ok(());
    }
    Err(Ending::wrong_input(format!(
        "{}; docs/price-lists.md has the columns",
        unread.join("; ")
    )))
}

/// Why a file is no price list, without a full stop.
pub(crate) fn why_unread(file: &Skipped) -> String {
    let name = file.file.as_deref().unwrap_or("a price list");
    format!("{name} was not read: {}", file.why)
}
