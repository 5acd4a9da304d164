//! Walks over the pages of a list.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value;

use super::refusal_of;
use crate::error::AdapterError;
use crate::http::{Http, MAX_BODY_BYTES};

const PAGE_RECORDS: usize = 50;

/// A walk longer than this does not end: we treat the list as broken.
const MOST_PAGES: usize = 200;

/// The most that the answers of one walk may hold together. Units: bytes.
const MOST_BYTES: usize = MAX_BODY_BYTES;

/// The result of a walk.
#[derive(Debug)]
pub(super) struct Listing {
    /// The records, each once.
    pub(super) records: Vec<Value>,
    /// Why these may not be all of them; `None` when the list was read to its end.
    pub(super) trouble: Option<AdapterError>,
}

#[derive(Debug, Deserialize)]
struct Page {
    results: Vec<Value>,
    total_result_count: Option<usize>,
    has_next: Option<bool>,
}

/// Reads a list to its end.
///
/// Errors: when the first page cannot be read, or holds more records than were asked for. If a later page
/// does, the listing has it as its trouble.
pub(super) async fn read(http: &Http, path: &str) -> Result<Listing, AdapterError> {
    let mut listing = Listing {
        records: Vec::new(),
        trouble: None,
    };
    let mut ids = HashSet::new();
    let mut bytes_left = MOST_BYTES;
    let broken = |how: &str| {
        Some(AdapterError::Unreadable {
            method: "GET",
            path: path.to_owned(),
            how: how.to_owned(),
        })
    };
    for page_number in 0..MOST_PAGES {
        let page = match read_page(http, path, listing.records.len(), &mut bytes_left).await {
            Ok(page) => page,
            Err(error) if page_number == 0 => return Err(error),
            Err(error) => {
                listing.trouble = Some(error);
                return Ok(listing);
            }
        };
        let before = listing.records.len();
        let announced = page.results.len();
        listing.records.extend(page.results.into_iter().filter(
            |record| match record["id"].as_str() {
                Some(id) => ids.insert(id.to_owned()),
                None => true,
            },
        ));
        let read = listing.records.len();
        let more = page
            .has_next
            .or_else(|| page.total_result_count.map(|total| read < total));
        if read - before < announced {
            // The list changed during the walk: a record that appears twice here is missing elsewhere.
            listing.trouble = broken("a record stands on it twice");
            return Ok(listing);
        }
        match more {
            Some(true) if announced > 0 => {}
            Some(false) if page.total_result_count.is_none_or(|total| total == read) => {
                return Ok(listing);
            }
            _ => {
                listing.trouble = broken("its pages do not add up to what it announces");
                return Ok(listing);
            }
        }
    }
    listing.trouble = broken("it has no end");
    Ok(listing)
}

async fn read_page(
    http: &Http,
    path: &str,
    offset: usize,
    bytes_left: &mut usize,
) -> Result<Page, AdapterError> {
    let answer = http
        .get(&format!("{path}?limit={PAGE_RECORDS}&offset={offset}"))
        .await?;
    *bytes_left = bytes_left
        .checked_sub(answer.body_bytes())
        .ok_or_else(|| answer.unreadable(format!("its pages hold more than {MOST_BYTES} bytes")))?;
    let page: Page = answer.read(refusal_of)?;
    let count = page.results.len();
    if count > PAGE_RECORDS {
        let how = format!("{count} records stand on a page of {PAGE_RECORDS}");
        return Err(answer.unreadable(how));
    }
    Ok(page)
}
