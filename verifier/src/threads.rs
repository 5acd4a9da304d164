//! Input and output on several threads at once.

use std::io;

/// Does the same with every item at once, on a thread each, and waits for all; what came of them is in
/// the order of the items.
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
