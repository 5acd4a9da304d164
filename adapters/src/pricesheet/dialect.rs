//! The formats of price lists, and how a file's format is recognised.
//!
//! A dialect is known by its set of columns, in any order. To add one: a file beside this one,
//! and a line in [`DIALECTS`].

use csv::ByteRecord;
use market::catalog::SkipReason;
use market::ids::ProviderId;

use super::row::{Row, RowRead};
use super::{offer_rows, skypilot, two_prices};
use crate::gate::{Rejection, shown};

/// Every dialect that is read.
pub(super) const DIALECTS: [&Dialect; 3] = [
    &two_prices::DIALECT,
    &offer_rows::DIALECT,
    &skypilot::DIALECT,
];

/// Reads the seller from the name of a file; the error gives the reason in words.
type SellerOfFile = fn(&str) -> Result<ProviderId, String>;

/// One way of writing a price list.
#[derive(Debug)]
pub(super) struct Dialect {
    /// The columns that a file must have.
    pub(super) columns: &'static [&'static str],
    /// Columns that it may have besides.
    pub(super) optional: &'static [&'static str],
    /// Other spellings of columns: as written, as meant.
    pub(super) spellings: &'static [(&'static str, &'static str)],
    /// Whether other columns may be present, which are ignored.
    pub(super) takes_more: bool,
    /// The column with the seller's own name for the thing.
    pub(super) sku: &'static str,
    /// How the name of the file names the seller, where no column does.
    pub(super) seller_of_file: Option<SellerOfFile>,
    /// Whether on-demand and spot prices of one thing are in separate rows.
    pub(super) prices_apart: bool,
    /// Parses the words and numbers of a row.
    pub(super) parse: for<'r> fn(&Fields<'r>) -> Result<Row<'r>, Rejection>,
    /// Joins things that are spread over several rows, once all are read.
    pub(super) join: fn(&mut [RowRead<'_>]),
}

impl Dialect {
    fn meant(&self, written: &str) -> String {
        let spelling = self.spellings.iter().find(|(other, _)| *other == written);
        spelling.map_or(written, |(_, meant)| meant).to_owned()
    }

    fn knows(&self, column: &str) -> bool {
        self.takes_more || self.columns.contains(&column) || self.optional.contains(&column)
    }

    fn missing(&self, written: &[String]) -> Vec<&'static str> {
        let is_there = |column: &&str| !written.iter().any(|w| self.meant(w) == **column);
        self.columns.iter().copied().filter(is_there).collect()
    }
}

/// The position of each column of a file's dialect in its records.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) dialect: &'static Dialect,
    at: Vec<(&'static str, usize)>,
    width: usize,
}

/// Whether a record with this many cells can be read: all named columns are there, and any extra cells come
/// after the last one that is read.
fn has_its_cells(columns: &Columns, cells: usize) -> bool {
    let last_read = columns.at.iter().map(|(_, at)| *at).max();
    let reads_all = last_read.is_none_or(|last| last + 1 == columns.width);
    cells == columns.width || (cells > columns.width && !reads_all)
}

impl Columns {
    /// Recognises the dialect of a file by its header.
    ///
    /// Errors: the missing and the extra columns compared with the nearest dialect, in words.
    pub(super) fn recognise(header: Option<&ByteRecord>) -> Result<Self, String> {
        let Some(header) = header else {
            return Err("the file is empty".to_owned());
        };
        let written: Vec<String> = header
            .iter()
            .map(|name| String::from_utf8_lossy(name).trim().to_owned())
            .collect();
        let found = DIALECTS
            .into_iter()
            .find_map(|dialect| Self::of(dialect, &written));
        found.ok_or_else(|| not_known(&written))
    }

    fn of(dialect: &'static Dialect, written: &[String]) -> Option<Self> {
        let meant: Vec<String> = written.iter().map(|name| dialect.meant(name)).collect();
        let mut at = Vec::new();
        for column in dialect.columns.iter().chain(dialect.optional) {
            let mut standing = (0..meant.len()).filter(|place| meant[*place] == *column);
            match (standing.next(), standing.next()) {
                (Some(place), None) => at.push((*column, place)),
                (None, _) if dialect.optional.contains(column) => {}
                // Missing, or there twice: we do not guess which one counts.
                _ => return None,
            }
        }
        meant
            .iter()
            .all(|name| dialect.knows(name))
            .then_some(Self {
                dialect,
                at,
                width: written.len(),
            })
    }

    /// The SKU of a record, even if the rest of it is unreadable.
    pub(super) fn sku<'r>(&self, record: &'r ByteRecord) -> Option<&'r [u8]> {
        let (_, at) = self.at.iter().find(|(name, _)| *name == self.dialect.sku)?;
        record.get(*at)
    }
}

fn not_known(written: &[String]) -> String {
    let shared = |dialect: &&Dialect| dialect.columns.len() - dialect.missing(written).len();
    // The first of those that share the most columns with it.
    let nearest = DIALECTS
        .into_iter()
        .min_by_key(|dialect| std::cmp::Reverse(shared(dialect)));
    let mut why = "its columns are not those of a price list".to_owned();
    let Some(nearest) = nearest else { return why };
    let missing = nearest.missing(written).join(", ");
    let is_surplus = |name: &&String| !nearest.knows(&nearest.meant(name));
    let surplus: Vec<String> = written
        .iter()
        .filter(is_surplus)
        .map(|name| shown(name))
        .collect();
    for (what, names) in [("missing", missing), ("not known", surplus.join(", "))] {
        if !names.is_empty() {
            let names: String = names.chars().take(200).collect();
            why.push_str(&format!("; {what}: {names}"));
        }
    }
    why
}

/// The texts of one record, by the names of their columns.
#[derive(Debug)]
pub(super) struct Fields<'r> {
    texts: Vec<(&'static str, &'r str)>,
    seller_of_file: Option<&'r ProviderId>,
}

impl<'r> Fields<'r> {
    pub(super) fn of(
        columns: &Columns,
        record: &'r ByteRecord,
        seller_of_file: Option<&'r ProviderId>,
    ) -> Result<Self, Rejection> {
        let unreadable = |why: String| Rejection::new(SkipReason::Unreadable, why);
        if !has_its_cells(columns, record.len()) {
            return Err(unreadable(format!(
                "it has {} fields instead of {}",
                record.len(),
                columns.width
            )));
        }
        let mut texts = Vec::with_capacity(columns.at.len());
        for (name, at) in &columns.at {
            let text = std::str::from_utf8(record.get(*at).unwrap_or_default())
                .map_err(|_| unreadable(format!("`{name}` is not UTF-8")))?;
            texts.push((*name, text.trim()));
        }
        Ok(Self {
            texts,
            seller_of_file,
        })
    }

    /// The text in a column; empty where the file has no such column.
    pub(super) fn text(&self, column: &str) -> &'r str {
        let found = self.texts.iter().find(|(name, _)| *name == column);
        found.map_or("", |(_, text)| text)
    }

    /// The seller of the row: the value of `column`, or else the name of the file.
    pub(super) fn seller(&self, column: &str) -> Result<ProviderId, Rejection> {
        match self.seller_of_file {
            Some(seller) => Ok(seller.clone()),
            None => ProviderId::parse(self.text(column))
                .map_err(|error| Rejection::new(SkipReason::Unreadable, error.to_string())),
        }
    }
}
