//! Lists in pages, by a query parameter for the start and one for the length.

use serde_json::Value;

use crate::request::Request;

/// How a provider pages its lists.
#[derive(Clone, Copy)]
pub struct Paging {
    /// Where a page starts.
    pub by: By,
    /// The parameter for the length of a page.
    pub size: &'static str,
    /// The length where the caller gives none.
    pub usual: usize,
    /// The greatest length.
    pub most: usize,
}

/// The parameter for the start of a page.
#[derive(Clone, Copy)]
pub enum By {
    /// The number of items before it.
    Offset(&'static str),
    /// The number of the page, from 1.
    Number(&'static str),
    /// A text from the page before it.
    Cursor(&'static str),
}

/// The letters before the number in a cursor.
const CURSOR: &str = "after-";

/// One page of a list.
#[derive(Debug, PartialEq)]
pub struct Page {
    /// In the order of the list.
    pub items: Vec<Value>,
    /// Of the whole list.
    pub total: usize,
    /// Items before it.
    pub start: usize,
    /// The value of the parameter for the next page, if there is one.
    pub next: Option<String>,
}

impl Page {
    /// A list that has no pages.
    #[must_use]
    pub const fn whole(items: Vec<Value>) -> Self {
        Self {
            total: items.len(),
            items,
            start: 0,
            next: None,
        }
    }
}

impl Paging {
    /// By these parameters, with these lengths.
    #[must_use]
    pub const fn new(by: By, size: &'static str, usual: usize, most: usize) -> Self {
        Self {
            by,
            size,
            usual,
            most,
        }
    }

    fn limit(&self, request: &Request) -> usize {
        let given = request.query(self.size).and_then(|size| size.parse().ok());
        given.unwrap_or(self.usual).clamp(1, self.most)
    }

    /// The number of items before the page that is asked for.
    pub fn start(&self, request: &Request) -> usize {
        let number = |name: &str, prefix: &str| {
            let number = request.query(name)?.strip_prefix(prefix)?;
            number.parse::<usize>().ok()
        };
        let start = match self.by {
            By::Offset(name) => number(name, ""),
            By::Number(name) => number(name, "")
                .map(|page| page.saturating_sub(1).saturating_mul(self.limit(request))),
            By::Cursor(name) => number(name, CURSOR),
        };
        start.unwrap_or(0)
    }

    /// The page that is asked for, with so many items of it at most.
    pub fn cut(&self, request: &Request, all: Vec<Value>, most: usize) -> Page {
        let (total, start, limit) = (all.len(), self.start(request), self.limit(request));
        let items: Vec<Value> = all.into_iter().skip(start).take(limit.min(most)).collect();
        let end = start.saturating_add(items.len());
        let next = match self.by {
            By::Offset(_) => end.to_string(),
            By::Number(_) => (start / limit + 2).to_string(),
            By::Cursor(_) => format!("{CURSOR}{end}"),
        };
        Page {
            items,
            total,
            start,
            next: (end < total).then_some(next),
        }
    }
}
