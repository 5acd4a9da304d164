//! The partition of each offer, by its id.

use std::sync::Arc;

use market::ids::OfferId;

/// Ids are hashes, so their first byte splits them evenly.
const SHARDS: usize = 256;

/// The partition of each offer, as an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IdIndex(Box<[Arc<[Entry]>]>);

/// The second to fifth byte of an id, and its partition. A shard is sorted by both.
type Entry = (u32, u32);

impl IdIndex {
    /// The index of these ids, each with its partition.
    pub(super) fn new(ids: impl Iterator<Item = (OfferId, u32)>) -> Self {
        let mut shards: Vec<Vec<Entry>> = vec![Vec::new(); SHARDS];
        for (id, partition) in ids {
            shards[shard(&id)].push((key(&id), partition));
        }
        let sorted = shards.into_iter().map(|mut shard| {
            shard.sort_unstable();
            Arc::from(shard)
        });
        Self(sorted.collect())
    }

    /// The partitions in which an offer may be: nearly always the one in which it is.
    pub(super) fn partitions(&self, id: &OfferId) -> impl Iterator<Item = u32> {
        let (shard, key) = (&self.0[shard(id)], key(id));
        let first = shard.partition_point(|entry| entry.0 < key);
        let equal = shard[first..]
            .iter()
            .take_while(move |entry| entry.0 == key);
        equal.map(|entry| entry.1)
    }

    /// The index without some entries, and with others; shards that neither touches are shared.
    pub(super) fn patched(&self, lost: &[(OfferId, u32)], gained: &[(OfferId, u32)]) -> Self {
        let mut lost_of: Vec<Vec<Entry>> = vec![Vec::new(); SHARDS];
        let mut gained_of = lost_of.clone();
        for (changes, of) in [(lost, &mut lost_of), (gained, &mut gained_of)] {
            for (id, partition) in changes {
                of[shard(id)].push((key(id), *partition));
            }
        }
        let shards = self.0.iter().zip(lost_of.into_iter().zip(gained_of));
        let patched = shards.map(|(shard, (mut lost, gained))| {
            if lost.is_empty() && gained.is_empty() {
                return Arc::clone(shard);
            }
            lost.sort_unstable();
            let mut lost = lost.into_iter().peekable();
            // Both are sorted; of equal entries as many go as are lost.
            let stay = shard
                .iter()
                .filter(|entry| lost.next_if_eq(entry).is_none());
            let mut entries: Vec<Entry> = stay.copied().collect();
            entries.extend(gained);
            entries.sort_unstable();
            Arc::from(entries)
        });
        Self(patched.collect())
    }
}

fn shard(id: &OfferId) -> usize {
    usize::from(id.as_bytes()[0])
}

fn key(id: &OfferId) -> u32 {
    let [_, a, b, c, d, ..] = *id.as_bytes();
    u32::from_be_bytes([a, b, c, d])
}
