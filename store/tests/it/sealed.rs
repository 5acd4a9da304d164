use std::collections::BTreeSet;

use store::audit::NewAuditEntry;
use store::fixture::{columns, count_rows, for_each_database};
use store::sealed::{ResealError, SEALED};
use store::signing_keys::{KeyPurpose, SigningKey};

use crate::support::at;

fn key(kid: &str, purpose: KeyPurpose, seconds: i64) -> SigningKey {
    SigningKey {
        kid: kid.to_owned(),
        purpose,
        sealed_private: format!("old {kid}").into_bytes(),
        public: vec![1, 2],
        created_at: at(seconds),
        retired_at: None,
    }
}

fn command(operation: &str) -> NewAuditEntry {
    NewAuditEntry::of_command(None, operation, None, at(9))
}

#[tokio::test]
async fn no_column_that_holds_a_sealed_secret_is_forgotten() {
    for_each_database(async |store| {
        let in_schema: BTreeSet<_> = columns(store)
            .await
            .into_iter()
            .filter(|(_, column)| column.starts_with("sealed"))
            .collect();
        let listed = SEALED
            .iter()
            .map(|of| (of.table.to_owned(), of.column.to_owned()))
            .collect();
        assert_eq!(in_schema, listed, "add it to `store::sealed::SEALED`");
    })
    .await;
}

#[derive(Debug, thiserror::Error)]
#[error("no")]
struct No;

#[tokio::test]
async fn every_secret_is_sealed_anew_or_none() {
    for_each_database(async |store| {
        let keys = store.signing_keys();
        for made in [
            key("a", KeyPurpose::Token, 1),
            key("b", KeyPurpose::Attestation, 2),
        ] {
            keys.insert(made).await.expect("kept");
        }
        let secrets = async || {
            let mut all = keys.list(KeyPurpose::Token).await.expect("reads");
            all.extend(keys.list(KeyPurpose::Attestation).await.expect("reads"));
            let text = |key: SigningKey| String::from_utf8(key.sealed_private).expect("text");
            all.into_iter().map(text).collect::<Vec<_>>()
        };
        let refused = store
            .sealed()
            .reseal(
                &|purpose, _| match purpose {
                    "token" => Err(No),
                    _ => Ok(b"new".to_vec()),
                },
                command("keys reseal"),
            )
            .await;
        assert!(
            matches!(&refused, Err(ResealError::Secret { key, .. }) if key == "a"),
            "{refused:?}"
        );
        assert_eq!(secrets().await, ["old a", "old b"]);
        assert_eq!(count_rows(store, "audit_entries").await, 0);

        let anew = |purpose: &str, sealed: &[u8]| {
            let text = String::from_utf8_lossy(sealed).replace("old", purpose);
            Ok::<_, No>(text.into_bytes())
        };
        let count = store.sealed().reseal(&anew, command("keys reseal")).await;
        assert_eq!(count.expect("resealed"), 2);
        assert_eq!(secrets().await, ["token a", "attestation b"]);
        assert_eq!(count_rows(store, "audit_entries").await, 1);
    })
    .await;
}

#[tokio::test]
async fn a_signing_key_follows_another_in_one_step() {
    for_each_database(async |store| {
        let keys = store.signing_keys();
        keys.insert(key("a", KeyPurpose::Token, 1))
            .await
            .expect("kept");
        keys.insert(key("z", KeyPurpose::Attestation, 1))
            .await
            .expect("kept");
        for (kid, seconds) in [("b", 5), ("c", 7)] {
            let next = key(kid, KeyPurpose::Token, seconds);
            let done = keys.rotate(next, at(seconds), command("keys rotate")).await;
            done.expect("rotated");
        }
        let known = keys.list(KeyPurpose::Token).await.expect("reads");
        let lives: Vec<_> = known
            .iter()
            .map(|key| (key.kid.as_str(), key.retired_at))
            .collect();
        assert_eq!(lives, [("a", Some(at(5))), ("b", Some(at(7))), ("c", None)]);
        let other = keys.list(KeyPurpose::Attestation).await.expect("reads");
        assert_eq!(other[0].retired_at, None, "the other purpose is left alone");
        assert_eq!(count_rows(store, "audit_entries").await, 2);
    })
    .await;
}
