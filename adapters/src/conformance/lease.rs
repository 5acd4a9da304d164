//! Checks of an adapter's orders, look-ups and releases.

use std::time::Duration;

use market::offer::Offer;
use market::order::{
    ClientToken, LeaseOrder, LeaseRef, ProviderLease, ProviderLeaseId, ProviderLeaseState as State,
};

use super::{Bench, BrokenFront, Flaw, Verdict, broken, catalog, nobody, not_applicable};
use crate::adapter::{NodesPerLease, Release};

/// The time between two reads while something comes up or goes down, and the most reads.
const STEP: Duration = Duration::from_secs(60);
const MOST_STEPS: u32 = 120;

/// An id that no provider gave out.
const ABSENT: &str = "00000000-0000-4000-8000-00000000dead";

/// An offer of which this many nodes are available now, if one meets the condition.
async fn offer_where(
    bench: &Bench<'_>,
    nodes: u32,
    condition: impl Fn(&Offer) -> bool,
) -> Result<Option<Offer>, Flaw> {
    if !bench.world.takes_orders() {
        return not_applicable("this world takes no orders");
    }
    // An earlier order may just have been sent.
    bench
        .world
        .advance(bench.adapter.profile().order_spacing)
        .await;
    let offers = catalog::read(bench).await?.offers;
    Ok(offers
        .into_iter()
        .find(|offer| offer.orderable && offer.availability.may_hold(nodes) && condition(offer)))
}

/// An offer of which this many nodes are available now.
async fn offer_with(bench: &Bench<'_>, nodes: u32) -> Result<Offer, Flaw> {
    match offer_where(bench, nodes, |_| true).await? {
        Some(offer) => Ok(offer),
        None => not_applicable(format!("no offer has {nodes} free nodes")),
    }
}

async fn find(bench: &Bench<'_>, token: &ClientToken) -> Result<Option<ProviderLease>, Flaw> {
    Ok(bench.adapter.find_lease(bench.http, token).await?)
}

/// Reads a lease until it has the wanted state; `None` is a lease that is gone.
async fn wait_for(
    bench: &Bench<'_>,
    lease: &LeaseRef,
    wanted: impl Fn(Option<&ProviderLease>) -> bool,
) -> Result<Option<ProviderLease>, Flaw> {
    for _ in 0..MOST_STEPS {
        let read = bench.adapter.read_lease(bench.http, lease).await?;
        if wanted(read.as_ref()) {
            return Ok(read);
        }
        bench.world.advance(STEP).await;
    }
    broken(format!(
        "{} did not get where it should within {MOST_STEPS} steps of {} s",
        lease.id,
        STEP.as_secs()
    ))
}

fn is_gone(lease: Option<&ProviderLease>) -> bool {
    lease.is_none_or(|lease| lease.state == State::Gone)
}

/// Releases a lease twice, and waits until it is gone.
async fn release(bench: &Bench<'_>, lease: &LeaseRef) -> Verdict {
    for _ in 0..MOST_STEPS {
        match bench.adapter.release_lease(bench.http, lease).await? {
            Release::NotYet => bench.world.advance(STEP).await,
            Release::Accepted | Release::NotShown => break,
        }
    }
    bench.adapter.release_lease(bench.http, lease).await?;
    wait_for(bench, lease, is_gone).await?;
    bench.adapter.release_lease(bench.http, lease).await?;
    Ok(())
}

/// Compares the lease with its order, as far as the provider reports it.
fn compare(lease: &ProviderLease, order: &LeaseOrder) -> Verdict {
    let offer = &order.offer;
    if lease.client_token().as_ref() != Some(&order.client_token) {
        return broken(format!("{} does not carry the mark of its order", lease.id));
    }
    let differs =
        |said: Option<&String>, ordered: Option<&String>| said.is_some() && said != ordered;
    if differs(lease.sku.as_ref(), Some(&offer.sku))
        || differs(lease.region.as_ref(), offer.place.region.as_ref())
    {
        return broken(format!(
            "{} is another thing in our words than the offer it came of",
            lease.id
        ));
    }
    if lease.node_count.is_some_and(|nodes| nodes != order.nodes) {
        return broken(format!(
            "{} has {:?} nodes instead of {}",
            lease.id, lease.node_count, order.nodes
        ));
    }
    if lease.gpus_per_node.is_some() && lease.gpus_per_node != offer.gpus.as_whole() {
        return broken(format!(
            "{} has {:?} GPUs a node instead of {}",
            lease.id, lease.gpus_per_node, offer.gpus
        ));
    }
    Ok(())
}

