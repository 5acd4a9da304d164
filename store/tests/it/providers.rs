use market::ids::{LeaseId, ProviderId};
use market::lease::LeaseState;
use market::offer::Availability;
use store::audit::NewAuditEntry;
use store::change::{Change, LeaseFacts, LeaseUpdate, NewLease};
use store::fixture::{count_rows, for_each_database};
use store::providers::{Cause, Provider, ProviderChange, Quarantine, SealedCredential};
use store::{Conflict, Store, StoreError};
use uuid::Uuid;

use crate::support::{
    at, claim, hold, new_reservation, offer, provider, provisioning, quote, sell, tenant,
};

fn command() -> Cause<'static> {
    Cause::Command(Box::new(NewAuditEntry::of_command(
        None,
        "providers",
        None,
        at(9),
    )))
}

fn credential(seconds: i64) -> SealedCredential {
    SealedCredential {
        sealed: vec![1, 2, 3],
        hint: "9f3a".into(),
        set_at: at(seconds),
    }
}

fn with(credential: Option<SealedCredential>) -> ProviderChange {
    ProviderChange {
        credential: Some(credential),
        ..ProviderChange::default()
    }
}

fn quarantined(quarantine: Option<Quarantine>) -> ProviderChange {
    ProviderChange {
        quarantine: Some(quarantine),
        ..ProviderChange::default()
    }
}

fn until(since: i64, until: i64) -> Quarantine {
    Quarantine {
        reason: "nodes come without InfiniBand".into(),
        since: at(since),
        until: at(until),
    }
}

#[tokio::test]
async fn a_credential_is_entered_once_then_changed_and_each_change_shows_in_the_standing() {
    for_each_database(async |store| {
        let providers = store.providers();
        let id = ProviderId::parse("acme").expect("an id");
        let change = ProviderChange {
            enabled: Some(false),
            base_url: Some(Some("http://127.0.0.1:1".into())),
            ..with(Some(credential(1)))
        };
        let made = providers.enter(&id, &change, at(1), &command()).await;
        let made = made.expect("entered");
        assert_eq!(made.credential, Some(credential(1)));
        assert!(!made.enabled && made.base_url.is_some());
        assert_eq!(providers.find(&id).await.expect("reads"), Some(made));
        assert!(!format!("{:?}", credential(1)).contains("9f3a"));
        let again = providers.enter(&id, &change, at(2), &command()).await;
        let exists = matches!(again, Err(StoreError::Conflict(Conflict::Exists { .. })));
        assert!(exists, "{again:?}");

        let mut standings = vec![providers.standings().await.expect("reads")];
        for change in [
            with(Some(credential(3))),
            ProviderChange {
                base_url: Some(None),
                ..ProviderChange::default()
            },
            ProviderChange {
                enabled: Some(true),
                ..ProviderChange::default()
            },
            // It is another credential, even if entered at the same moment.
            with(Some(credential(3))),
            quarantined(Some(until(4, 9))),
            quarantined(None),
            parting(),
        ] {
            let changed = providers.change(&id, &change, &command()).await;
            changed.expect("changed");
            standings.push(providers.standings().await.expect("reads"));
        }
        standings.dedup();
        assert_eq!(standings.len(), 8, "{standings:?}");
        assert_eq!(count_rows(store, "audit_entries").await, 8);
        let nobody = ProviderId::parse("nobody").expect("an id");
        let refused = providers.change(&nobody, &with(None), &command()).await;
        assert!(matches!(refused, Err(StoreError::NotFound { .. })));
    })
    .await;
}

/// Enters a credential for the provider of a reservation that is being provisioned.
async fn enter(store: &Store) {
    let change = with(Some(credential(1)));
    let entered = store
        .providers()
        .enter(&provider(), &change, at(1), &command())
        .await;
    entered.expect("entered");
}

