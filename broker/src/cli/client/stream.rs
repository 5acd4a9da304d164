//! Decides when to read a reservation again: after an event of the service, else every second.
//!
//! An event triggers a read, and the output about states comes from that read. So a lost or repeated event
//! does no harm. An announcement, which no read shows, is the event itself: its reader skips a repeated one.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::ready;
use futures_util::stream::BoxStream;
use market::ids::ReservationId;
use serde_json::Value;

use super::api::Api;
use super::route::Route;

/// The interval between reads if the service sends no events.
const POLL: Duration = Duration::from_secs(1);
/// The interval between reads with events, in case the stream has stalled.
const LOOK_ANYWAY: Duration = Duration::from_secs(10);
/// The maximum length of a line of the stream; a longer one ends the stream.
const LONGEST_LINE: usize = 1 << 20;

/// Waits for news of one reservation.
pub(super) struct Nudges<'a> {
    api: &'a Api,
    id: ReservationId,
    source: Source,
    reader: EventReader,
}

enum Source {
    /// Not opened yet, or cut off.
    Closed,
    Open(BoxStream<'static, Vec<u8>>),
    /// The service has no stream.
    Absent,
}

impl<'a> Nudges<'a> {
    /// Opens the stream, so that no event after the first read is missed.
    pub(super) async fn of(api: &'a Api, id: ReservationId) -> Self {
        let mut nudges = Self {
            api,
            id,
            source: Source::Closed,
            reader: EventReader::default(),
        };
        nudges.open().await;
        nudges
    }

    async fn open(&mut self) {
        let target = Route::ReservationEvents.of(&self.id);
        let last = self.reader.last_id.clone();
        self.reader = EventReader {
            last_id: last.clone(),
            events: self.events(),
            ..EventReader::default()
        };
        let mut opened = self.api.stream(target.clone(), last.as_deref()).await;
        if last.is_some() && matches!(opened, Ok(None)) {
            // What came after the last event may be no longer kept: start with the first that is.
            opened = self.api.stream(target, None).await;
        }
        self.source = match opened {
            Ok(Some(response)) => {
                let whole = response.bytes_stream();
                let pieces = whole.scan((), |(), piece| {
                    ready(piece.ok().map(|piece| piece.to_vec()))
                });
                Source::Open(pieces.boxed())
            }
            Ok(None) => Source::Absent,
            Err(_) => Source::Closed,
        };
    }

    /// The events since the last call.
    pub(super) fn events(&mut self) -> Vec<Value> {
        std::mem::take(&mut self.reader.events)
    }

    /// Waits until there may be news.
    pub(super) async fn next(&mut self) {
        if matches!(self.source, Source::Closed) {
            self.open().await;
        }
        let Source::Open(pieces) = &mut self.source else {
            tokio::time::sleep(POLL).await;
            return;
        };
        let reader = &mut self.reader;
        let told = async {
            loop {
                match pieces.next().await {
                    Some(piece) if !reader.feed(&piece) => {}
                    Some(_) => return reader.line.len() <= LONGEST_LINE,
                    None => return false,
                }
            }
        };
        match tokio::time::timeout(LOOK_ANYWAY, told).await {
            Ok(true) | Err(_) => {}
            Ok(false) => {
                // Opened again before the next read, so that no event between the two is missed.
                tokio::time::sleep(POLL).await;
                self.open().await;
            }
        }
    }
}

/// Reads `text/event-stream` piece by piece.
///
/// Source: the HTML standard, section 9.2.6, for events with one line of data.
#[derive(Debug, Default)]
struct EventReader {
    line: Vec<u8>,
    /// The data and the id of the event that is being read.
    data: Option<String>,
    id: Option<String>,
    /// The id of the last complete event.
    last_id: Option<String>,
    /// The events whose data is JSON, not yet taken.
    events: Vec<Value>,
}

impl EventReader {
    /// Takes a piece of the stream. Returns whether it completed an event, or holds a line longer than any
    /// of ours.
    fn feed(&mut self, piece: &[u8]) -> bool {
        let mut told = false;
        for &byte in piece {
            if byte != b'\n' {
                self.line.push(byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            told |= self.line_ends(line.strip_suffix(b"\r").unwrap_or(&line));
        }
        told || self.line.len() > LONGEST_LINE
    }

    /// Whether this line completed an event.
    fn line_ends(&mut self, line: &[u8]) -> bool {
        if line.is_empty() {
            self.last_id = self.id.take().or(self.last_id.take());
            let data = self.data.take();
            let event = data.as_deref().map(serde_json::from_str);
            self.events.extend(event.and_then(Result::ok));
            return data.is_some();
        }
        let text = String::from_utf8_lossy(line);
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => self.data = Some(value.to_owned()),
            "id" if !value.contains('\0') => self.id = Some(value.to_owned()),
            _ => {}
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_told_once_it_is_whole_however_it_is_cut() {
        let stream = b": hello\n\nid: 7\r\nevent: lease.gone\ndata: {\"a\":1}\n\n";
        for cut in 0..stream.len() {
            let mut reader = EventReader::default();
            let (first, second) = stream.split_at(cut);
            let (early, late) = (reader.feed(first), reader.feed(second));
            assert!(!early && late, "cut at {cut}");
            assert_eq!(reader.last_id.as_deref(), Some("7"));
            assert_eq!(reader.events, [serde_json::json!({ "a": 1 })]);
        }
        let mut reader = EventReader::default();
        assert!(!reader.feed(b"id: 8\ndata: {}\n"));
        assert_eq!(reader.last_id, None, "the event is not complete");
        assert!(reader.feed(b"\ndata: no JSON\n\n") && reader.events.len() == 1);
    }

    #[test]
    fn a_comment_that_keeps_the_line_open_is_no_event_and_an_endless_line_is_noticed() {
        let mut reader = EventReader::default();
        assert!(!reader.feed(b":\n\n: still here\n\nretry: 1000\n\n"));
        assert_eq!(reader.last_id, None);
        assert!(reader.feed(&vec![b'x'; LONGEST_LINE + 1]));
    }
}
