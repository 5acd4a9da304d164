//! Decides when to read a reservation again: after an event of the service, else every second.
//!
//! An event only triggers a read: the output always comes from a new read. So a lost or repeated event
//! does no harm.

use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::ready;
use futures_util::stream::BoxStream;
use market::ids::ReservationId;

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
            ..EventReader::default()
        };
        self.source = match self.api.stream(target, last.as_deref()).await {
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
/// Source: the HTML standard, section 9.2.6, as far as it is needed to trigger a read.
#[derive(Debug, Default)]
struct EventReader {
    line: Vec<u8>,
    has_data: bool,
    /// The id of the last event.
    last_id: Option<String>,
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
            return std::mem::take(&mut self.has_data);
        }
        let text = String::from_utf8_lossy(line);
        let (field, value) = text.split_once(':').unwrap_or((&text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => self.has_data = true,
            "id" if !value.contains('\0') => self.last_id = Some(value.to_owned()),
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
        }
    }

    #[test]
    fn a_comment_that_keeps_the_line_open_is_no_event_and_an_endless_line_is_noticed() {
        let mut reader = EventReader::default();
        assert!(!reader.feed(b":\n\n: still here\n\nretry: 1000\n\n"));
        assert_eq!(reader.last_id, None);
        assert!(reader.feed(&vec![b'x'; LONGEST_LINE + 1]));
    }
}