#[tokio::test]
async fn a_credential_is_not_forgotten_while_something_may_run_there() {
    for_each_database(async |store| {
        let whose = tenant(store, "acme").await;
        let sold = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&sold), at(0)).await;
        provisioning(store, whose, &sold).await;
        enter(store).await;
        let change = async |change| {
            let providers = store.providers();
            providers.change(&provider(), &change, &command()).await
        };
        assert_in_use(&part(store).await);
        let changed = change(with(Some(credential(5)))).await.expect("changed");
        assert_eq!(changed.credential, Some(credential(5)));
    })
    .await;
}

#[tokio::test]
async fn nothing_is_held_at_a_provider_that_is_disabled_or_in_quarantine() {
    for_each_database(async |store| {
        let whose = tenant(store, "acme").await;
        let sold = offer("a", Availability::exactly(9));
        sell(store, std::slice::from_ref(&sold), at(0)).await;
        let change = async |change| {
            let providers = store.providers();
            let changed = providers.change(&provider(), &change, &command()).await;
            changed.expect("changed")
        };
        let held_at = async |seconds| hold(store, whose, &sold, 1, at(seconds)).await;
        held_at(1).await.expect("held before");

        let row = change(quarantined(Some(until(2, 60)))).await;
        assert_eq!(row.quarantine_at(at(59)), Some(&until(2, 60)));
        assert_eq!(row.quarantine_at(at(60)), None);
        let refusal = held_at(59).await.expect_err("in quarantine");
        let said = refusal.to_string();
        assert!(
            said.contains("acme") && said.contains("without InfiniBand"),
            "{said}"
        );
        held_at(60).await.expect("it ended by itself");
        change(quarantined(Some(until(61, 120)))).await;
        held_at(62).await.expect_err("again");
        change(quarantined(None)).await;
        held_at(63).await.expect("it was ended");

        let switched = |enabled| ProviderChange {
            enabled: Some(enabled),
            ..ProviderChange::default()
        };
        change(switched(false)).await;
        let refusal = held_at(64).await;
        let disabled = matches!(
            refusal,
            Err(StoreError::Conflict(Conflict::ProviderDisabled { .. }))
        );
        assert!(disabled, "{refusal:?}");
        change(switched(true)).await;
        held_at(65).await.expect("it is sold again");
        assert_eq!(count_rows(store, "holds").await, 4);
    })
    .await;
}

/// Disables the provider and forgets its credential, in one change.
fn parting() -> ProviderChange {
    ProviderChange {
        enabled: Some(false),
        ..with(None)
    }
}

async fn part(store: &Store) -> Result<Provider, StoreError> {
    let providers = store.providers();
    providers.change(&provider(), &parting(), &command()).await
}

#[track_caller]
fn assert_in_use(parted: &Result<Provider, StoreError>) {
    let in_use = matches!(parted, Err(StoreError::Conflict(Conflict::ProviderInUse)));
    assert!(in_use, "{parted:?}");
}

#[tokio::test]
async fn a_credential_is_forgotten_once_the_provider_is_disabled_and_nothing_is_held_there() {
    for_each_database(async |store| {
        let whose = tenant(store, "acme").await;
        let sold = offer("a", Availability::exactly(2));
        sell(store, std::slice::from_ref(&sold), at(0)).await;
        enter(store).await;
        let providers = store.providers();
        let enabled = providers.change(&provider(), &with(None), &command()).await;
        assert_in_use(&enabled);

        let held = hold(store, whose, &sold, 1, at(1)).await.expect("held");
        assert_in_use(&part(store).await);
        let claimed = claim(store, held.id, at(2)).await;
        let lapsed = Change {
            holds_released: true,
            ..Change::default()
        };
        let released = store.work().apply(&claimed.claim, &lapsed, at(3)).await;
        released.expect("released");
        let parted = part(store).await.expect("forgotten");
        assert_eq!((parted.enabled, parted.credential), (false, None));
    })
    .await;
}