/// Orders, follows the lease from request to gone, and compares at each step.
async fn live_through(bench: &Bench<'_>, order: &LeaseOrder) -> Verdict {
    let asked = bench.adapter.request_lease(bench.http, order).await?;
    compare(&asked, order)?;
    let Some(found) = find(bench, &order.client_token).await? else {
        return broken("the lease is not found by its mark");
    };
    if found.id != asked.id {
        return broken(format!("the mark of {} finds {}", asked.id, found.id));
    }
    compare(&found, order)?;
    let lease = bench.lease(order, &asked.id);
    let up = |lease: Option<&ProviderLease>| {
        lease.is_none_or(|lease| !matches!(lease.state, State::Pending))
    };
    let Some(running) = wait_for(bench, &lease, up).await? else {
        return broken(format!("{} vanished while it came up", asked.id));
    };
    compare(&running, order)?;
    if running.state != State::Running {
        return broken(format!(
            "{} came up as {:?} ({})",
            running.id, running.state, running.raw_status
        ));
    }
    if running.nodes.len() != order.nodes as usize
        || running.nodes.iter().any(|node| node.host.is_empty())
    {
        return broken(format!(
            "{} runs {} nodes but shows {} addresses",
            running.id,
            order.nodes,
            running.nodes.len()
        ));
    }
    release(bench, &lease).await?;
    if is_gone(find(bench, &order.client_token).await?.as_ref()) {
        return Ok(());
    }
    broken(format!(
        "{} is gone, but its mark finds something alive",
        asked.id
    ))
}

pub(super) async fn lives(bench: &Bench<'_>) -> Verdict {
    let offer = offer_with(bench, 1).await?;
    live_through(bench, &bench.order(&offer, 1)).await
}

pub(super) async fn takes_several_nodes(bench: &Bench<'_>) -> Verdict {
    let holds_two = |offer: &Offer| bench.adapter.nodes_per_lease(offer) != NodesPerLease::One;
    let Some(offer) = offer_where(bench, 2, holds_two).await? else {
        return not_applicable("a lease is one node here");
    };
    live_through(bench, &bench.order(&offer, 2)).await
}

pub(super) async fn absent_is_absent(bench: &Bench<'_>) -> Verdict {
    if !bench.world.takes_orders() {
        return not_applicable("this world knows no leases");
    }
    let lease = LeaseRef {
        id: ProviderLeaseId(ABSENT.to_owned()),
        client_token: nobody(),
        region: None,
    };
    if bench
        .adapter
        .read_lease(bench.http, &lease)
        .await?
        .is_some()
    {
        return broken("a lease that nobody made was read");
    }
    if find(bench, &lease.client_token).await?.is_some() {
        return broken("a lease that nobody made was found");
    }
    match bench.adapter.release_lease(bench.http, &lease).await? {
        Release::NotShown => Ok(()),
        Release::Accepted | Release::NotYet => {
            broken("the adapter reported a lease that nobody made")
        }
    }
}

pub(super) async fn hopeless_order_is_refused(bench: &Bench<'_>) -> Verdict {
    let mut offer = offer_with(bench, 1).await?;
    offer.sku = "no-such-sku".to_owned();
    offer.place.region = Some(ABSENT.to_owned());
    let order = bench.order(&offer, 1);
    match bench.adapter.request_lease(bench.http, &order).await {
        Ok(lease) => {
            return broken(format!(
                "{} was made of an offer that does not exist",
                lease.id
            ));
        }
        Err(error) if error.is_refusal() => {}
        Err(error) => return broken(format!("the refusal is not seen as one: {error}")),
    }
    match find(bench, &order.client_token).await? {
        Some(lease) => broken(format!(
            "{} was made although the order was refused",
            lease.id
        )),
        None => Ok(()),
    }
}

pub(super) async fn too_many_nodes(bench: &Bench<'_>) -> Verdict {
    let offer = offer_with(bench, 1).await?;
    let order = bench.order(&offer, bench.adapter.nodes_per_lease(&offer).max() + 1);
    match bench.adapter.request_lease(bench.http, &order).await {
        Ok(lease) => broken(format!(
            "{} was made with more nodes than a lease holds",
            lease.id
        )),
        Err(crate::AdapterError::CannotOrder(_)) => Ok(()),
        Err(error) => broken(format!("the order went out: {error}")),
    }
}

