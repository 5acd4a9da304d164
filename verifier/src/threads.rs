//! Work on several threads at once.

use std::io;
use std::num::NonZero;

/// The most threads that hash for one GPU: as many as hosts have processors per GPU.
const MOST: usize = 8;

/// How many of the host's threads each of this many GPUs gets, which all hash at once.
pub(crate) fn of_each(gpus: usize) -> usize {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    (processors / gpus.max(1)).clamp(1, MOST)
}

/// Does the same with every item at once, on a thread each, and waits for all. The results are in the order
/// of the items.
///
/// Errors: the first in that order, also for a thread that crashed.
pub(crate) fn on_each<I: Send, T: Send>(
    items: impl IntoIterator<Item = I>,
    work: impl Fn(I) -> io::Result<T> + Sync,
) -> io::Result<Vec<T>> {
    let work = &work;
    std::thread::scope(|scope| {
        let running: Vec<_> = items
            .into_iter()
            .map(|item| scope.spawn(move || work(item)))
            .collect();
        let crashed = |_| io::Error::other("a thread crashed");
        running
            .into_iter()
            .map(|thread| thread.join().map_err(crashed)?)
            .collect()
    })
}
