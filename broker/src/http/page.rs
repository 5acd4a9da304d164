//! Pages of a list, and the opaque cursors between them.
//!
//! A cursor is the position of the last item shown, sealed with a key that all replicas share and
//! bound to the list and its filters: one that was forged, altered or taken from another list is
//! refused. A position names an item, not a count, so items that come and go skip none.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::error::ApiError;
use crate::platform::keys::Keys;

/// Items of a page by default.
const DEFAULT_LIMIT: u32 = 50;
/// The most items of a page.
const MAX_LIMIT: u32 = 200;
/// Bytes of a cursor's seal.
const SEAL: usize = 16;

/// Which page of a list.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct WhichPage {
    /// The cursor of the page before.
    pub(crate) cursor: Option<String>,
    /// Items of a page.
    #[param(minimum = 1, maximum = 200, default = 50)]
    pub(crate) limit: Option<u32>,
}

/// One page of a list.
#[derive(Debug, Clone, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Page<T> {
    /// The items of this page.
    #[schema(max_items = 200)]
    pub items: Vec<T>,
    /// Pass it as `cursor` to get the next page; `null` on the last one.
    pub next_cursor: Option<String>,
}

impl<T> Page<T> {
    /// The same page, each item as it is shown.
    pub(crate) fn map<V>(self, show: impl FnMut(T) -> V) -> Page<V> {
        Page {
            items: self.items.into_iter().map(show).collect(),
            next_cursor: self.next_cursor,
        }
    }
}

/// How many items a page may have.
///
/// Errors: `invalid_parameter` outside of 1..=200.
pub(crate) fn limit(asked: Option<u32>) -> Result<usize, ApiError> {
    let limit = asked.unwrap_or(DEFAULT_LIMIT);
    if (1..=MAX_LIMIT).contains(&limit) {
        return Ok(limit as usize);
    }
    Err(ApiError::invalid_parameter(format!(
        "`limit` must be between 1 and {MAX_LIMIT}, not {limit}"
    )))
}

/// Leaves out of the filters that cursors are bound to the parameters that only tell how far a list was read.
///
/// A condition, because a field that is never serialised is never documented either.
pub(crate) fn left_out<T>(_: &T) -> bool {
    true
}

/// Makes and opens the cursors of one list, as filtered.
#[derive(Debug)]
pub(crate) struct Cursors {
    key: [u8; 32],
}

impl Cursors {
    /// The cursors of the list `name` under `filters`.
    pub(crate) fn of(keys: &Keys, name: &str, filters: &impl Serialize) -> Self {
        let root = keys.shared_secret("gpu-broker 2025 list cursors");
        Self::under(&root, name, filters)
    }

