//! Reads price lists: CSV files with one row per thing for sale.
//!
//! A sheet is no adapter: nothing can be ordered from it, so its offers are only compared and planned with
//! (`orderable` is false). Every row is accounted for: it gave an offer, or it is counted by exactly one
//! entry of `skipped`. Lists are written in several formats: they are in `dialect`, each in a file of its
//! own. `row` turns a parsed row into offers. Facts about sellers that the columns lack are in `facts`.
//!
//! An offer is as old as its row's date (`as_of`), else as its list: the time of the file, not of its
//! reading.
//!
//! Several rows may have one identity (seller, SKU with its GPUs, place, terms); an ordinal among them keeps
//! the offers apart. It follows the content of the rows, not their position, so the order of files and rows
//! changes no id. Only where equals differ in price alone can a new price pass one id to its neighbour.

mod contradictions;
mod date;
mod dialect;
mod fabric;
mod facts;
mod memory;
mod number;
mod offer_rows;
mod row;
mod skypilot;
mod two_prices;
mod word;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use chrono::{DateTime, SubsecRound as _, Utc};
use csv::ByteRecord;
use market::catalog::{SkipReason, Skipped, spot_above_on_demand};
use market::ids::{OfferId, ProviderId};
use market::money::Money;
use market::offer::{Offer, Terms};

use crate::gate::{Rejection, shown};
use dialect::{Columns, Fields};
use row::{Dates, Draft, Reader};

/// A price list, with the name that its rows are reported under.
#[derive(Debug, Clone)]
pub struct PriceSheet {
    /// The name as the user gave it.
    pub name: String,
    /// The file, in UTF-8.
    pub bytes: Vec<u8>,
    /// When its prices were written down, for rows without a date. Units: whole seconds.
    pub as_of: DateTime<Utc>,
}

impl PriceSheet {
    /// Reads a file; its path becomes the name, and its time of modification the age of its prices.
    ///
    /// Errors: any of the file system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let modified = DateTime::<Utc>::from(file.metadata()?.modified()?);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        Ok(Self {
            name: path.display().to_string(),
            bytes,
            as_of: modified.trunc_subsecs(0),
        })
    }
}

/// The sheet that comes with the program: list prices of a few sellers, for the demo. Every row of it has its
/// date.
///
/// Source: `data/SOURCE.md`, for the date as well.
#[must_use]
pub fn bundled() -> PriceSheet {
    PriceSheet {
        name: "demo-sheet.csv".to_owned(),
        bytes: include_bytes!("../data/demo-sheet.csv").to_vec(),
        as_of: DateTime::UNIX_EPOCH,
    }
}

/// The contents of price lists.
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

impl PriceSheets {
    /// The files that could not be read at all, as one entry each.
    pub fn unread_files(&self) -> impl Iterator<Item = &Skipped> {
        self.skipped.iter().filter(|skipped| skipped.row.is_none())
    }
}

/// Reads price lists. An unreadable file or row never stops the reading of the others.
///
/// Offers are dated by their rows, else by their lists, but never later than `now`.
#[must_use]
pub fn read_price_sheets(sheets: &[PriceSheet], now: DateTime<Utc>) -> PriceSheets {
    let mut read = PriceSheets::default();
    let mut drafts = Vec::new();
    let mut reader = Reader::default();
    for sheet in sheets {
        let dates = Dates {
            of_list: sheet.as_of,
            now,
        };
        let found = read_sheet(sheet, &mut reader, dates);
        read.rows_read += found.rows;
        let uncounted: u64 = found.skipped.iter().map(|skipped| skipped.rows).sum();
        read.rows_offered += found.rows - uncounted;
        read.skipped.extend(found.skipped);
        drafts.extend(found.drafts.into_iter().map(|(_, draft)| draft));
    }
    read.offers = with_ids(drafts);
    read
}

/// The contents of one file: its rows, the offers with the row of each, and the records that became none.
#[derive(Default)]
struct SheetRead {
    rows: u64,
    drafts: Vec<(u64, Draft)>,
    skipped: Vec<Skipped>,
}