#[tokio::test]
async fn what_was_held_is_ordered_at_a_disabled_provider_and_nothing_in_place_of_it() {
    for_each_database(async |store| {
        let whose = tenant(store, "acme").await;
        let sold = offer("a", Availability::exactly(9));
        sell(store, std::slice::from_ref(&sold), at(0)).await;
        let (reservation, lease) = provisioning(store, whose, &sold).await;
        let claimed = claim(store, reservation.id, at(5)).await;
        let apply = async |change: Change| {
            let change = Change {
                keep_claim: true,
                ..change
            };
            store.work().apply(&claimed.claim, &change, at(6)).await
        };
        let another = |replaces| NewLease {
            id: LeaseId::from_uuid(Uuid::now_v7()),
            line: 0,
            offer: sold.clone(),
            nodes: 1,
            node_base: 0,
            replaces,
        };
        let gone = LeaseUpdate {
            id: lease,
            from: LeaseState::Requested,
            to: LeaseState::Gone,
            facts: LeaseFacts::default(),
        };
        let fell = Change {
            lease_updates: vec![gone],
            ..Change::default()
        };
        apply(fell).await.expect("it fell");
        let held = hold(store, whose, &sold, 1, at(7)).await.expect("held");

        enter(store).await;
        let switched = |enabled| ProviderChange {
            enabled: Some(enabled),
            ..ProviderChange::default()
        };
        let switch = async |enabled| {
            let (providers, change) = (store.providers(), switched(enabled));
            let changed = providers.change(&provider(), &change, &command()).await;
            changed.expect("changed");
        };
        switch(false).await;
        let ordered = claim(store, held.id, at(8)).await;
        let order = Change {
            new_leases: vec![another(None)],
            holds_released: true,
            keep_claim: true,
            ..Change::default()
        };
        let saved = store.work().apply(&ordered.claim, &order, at(8)).await;
        saved.expect("it was held before");
        assert_in_use(&part(store).await);
        let gone = LeaseUpdate {
            id: order.new_leases[0].id,
            from: LeaseState::Requested,
            to: LeaseState::Gone,
            facts: LeaseFacts::default(),
        };
        let refused = Change {
            lease_updates: vec![gone],
            ..Change::default()
        };
        let saved = store.work().apply(&ordered.claim, &refused, at(9)).await;
        saved.expect("it was not sent");

        part(store).await.expect("nothing is open there");
        let stand_in = Change {
            new_leases: vec![another(Some(lease))],
            ..Change::default()
        };
        let closed = apply(stand_in.clone()).await;
        let disabled = matches!(
            closed,
            Err(StoreError::Conflict(Conflict::ProviderDisabled { .. }))
        );
        assert!(disabled, "{closed:?}");
        // One of the configuration has no credential in its row.
        switch(true).await;
        apply(stand_in).await.expect("ordered");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_is_never_forgotten_under_a_hold_that_is_placed_at_the_same_moment() {
    for_each_database(async |store| {
        let whose = tenant(store, "acme").await;
        let sold = offer("a", Availability::exactly(99));
        sell(store, std::slice::from_ref(&sold), at(0)).await;
        for round in 1..=24 {
            let change = ProviderChange {
                enabled: Some(true),
                ..with(Some(credential(round)))
            };
            let providers = store.providers();
            let opened = providers.change(&provider(), &change, &command()).await;
            opened.expect("opened");
            let quote = quote(store, whose.0, &sold, 1).await;
            let reservations = store.reservations().of(whose.0);
            let new = new_reservation(whose.1, &quote);
            let (held, parted) =
                tokio::join!(reservations.place_hold(new, at(1), None), part(store));
            assert!(
                held.is_err() || parted.is_err(),
                "held and forgotten in round {round}"
            );
            let Ok(held) = held else { continue };
            let claimed = claim(store, held.id, at(2)).await;
            let lapsed = Change {
                holds_released: true,
                ..Change::default()
            };
            let released = store.work().apply(&claimed.claim, &lapsed, at(3)).await;
            released.expect("released");
        }
    })
    .await;
}
