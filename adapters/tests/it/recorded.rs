//! Recordings for tests: those under `fixtures/`, and some that are made up for one test.

use std::path::PathBuf;

use adapters::Http;
use chrono::{DateTime, TimeZone, Utc};
use market::ids::LeaseId;
use market::machine::MachineRequest;
use market::offer::Offer;
use market::order::{ClientToken, LeaseOrder, LeaseRef, ProviderLeaseId};
use serde_json::{Value, json};

pub const SSH_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA somebody";

/// The time of everything here.
pub fn now() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 11, 21, 10, 0, 0)
        .single()
        .expect("a time")
}

/// The folder of a provider's recordings.
pub fn fixtures(provider: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(provider)
}

/// A recording under `fixtures/`.
pub fn recorded(provider: &str, what: &str) -> Http {
    Http::replay(fixtures(provider).join(what)).expect("a recording")
}

/// A recording of these calls: method, path, status, body (a string is sent as it is).
pub fn made_up(exchanges: &[(&str, &str, u16, Value)]) -> Http {
    let directory = tempfile::tempdir().expect("a directory");
    for (at, (method, path, status, body)) in exchanges.iter().enumerate() {
        let exchange = json!({"method": method, "path": path, "status": status, "body": body});
        std::fs::write(
            directory.path().join(format!("{at:03}.json")),
            exchange.to_string(),
        )
        .expect("a file");
    }
    Http::replay(directory.path()).expect("a recording")
}

/// An order of this offer under the mark that the recordings carry.
pub fn order(offer: &Offer, nodes: u32) -> LeaseOrder {
    LeaseOrder {
        client_token: ClientToken::of(LeaseId::from_uuid(uuid::Uuid::from_u128(7))),
        offer: offer.clone(),
        nodes,
        machine: MachineRequest::default(),
        ssh_public_keys: vec![SSH_KEY.to_owned()],
        startup_script: "#!/bin/sh\necho once-only-4711\n".to_owned(),
    }
}

/// The lease of [`order`], by the id that the recordings give it.
pub fn lease(id: &str) -> LeaseRef {
    LeaseRef {
        id: ProviderLeaseId(id.to_owned()),
        client_token: ClientToken::of(LeaseId::from_uuid(uuid::Uuid::from_u128(7))),
        region: None,
    }
}

/// Compares a reading with the golden one beside the recording.
pub fn assert_golden(provider: &str, reading: &market::catalog::CatalogReading) {
    let offers: Vec<_> = reading
        .offers
        .iter()
        .map(|offer| offer.view(1).expect("a price in range"))
        .collect();
    let shown =
        json!({"complete": reading.is_whole(), "offers": offers, "skipped": reading.skipped});
    insta::with_settings!({
        snapshot_path => fixtures(provider),
        prepend_module_to_snapshot => false,
        omit_expression => true,
    }, {
        insta::assert_json_snapshot!("offers", shown);
    });
}
