//! The tasks of a replica: a new one is one line in [`start`].

use std::collections::BTreeSet;

use adapters::registry;

use crate::app::Broker;
use crate::background::Background;
use crate::{
    feed, fulfil, ingest, metrics, reach, retention, spending, sweep, time_check, webhooks,
};

/// Starts everything that a replica does in the background.
#[must_use]
pub fn start(broker: &Broker) -> Background {
    let mut work = Background::of(broker);
    work.add("tail", ingest::keep_tailing);
    poll_each(&mut work);
    work.add("fulfil", fulfil::work_on_fresh_supply);
    work.add("reach", reach::keep_probing);
    work.add("sweep", sweep::keep_sweeping);
    work.add("webhooks", webhooks::keep_delivering);
    work.add("spending", spending::keep_watching);
    work.add("prune", retention::keep_pruning);
    work.add("streams", feed::close_when_stopped);
    work.add("metrics", |_, stop| metrics::keep_folding(stop));
    work.add("clock", time_check::keep_checking);
    work
}

/// A task for each provider, so that one that hangs or breaks us holds up no other.
pub fn poll_each(work: &mut Background) {
    let links = work.broker().providers();
    let connected = links
        .iter()
        .map(|link| link.adapter.profile().provider_id());
    // Any other may be entered while we run.
    let known = registry::all()
        .iter()
        .map(|adapter| adapter.profile().provider_id());
    for provider in connected.chain(known).collect::<BTreeSet<_>>() {
        work.add(ingest::lease_of(&provider), move |broker, stop| {
            ingest::keep_polling(broker, provider.clone(), stop)
        });
    }
}
