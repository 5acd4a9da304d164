//! The tasks of a replica: a new one is one line in [`start`].

use std::collections::BTreeSet;

use adapters::registry;

use crate::flow::{fulfil, ingest, reach, reconcile};
use crate::platform::app::Broker;
use crate::platform::background::Background;
use crate::platform::{metrics, time_check};
use crate::tenant::{event_streams, retention, spending, webhooks};

/// Starts everything that a replica does in the background.
#[must_use]
pub fn start(broker: &Broker) -> Background {
    let mut work = Background::of(broker);
    work.add("tail", ingest::keep_tailing);
    poll_each(&mut work);
    work.add("fulfil", fulfil::work_on_fresh_supply);
    work.add("reach", reach::keep_probing);
    work.add("sweep", reconcile::keep_sweeping);
    work.add("webhooks", webhooks::keep_delivering);
    work.add("spending", spending::keep_watching);
    work.add("prune", retention::keep_pruning);
    work.add("streams", event_streams::close_when_stopped);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_to_workers_lists_every_task_and_no_other() {
        let (source, _) = include_str!("tasks.rs")
            .split_once("#[cfg(test)]")
            .expect("tests at the foot");
        let added = source.split("work.add(\"").skip(1).map(|rest| {
            let (name, rest) = rest.split_once("\", ").expect("a name");
            let (task, _) = rest.split_once(");").expect("a task");
            let task = task
                .trim_start_matches("|_, stop| ")
                .trim_end_matches("(stop)");
            format!("`{name}`: `{task}`")
        });
        let mut added: BTreeSet<_> = added.collect();
        assert!(added.len() > 5, "{added:?}");
        let poll = format!("`{}PROVIDER`, one for each", ingest::POLL);
        added.insert(format!("{poll}: `ingest::keep_polling`"));
        let (_, table) = include_str!("../../../docs/workers.md")
            .split_once("| task | claims | does |\n|---|---|---|\n")
            .expect("the table");
        let rows = table.lines().take_while(|line| !line.is_empty());
        let rows = rows.filter_map(|row| row.strip_prefix("| ")?.split(" | ").next());
        let listed: BTreeSet<_> = rows.map(str::to_owned).collect();
        assert_eq!(listed, added);
    }
}