fn read_sheet(sheet: &PriceSheet, reader: &mut Reader, dates: Dates) -> SheetRead {
    let bytes = sheet
        .bytes
        .strip_prefix(b"\xEF\xBB\xBF")
        .unwrap_or(&sheet.bytes);
    let mut csv = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .from_reader(bytes);
    // Reading bytes from memory cannot fail; a record need be neither UTF-8 nor as long as the header.
    let mut records = csv.byte_records().filter_map(Result::ok);
    let mut found = SheetRead::default();
    let (columns, seller) = match recognise(sheet, records.next().as_ref()) {
        Ok(recognised) => recognised,
        Err(rejection) => {
            found.rows = records.count() as u64;
            found
                .skipped
                .push(entry(sheet, None, rejection.of_record(None, found.rows)));
            return found;
        }
    };
    let records: Vec<ByteRecord> = records.collect();
    found.rows = records.len() as u64;
    let read = |record| {
        let fields = Fields::of(&columns, record, seller.as_ref())?;
        (columns.dialect.parse)(&fields).map(Some)
    };
    let mut rows: Vec<_> = records.iter().map(read).collect();
    (columns.dialect.join)(&mut rows);
    memory::settle(&mut rows, reader);
    for (row, (parsed, record)) in (1..).zip(rows.into_iter().zip(&records)) {
        let Some(parsed) = parsed.transpose() else {
            continue;
        };
        let of_row = reader.read(parsed, dates);
        // A row that gave nothing is counted once, by its first reason.
        let mut uncounted = u64::from(of_row.drafts.is_empty());
        let sku = sku_of(&columns, record);
        for rejection in of_row.rejections {
            let skipped = rejection.of_record(sku.as_deref(), std::mem::take(&mut uncounted));
            found.skipped.push(entry(sheet, Some(row), skipped));
        }
        let drafts = of_row.drafts.into_iter().map(|draft| (row, draft));
        found.drafts.extend(drafts);
    }
    set_aside(sheet, &mut found);
    if columns.dialect.prices_apart {
        drop_dear_spot(sheet, &mut found);
    }
    found
}

/// Removes the rows that the rest of the list contradicts.
fn set_aside(sheet: &PriceSheet, found: &mut SheetRead) {
    let mut contradicted = contradictions::find(&found.drafts);
    let skipped = &mut found.skipped;
    let mut gone = BTreeSet::new();
    found.drafts.retain(|(row, draft)| {
        if let Some(rejection) = contradicted.remove(row) {
            let record = rejection.of_record(Some(&draft.offer.sku), 1);
            skipped.push(entry(sheet, Some(*row), record));
            gone.insert(*row);
        }
        !gone.contains(row)
    });
    skipped.sort_by_key(|skipped| skipped.row);
}

/// The columns of a file, and its seller where no column names one.
fn recognise(
    sheet: &PriceSheet,
    header: Option<&ByteRecord>,
) -> Result<(Columns, Option<ProviderId>), Rejection> {
    let columns =
        Columns::recognise(header).map_err(|why| Rejection::new(SkipReason::UnknownHeader, why))?;
    let named = columns.dialect.seller_of_file.map(|name| name(&sheet.name));
    let seller = named
        .transpose()
        .map_err(|why| Rejection::new(SkipReason::Unreadable, why))?;
    Ok((columns, seller))
}

fn entry(sheet: &PriceSheet, row: Option<u64>, skipped: Skipped) -> Skipped {
    Skipped {
        file: Some(sheet.name.clone()),
        row,
        ..skipped
    }
}

/// Removes spot offers that cost more than the same thing on demand, where the two are in separate rows. Of
/// several on-demand prices the highest counts, because the list does not say which one belongs to the spot
/// price.
fn drop_dear_spot(sheet: &PriceSheet, found: &mut SheetRead) {
    let mut on_demand: HashMap<Vec<String>, Money> = HashMap::new();
    for (_, draft) in &found.drafts {
        if draft.offer.terms == Terms::OnDemand {
            let price = draft.offer.price_per_node_hour;
            let known = on_demand.entry(draft.thing().to_vec()).or_insert(price);
            *known = price.max(*known);
        }
    }
    let skipped = &mut found.skipped;
    found.drafts.retain(|(row, draft)| {
        let offer = &draft.offer;
        let why = on_demand
            .get(draft.thing())
            .filter(|_| offer.terms == Terms::Spot)
            .and_then(|whole| spot_above_on_demand(offer.price_per_node_hour, *whole));
        let Some(why) = why else { return true };
        let rejection = Rejection::new(SkipReason::SpotAboveOnDemand, why);
        let record = rejection.of_record(Some(&offer.sku), 1);
        skipped.push(entry(sheet, Some(*row), record));
        false
    });
    skipped.sort_by_key(|skipped| skipped.row);
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
