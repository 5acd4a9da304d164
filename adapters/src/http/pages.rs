//! Walks over the pages of a list.

use std::collections::HashSet;

use serde_json::Value;

use super::{Answer, Http, MAX_BODY_BYTES};
use crate::error::{AdapterError, Refusal};

/// A walk longer than this does not end: we treat the list as broken.
const MOST_PAGES: usize = 200;

/// The most that the answers of one walk may hold together. Units: bytes.
const MOST_BYTES: usize = MAX_BODY_BYTES;

/// The shape of a provider's pages. Places in an answer are JSON pointers (RFC 6901).
#[derive(Debug, Clone, Copy)]
pub struct Paging {
    /// Where the records are: `/results`.
    pub records: &'static str,
    /// Where the number of all records is; empty where it is not given.
    pub total: &'static str,
    /// The parameter for the number of records of a page, and that number.
    pub size: (&'static str, usize),
    /// How the next page is requested.
    pub next: Next,
}

impl Paging {
    /// Whether an answer says whether there are more.
    const fn says_more(&self) -> bool {
        match self.next {
            Next::Offset { more, .. } => !more.is_empty() || !self.total.is_empty(),
            Next::Number(_) => !self.total.is_empty(),
            Next::Cursor { .. } => true,
        }
    }
}

/// How the next page is requested.
#[derive(Debug, Clone, Copy)]
pub enum Next {
    /// By the number of records before it.
    Offset {
        /// The parameter.
        parameter: &'static str,
        /// Where the answer says whether there are more; empty where it does not.
        more: &'static str,
    },
    /// By its number, from 1.
    Number(&'static str),
    /// By the cursor in the answer before; an empty or absent one is the end.
    Cursor {
        /// The parameter.
        parameter: &'static str,
        /// Where the answer has the cursor of the next page.
        at: &'static str,
    },
}

/// The result of a walk.
#[derive(Debug)]
pub struct Listing {
    /// The records, each once.
    pub records: Vec<Value>,
    /// Why these may not be all of them; `None` when the list was read to its end.
    pub trouble: Option<AdapterError>,
}

impl Listing {
    /// The records of a list that was read to its end.
    ///
    /// Errors: its trouble.
    pub fn whole(self) -> Result<Vec<Value>, AdapterError> {
        match self.trouble {
            None => Ok(self.records),
            Some(trouble) => Err(trouble),
        }
    }
}

impl Http {
    /// Reads a list to its end.
    ///
    /// Errors: when the first page cannot be read, or holds more records than were requested. If a later page
    /// does, the listing has it as its trouble.
    pub async fn pages(
        &self,
        path: &str,
        paging: &Paging,
        refusal: fn(&Answer) -> Refusal,
    ) -> Result<Listing, AdapterError> {
        let mut walk = Walk::new(path, paging);
        for number in 0..MOST_PAGES {
            let answer = self.get(&walk.path_of(number)).await;
            let page = answer.and_then(|answer| walk.read(&answer, refusal));
            match page {
                Ok(page) => {
                    if let Some(listing) = walk.take(page) {
                        return Ok(listing);
                    }
                }
                Err(error) if number == 0 => return Err(error),
                Err(error) => return Ok(walk.listing(Some(error))),
            }
        }
        let endless = walk.broken("it has no end");
        Ok(walk.listing(Some(endless)))
    }
}

/// One page.
struct Page {
    records: Vec<Value>,
    total: Option<usize>,
    /// Whether another one follows; `None` where the count of records must decide.
    more: Option<bool>,
    cursor: String,
}

/// The walk so far.
struct Walk<'a> {
    path: &'a str,
    paging: &'a Paging,
    records: Vec<Value>,
    ids: HashSet<String>,
    bytes_left: usize,
    cursor: String,
}

impl<'a> Walk<'a> {
    fn new(path: &'a str, paging: &'a Paging) -> Self {
        Self {
            path,
            paging,
            records: Vec::new(),
            ids: HashSet::new(),
            bytes_left: MOST_BYTES,
            cursor: String::new(),
        }
    }