pub(super) async fn lost_reply_is_found(bench: &Bench<'_>) -> Verdict {
    let offer = offer_with(bench, 1).await?;
    if !bench.world.lose_next_reply().await {
        return not_applicable("this world loses no replies");
    }
    let order = bench.order(&offer, 1);
    match bench.adapter.request_lease(bench.http, &order).await {
        Err(error) if error.is_outcome_unknown() => {}
        Err(error) => return broken(format!("a lost reply is taken for certain: {error}")),
        Ok(_) => return broken("the reply was to be lost and was not"),
    }
    let Some(found) = find(bench, &order.client_token).await? else {
        return broken("what was made without a reply is not found by its mark");
    };
    compare(&found, &order)?;
    release(bench, &bench.lease(&order, &found.id)).await
}

pub(super) async fn broken_fronts_say_nothing(bench: &Bench<'_>) -> Verdict {
    let offer = offer_with(bench, 1).await?;
    let order = bench.order(&offer, 1);
    let made = bench.adapter.request_lease(bench.http, &order).await?;
    let lease = bench.lease(&order, &made.id);
    let mut taken = None;
    for front in BrokenFront::ALL {
        if !bench.world.put_front(Some(front)).await {
            release(bench, &lease).await?;
            return not_applicable("nothing can be put in front of the provider in this world");
        }
        let answers = [
            bench.adapter.read_lease(bench.http, &lease).await.is_ok(),
            bench.adapter.list_leases(bench.http).await.is_ok(),
            bench
                .adapter
                .release_lease(bench.http, &lease)
                .await
                .is_ok(),
        ];
        if answers.contains(&true) {
            taken = Some(front);
        }
    }
    bench.world.put_front(None).await;
    release(bench, &lease).await?;
    match taken {
        Some(front) => broken(format!("{front:?} is taken for an answer of the provider")),
        None => Ok(()),
    }
}

pub(super) async fn unknown_status_is_pending(bench: &Bench<'_>) -> Verdict {
    let offer = offer_with(bench, 1).await?;
    let order = bench.order(&offer, 1);
    let made = bench.adapter.request_lease(bench.http, &order).await?;
    let lease = bench.lease(&order, &made.id);
    let shown = bench.world.show_unknown_status(&lease.id).await;
    let read = bench.adapter.read_lease(bench.http, &lease).await?;
    release(bench, &lease).await?;
    match read {
        _ if !shown => not_applicable("this world shows no unknown status"),
        Some(read) if read.state == State::Pending => Ok(()),
        Some(read) => broken(format!(
            "the word `{}` is taken for {:?}",
            read.raw_status, read.state
        )),
        None => broken("a lease with an unknown status is taken for gone"),
    }
}

/// Lets one order live and another be refused, and removes what they left beside their machines.
async fn order_and_tidy(bench: &Bench<'_>) -> Verdict {
    let offer = offer_with(bench, 1).await?;
    live_through(bench, &bench.order(&offer, 1)).await?;
    let mut hopeless = bench.order(&offer, 1);
    hopeless.offer.sku = "no-such-sku".to_owned();
    hopeless.offer.place.region = Some(ABSENT.to_owned());
    if let Ok(lease) = bench.adapter.request_lease(bench.http, &hopeless).await {
        return broken(format!(
            "{} was made of an offer that does not exist",
            lease.id
        ));
    }
    // Nobody lives by now: what carries a mark was left by this check or by one before.
    for attachment in bench.adapter.list_attachments(bench.http).await? {
        for _ in 0..2 {
            bench
                .adapter
                .remove_attachment(bench.http, &attachment)
                .await?;
        }
    }
    match bench.adapter.list_attachments(bench.http).await?.first() {
        Some(left) => broken(format!("{} {} is still listed", left.kind, left.id)),
        None => Ok(()),
    }
}

/// What orders made beside their machines carries their marks and can be removed; what they share is made once.
pub(super) async fn nothing_is_left(bench: &Bench<'_>) -> Verdict {
    order_and_tidy(bench).await?;
    let before = bench.world.count_attachments().await;
    order_and_tidy(bench).await?;
    let after = bench.world.count_attachments().await;
    let Some((before, after)) = before.zip(after) else {
        return not_applicable("this world does not count what is beside machines");
    };
    if after.marked > 0 {
        return broken(format!("{} things of ended orders are left", after.marked));
    }
    if after.all > before.all {
        let more = after.all - before.all;
        return broken(format!("each order leaves {more} things without its mark"));
    }
    Ok(())
}
