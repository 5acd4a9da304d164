//! The secrets of the configuration and of the database, each a canary.

use broker::platform::config::{Config, OidcConfig, SecretsConfig};
use broker::platform::secrets::{CannotOpen, SealingKey};
use secrecy::SecretString;
use store::audit::NewAuditEntry;
use store::fixture::TestDatabase;
use store::signing_keys::KeyPurpose;
use store::{Database, Store};

use super::{Canaries, Life, canary};

const SEALING: &str = "the sealing key";

/// A database whose address holds a password; `None` for the embedded one where no server is.
pub(super) async fn database(secrets: &mut Canaries) -> Option<Store> {
    let test = TestDatabase::postgres().await?;
    let Database::Url(url) = &test.database else {
        return None;
    };
    let mut url = reqwest::Url::parse(url).expect("an address");
    if url.password().is_none() {
        // A private server asks for none and bears with any.
        url.set_password(Some(&canary("database"))).expect("set");
    }
    let password = url.password().expect("it was set");
    secrets.add("the password of the database", password);
    let store = Store::connect(Database::Url(url.into())).await;
    Some(store.expect("the database opens"))
}

/// The changes to a configuration that plant a canary in every possible place, and the scraper's token.
pub(super) fn configuration(
    secrets: &mut Canaries,
    issuer: OidcConfig,
) -> (impl Fn(&mut Config) + Send + Sync + 'static, String) {
    let [sealing, redis, scraper, market] = [
        hex::encode(rand::random::<[u8; 32]>()),
        canary("redis"),
        canary("scraper"),
        canary("market"),
    ];
    secrets.add(SEALING, &*sealing);
    let bytes = hex::decode(&sealing).expect("digits");
    secrets.add("the sealing key itself", bytes);
    secrets.add("the password of Redis", &*redis);
    secrets.add("the token of a scraper", &*scraper);
    secrets.add("the credential of a simulated market", &*market);
    let token = scraper.clone();
    let configure = move |config: &mut Config| {
        let secret = |text: &str| Some(SecretString::from(text.to_owned()));
        config.rate_limits.enabled = false;
        config.sales.cooldown_seconds = 0;
        config.secrets.key = secret(&sealing);
        config.redis.url = secret(&format!("redis://me:{redis}@127.0.0.1:1"));
        config.server.metrics_token = secret(&token);
        config.simulation.credential = secret(&market);
        config.oidc = vec![issuer.clone()];
    };
    (configure, scraper)
}

/// The sealing key that was planted.
pub(super) fn sealing_key(secrets: &Canaries) -> SealingKey {
    let key = String::from_utf8(secrets.0[SEALING].clone()).expect("digits");
    let config = SecretsConfig {
        key: Some(SecretString::from(key)),
        key_file: None,
    };
    let key = SealingKey::configured(&config).expect("a key");
    key.expect("it is configured")
}

/// Notes the private halves of the service's own keys, which lie sealed.
pub(super) async fn note_signing_keys(life: &mut Life) {
    let sealing = sealing_key(&life.secrets);
    let store = life.service.world.broker().store();
    for (purpose, word) in [
        (KeyPurpose::Token, "token"),
        (KeyPurpose::Attestation, "attestation"),
    ] {
        let known = store.signing_keys().list(purpose).await.expect("keys");
        assert_eq!(known.len(), 2, "one and the one that followed it");
        for (key, which) in known.iter().zip(["first", "second"]) {
            let private = sealing.open(word, &key.sealed_private).expect("opens");
            life.secrets
                .add(&format!("the {which} {word} key"), private);
        }
    }
}

/// Seals all that lies sealed with another key, as `broker keys reseal` does.
pub(super) async fn reseal(life: &mut Life) {
    let old = sealing_key(&life.secrets);
    let next = hex::encode(rand::random::<[u8; 32]>());
    life.secrets.add("the next sealing key", &*next);
    let config = SecretsConfig {
        key: Some(SecretString::from(next)),
        key_file: None,
    };
    let new = SealingKey::configured(&config).expect("a key");
    let new = new.expect("it is configured");
    let broker = life.service.world.broker();
    let entry = NewAuditEntry::of_command(None, "keys reseal", None, broker.now());
    let anew = |purpose: &str, sealed: &[u8]| {
        let secret = old.open(purpose, sealed)?;
        Ok::<_, CannotOpen>(new.seal(purpose, &secret))
    };
    let sealed = broker.store().sealed().reseal(&anew, entry).await;
    // Two keys of each of two purposes, two secrets of three webhooks, and a provider's credential.
    assert!(sealed.expect("all of it opens") >= 11);
}