    fn under(root: &[u8; 32], name: &str, filters: &impl Serialize) -> Self {
        // Filters are plain values, which always serialise.
        let filters = serde_json::to_vec(filters).unwrap_or_default();
        let mut hasher = blake3::Hasher::new_keyed(root);
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name.as_bytes());
        hasher.update(&filters);
        Self {
            key: *hasher.finalize().as_bytes(),
        }
    }

    /// The cursor that stands after `position`.
    pub(crate) fn after(&self, position: &impl Serialize) -> String {
        let mut bytes = serde_json::to_vec(position).unwrap_or_default();
        let seal = blake3::keyed_hash(&self.key, &bytes);
        bytes.extend_from_slice(&seal.as_bytes()[..SEAL]);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// The position that a cursor stands after.
    ///
    /// Errors: `invalid_cursor`.
    pub(crate) fn open<P: DeserializeOwned>(&self, cursor: &str) -> Result<P, ApiError> {
        let refuse = || {
            ApiError::invalid_cursor(
                "pass `next_cursor` of the page before, with the same filters; or start without a cursor",
            )
        };
        let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| refuse())?;
        let (position, seal) = bytes
            .split_at_checked(bytes.len().saturating_sub(SEAL))
            .ok_or_else(refuse)?;
        let mut expected = [0; SEAL];
        expected.copy_from_slice(&blake3::keyed_hash(&self.key, position).as_bytes()[..SEAL]);
        if seal != expected {
            return Err(refuse());
        }
        serde_json::from_slice(position).map_err(|_| refuse())
    }

    /// Cuts a page from a list that was read whole, the newest first; `id` grows with time.
    ///
    /// Errors: `invalid_parameter` for the limit, `invalid_cursor`.
    pub(crate) fn page_of<T, I: PartialOrd + Serialize + DeserializeOwned>(
        &self,
        newest_first: impl IntoIterator<Item = T>,
        which: &WhichPage,
        id: impl Fn(&T) -> I,
    ) -> Result<Page<T>, ApiError> {
        let limit = limit(which.limit)?;
        let cursor = which.cursor.as_deref();
        let after: Option<I> = cursor.map(|cursor| self.open(cursor)).transpose()?;
        let follows = |item: &T| after.as_ref().is_none_or(|after| id(item) < *after);
        let items = newest_first.into_iter().filter(follows);
        Ok(self.page(items.take(limit + 1).collect(), limit, &id))
    }

    /// Cuts a page from items that follow the cursor; `items` may hold one more than fits.
    pub(crate) fn page<T, P: Serialize>(
        &self,
        mut items: Vec<T>,
        limit: usize,
        position: impl Fn(&T) -> P,
    ) -> Page<T> {
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items
            .last()
            .filter(|_| more)
            .map(|last| self.after(&position(last)));
        Page { items, next_cursor }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cursors(name: &str, filter: &str) -> Cursors {
        Cursors::under(&[7; 32], name, &filter)
    }

    #[test]
    fn a_cursor_of_another_list_or_filter_is_refused() {
        let cursor = cursors("offers", "gpu=H100").after(&(5, "x"));
        assert_eq!(
            cursors("offers", "gpu=H100")
                .open::<(u32, String)>(&cursor)
                .expect("ours"),
            (5, "x".into())
        );
        for other in [
            cursors("offers", "gpu=A100"),
            cursors("reservations", "gpu=H100"),
        ] {
            assert_eq!(
                other
                    .open::<(u32, String)>(&cursor)
                    .expect_err("not its own")
                    .code(),
                "invalid_cursor"
            );
        }
    }

    #[test]
    fn the_last_page_has_no_cursor_and_every_item_is_shown_once() {
        let list = cursors("numbers", "");
        let all: Vec<u32> = (0..10).collect();
        let (mut seen, mut from): (Vec<u32>, usize) = (Vec::new(), 0);
        loop {
            let page = list.page(all[from..].to_vec(), 4, |item| *item);
            seen.extend(&page.items);
            let Some(cursor) = page.next_cursor else {
                break;
            };
            from = list.open::<usize>(&cursor).expect("our own") + 1;
        }
        assert_eq!(seen, all);
    }

    #[test]
    fn a_whole_list_is_shown_from_the_newest_down_whatever_comes_or_goes_meanwhile() {
        let list = cursors("numbers", "");
        let page = |items: &[u32], cursor: Option<String>| {
            let which = WhichPage {
                cursor,
                limit: Some(2),
            };
            let page = list.page_of(items.to_vec(), &which, |item| *item);
            page.expect("a page")
        };
        let first = page(&[9, 7, 5, 3, 1], None);
        assert_eq!(first.items, [9, 7]);
        // The last one shown is gone, and a newer one came.
        let second = page(&[10, 9, 5, 3, 1], first.next_cursor);
        assert_eq!(second.items, [5, 3]);
        let third = page(&[5, 3, 1], second.next_cursor);
        assert_eq!((third.items, third.next_cursor), (vec![1], None));
    }

    #[test]
    fn a_page_has_between_one_and_two_hundred_items() {
        assert_eq!(limit(None).expect("the default"), 50);
        assert_eq!(limit(Some(200)).expect("the most"), 200);
        for bad in [0, 201, u32::MAX] {
            assert_eq!(
                limit(Some(bad)).expect_err("refused").code(),
                "invalid_parameter"
            );
        }
    }

    proptest! {
        #[test]
        fn an_altered_cursor_is_refused(at in 0_usize..100, by in 1_u8..64) {
            let list = cursors("offers", "");
            let mut bytes = list.after(&"position").into_bytes();
            let at = at % bytes.len();
            const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
            let old = ALPHABET.iter().position(|letter| *letter == bytes[at]).expect("base64url");
            bytes[at] = ALPHABET[(old + usize::from(by)) % 64];
            let forged = String::from_utf8(bytes).expect("ASCII");
            prop_assert!(list.open::<String>(&forged).is_err());
        }

        #[test]
        fn no_text_whatever_opens_a_list(text in ".{0,80}") {
            prop_assert!(cursors("offers", "").open::<String>(&text).is_err());
        }
    }
}