    /// The path of a page, counted from 0.
    fn path_of(&self, number: usize) -> String {
        let (size, records) = self.paging.size;
        let first = if self.path.contains('?') { '&' } else { '?' };
        let page = format!("{}{first}{size}={records}", self.path);
        match self.paging.next {
            Next::Offset { parameter, .. } => format!("{page}&{parameter}={}", self.records.len()),
            Next::Number(parameter) => format!("{page}&{parameter}={}", number + 1),
            Next::Cursor { .. } if self.cursor.is_empty() => page,
            Next::Cursor { parameter, .. } => format!("{page}&{parameter}={}", self.cursor),
        }
    }

    fn read(
        &mut self,
        answer: &Answer,
        refusal: fn(&Answer) -> Refusal,
    ) -> Result<Page, AdapterError> {
        let unreadable = |how: String| Err(answer.unreadable(how));
        let Some(left) = self.bytes_left.checked_sub(answer.body_bytes()) else {
            return unreadable(format!("its pages hold more than {MOST_BYTES} bytes"));
        };
        self.bytes_left = left;
        let mut body: Value = answer.read(refusal)?;
        // Some answer that they failed with the status of a success, and with an empty list.
        if body["status"] == false {
            return unreadable("it says that it failed".to_owned());
        }
        let Some(Value::Array(records)) = body.pointer_mut(self.paging.records).map(Value::take)
        else {
            return unreadable(format!("it has no list at `{}`", self.paging.records));
        };
        let (count, most) = (records.len(), self.paging.size.1);
        if count > most {
            return unreadable(format!("{count} records stand on a page of {most}"));
        }
        let cursor = match self.paging.next {
            Next::Cursor { at, .. } => body.pointer(at).unwrap_or(&Value::Null),
            _ => &Value::Null,
        };
        let cursor = match cursor {
            Value::Null => "",
            Value::String(cursor) => cursor,
            _ => return unreadable("its cursor is no text".to_owned()),
        };
        let in_cursor = |byte: u8| byte.is_ascii_alphanumeric() || b"-_=.~%+/".contains(&byte);
        if !cursor.bytes().all(in_cursor) {
            return unreadable("its cursor has characters that no cursor has".to_owned());
        }
        let number = |at: &str| body.pointer(at).filter(|_| !at.is_empty())?.as_u64();
        Ok(Page {
            total: number(self.paging.total).and_then(|total| usize::try_from(total).ok()),
            more: match self.paging.next {
                Next::Offset { more, .. } => body
                    .pointer(more)
                    .filter(|_| !more.is_empty())
                    .and_then(Value::as_bool),
                Next::Number(_) => None,
                Next::Cursor { .. } => Some(!cursor.is_empty()),
            },
            cursor: cursor.replace('+', "%2B").replace('/', "%2F"),
            records,
        })
    }

    /// Adds a page; the listing where that was the last one.
    fn take(&mut self, page: Page) -> Option<Listing> {
        let (before, announced) = (self.records.len(), page.records.len());
        for record in page.records {
            let id = match &record["id"] {
                Value::String(id) => Some(id.clone()),
                Value::Number(id) => Some(id.to_string()),
                _ => None,
            };
            if id.is_none_or(|id| self.ids.insert(id)) {
                self.records.push(record);
            }
        }
        let read = self.records.len();
        if read - before < announced {
            // The list changed during the walk: a record that appears twice here is missing elsewhere.
            let twice = self.broken("a record stands on it twice");
            return Some(self.listing(Some(twice)));
        }
        let by_total = || page.total.map(|total| read < total);
        // Only where an answer never says it does the last page show by its size.
        let by_size = || (!self.paging.says_more()).then_some(announced == self.paging.size.1);
        let more = page.more.or_else(by_total).or_else(by_size);
        if more == Some(true) && announced > 0 {
            self.cursor = page.cursor;
            return None;
        }
        let adds_up = more == Some(false) && page.total.is_none_or(|total| total == read);
        let trouble =
            (!adds_up).then(|| self.broken("its pages do not add up to what it announces"));
        Some(self.listing(trouble))
    }

    fn broken(&self, how: &str) -> AdapterError {
        AdapterError::Unreadable {
            method: "GET",
            path: self.path.to_owned(),
            how: how.to_owned(),
        }
    }

    fn listing(&mut self, trouble: Option<AdapterError>) -> Listing {
        Listing {
            records: std::mem::take(&mut self.records),
            trouble,
        }
    }
}
