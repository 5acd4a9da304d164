//! Reads price lists: CSV files with one row for each thing that somebody sells.
//!
//! A sheet is no adapter: nothing can be ordered from it, so its offers are compared and planned
//! with only (`orderable` is false). Every row is accounted for: it gave an offer, or it is
//! counted by exactly one entry of `skipped`. How one row is read is in `row`; what the columns
//! do not say of a seller is in `facts`.
//!
//! Rows may stand more than once under one identity (seller, SKU with its GPUs, place, terms);
//! an ordinal among them keeps the offers apart. It is counted in the order of what the rows
//! say, not of where they stand, so that the order of files and rows changes no id; only
//! where equals differ in price alone can a new price pass one id to its neighbour.

mod facts;
mod row;

use std::collections::HashMap;
use std::io;
use std::path::Path;

use chrono::{DateTime, Utc};
use csv::ByteRecord;
use market::catalog::{SkipReason, Skipped};
use market::ids::OfferId;
use market::offer::Offer;

use crate::gate::{Rejection, shown};
use row::{Columns, Draft, Reader};

/// A price list, with the name under which its rows are accounted for.
#[derive(Debug, Clone)]
pub struct PriceSheet {
    /// The name as the user gave it.
    pub name: String,
    /// The file, in UTF-8.
    pub bytes: Vec<u8>,
}

impl PriceSheet {
    /// Reads a file; its path becomes the name.
    ///
    /// Errors: whatever the file system says.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            name: path.display().to_string(),
            bytes: std::fs::read(path)?,
        })
    }
}

/// The sheet that comes with the program: list prices of a few sellers, for the demo.
///
/// Source: `data/SOURCE.md`.
#[must_use]
pub fn bundled() -> PriceSheet {
    PriceSheet {
        name: "demo-sheet.csv".to_owned(),
        bytes: include_bytes!("../data/demo-sheet.csv").to_vec(),
    }
}

/// What price lists held.
///
/// `rows_read` is `rows_offered` and the `rows` of all `skipped` together.
#[derive(Debug, Clone, Default)]
pub struct PriceSheets {
    /// Data rows of all files.
    pub rows_read: u64,
    /// Rows that gave at least one offer.
    pub rows_offered: u64,
    /// The offers, in the order of files and rows, on demand before spot.
    pub offers: Vec<Offer>,
    /// Rows, and single prices of rows, that became no offer.
    pub skipped: Vec<Skipped>,
}

/// Reads price lists. No content of a file stops the reading of the others, or of its own rest.
#[must_use]
pub fn read_price_sheets(sheets: &[PriceSheet], now: DateTime<Utc>) -> PriceSheets {
    let mut read = PriceSheets::default();
    let mut drafts = Vec::new();
    let mut reader = Reader::new(now);
    for sheet in sheets {
        read_sheet(sheet, &mut reader, &mut drafts, &mut read);
    }
    read.offers = with_ids(drafts);
    read
}

fn read_sheet(
    sheet: &PriceSheet,
    reader: &mut Reader,
    drafts: &mut Vec<Draft>,
    read: &mut PriceSheets,
) {
    let bytes = sheet
        .bytes
        .strip_prefix(b"\xEF\xBB\xBF")
        .unwrap_or(&sheet.bytes);
    let mut csv = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(bytes);
    // Reading bytes from memory has no way to fail; a record of them need be neither UTF-8 nor
    // as long as the header.
    let mut records = csv.byte_records().filter_map(Result::ok);
    let columns = match Columns::recognise(records.next().as_ref()) {
        Ok(columns) => columns,
        Err(why) => {
            let rows = records.count() as u64;
            read.rows_read += rows;
            let entry = Rejection::new(SkipReason::UnknownHeader, why).of_record(None, rows);
            read.skipped.push(Skipped {
                file: Some(sheet.name.clone()),
                ..entry
            });
            return;
        }
    };
    for (row, record) in (1..).zip(records) {
        let found = reader.read(&columns, &record);
        read.rows_read += 1;
        let gave_offers = !found.drafts.is_empty();
        read.rows_offered += u64::from(gave_offers);
        drafts.extend(found.drafts);
        // A row that gave nothing is counted once, by its first reason.
        let mut uncounted = u64::from(!gave_offers);
        let sku = sku_of(&columns, &record);
        for rejection in found.rejections {
            let entry = rejection.of_record(sku.as_deref(), std::mem::take(&mut uncounted));
            read.skipped.push(Skipped {
                file: Some(sheet.name.clone()),
                row: Some(row),
                ..entry
            });
        }
    }
}

fn sku_of(columns: &Columns, record: &ByteRecord) -> Option<String> {
    let sku = shown(&String::from_utf8_lossy(columns.sku(record)?));
    (!sku.is_empty()).then_some(sku)
}

/// Gives every draft its id, with an ordinal among those of one identity.
fn with_ids(mut drafts: Vec<Draft>) -> Vec<Offer> {
    let mut equals: HashMap<Vec<String>, Vec<usize>> = HashMap::new();
    for (at, draft) in drafts.iter().enumerate() {
        equals.entry(draft.identity.clone()).or_default().push(at);
    }
    for (identity, mut standing) in equals {
        standing.sort_by_key(|at| drafts[*at].rank());
        for (ordinal, at) in standing.into_iter().enumerate() {
            let ordinal = ordinal.to_string();
            let parts: Vec<&str> = identity
                .iter()
                .map(String::as_str)
                .chain([ordinal.as_str()])
                .collect();
            drafts[at].offer.offer_id = OfferId::of_identity(&parts);
        }
    }
    drafts.into_iter().map(|draft| draft.offer).collect()
}

#[cfg(test)]
mod tests;
