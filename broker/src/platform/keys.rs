//! The service's own signing keys: one for tokens, one for attestations, and those before them.
//!
//! All are Ed25519 and live sealed in the database. Each is named by the thumbprint of its public half (RFC
//! 7638), so that a verifier can tell which key signed. The oldest key that is not retired signs. A retired
//! token key verifies until the last token signed with it has lapsed; a retired attestation key is published
//! for good, because attestations are.
//!
//! Replicas learn of a rotation by reading the database again: within a minute, and at once when a
//! token names a key that they do not know.

mod pair;

use std::sync::{Arc, PoisonError, RwLock};

use chrono::{DateTime, TimeDelta, Utc};
use rand::RngCore as _;
use store::Store;
use store::audit::NewAuditEntry;
use store::signing_keys::{KeyPurpose, SigningKey as SealedKey};
use tokio::sync::Mutex;
use tracing::{error, info};

pub use pair::KeyPair;

use crate::platform::secrets::{CannotOpen, SealingKey};

/// How long a token lives.
pub const TOKEN_LIFETIME: TimeDelta = TimeDelta::minutes(15);
/// How old the keys in memory may be.
const READ_EVERY: TimeDelta = TimeDelta::seconds(60);
/// How often an unknown key may have them read again.
const READ_AGAIN: TimeDelta = TimeDelta::seconds(5);
/// How far two clocks may differ.
const LEEWAY: TimeDelta = TimeDelta::seconds(30);

/// Why the signing keys are not available.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The database did not answer.
    #[error("the signing keys cannot be read from the database")]
    Store(#[from] store::StoreError),
    /// They were sealed with another key.
    #[error(
        "a signing key cannot be opened; give the sealing key that this database was made with"
    )]
    Sealed(#[from] CannotOpen),
    /// The sealed bytes are no Ed25519 key.
    #[error("a signing key in the database is damaged")]
    Damaged,
}

/// A key pair and until when it signed.
#[derive(Debug, Clone)]
struct KnownKey {
    pair: Arc<KeyPair>,
    retired_at: Option<DateTime<Utc>>,
}

impl KnownKey {
    /// Whether a token that it signed may still be good: other replicas sign on with it until they
    /// have read of its retirement.
    fn verifies(&self, now: DateTime<Utc>) -> bool {
        let lapse = READ_EVERY + TOKEN_LIFETIME + LEEWAY;
        self.retired_at.is_none_or(|end| now < end + lapse)
    }
}

/// The keys as the database had them.
#[derive(Debug)]
struct KeySet {
    /// Oldest first, never empty.
    token: Vec<KnownKey>,
    attestation: Vec<KnownKey>,
}

impl KeySet {
    async fn read(store: &Store, sealing: &SealingKey) -> Result<Self, KeyError> {
        let read = async |purpose| match read_keys(store, sealing, purpose).await {
            Ok(keys) if keys.is_empty() => Err(KeyError::Damaged),
            read => read,
        };
        Ok(Self {
            token: read(KeyPurpose::Token).await?,
            attestation: read(KeyPurpose::Attestation).await?,
        })
    }

    /// The key that signs. There always is one: a key is retired by the one that follows it.
    fn signing(keys: &[KnownKey]) -> &Arc<KeyPair> {
        let active = keys.iter().find(|key| key.retired_at.is_none());
        &active.unwrap_or(&keys[0]).pair
    }
}

/// The service's own signing keys. A handle: clones share everything.
#[derive(Clone)]
pub struct Keys(Arc<Shared>);

struct Shared {
    store: Store,
    sealing: Arc<SealingKey>,
    set: RwLock<Arc<KeySet>>,
    tried_at: Mutex<DateTime<Utc>>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Keys").field(&self.set()).finish()
    }
}

impl Keys {
    /// Reads the keys, making those that the database has not yet.
    ///
    /// Errors: [`KeyError`].
    pub async fn load(
        store: &Store,
        sealing: Arc<SealingKey>,
        now: DateTime<Utc>,
    ) -> Result<Self, KeyError> {
        for purpose in [KeyPurpose::Token, KeyPurpose::Attestation] {
            let known = store.signing_keys().list(purpose).await?;
            if known.iter().all(|key| key.retired_at.is_some()) {
                // Two replicas may both make one: the older is the one that both sign with.
                let (made, _) = make(&sealing, purpose, now);
                store.signing_keys().insert(made).await?;
            }
        }
        let set = KeySet::read(store, &sealing).await?;
        Ok(Self(Arc::new(Shared {
            store: store.clone(),
            sealing,
            set: RwLock::new(Arc::new(set)),
            tried_at: Mutex::new(now),
        })))
    }

    fn set(&self) -> Arc<KeySet> {
        Arc::clone(&self.0.set.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The key under which secrets lie in the database.
    pub(crate) fn sealing(&self) -> &SealingKey {
        &self.0.sealing
    }

    /// The key that signs tokens.
    #[must_use]
    pub fn token(&self) -> Arc<KeyPair> {
        Arc::clone(KeySet::signing(&self.set().token))
    }

    /// The key that countersigns attestations.
    #[must_use]
    pub fn attestation(&self) -> Arc<KeyPair> {
        Arc::clone(KeySet::signing(&self.set().attestation))
    }

    /// A secret that all replicas share and that no rotation changes.
    pub(crate) fn shared_secret(&self, context: &str) -> [u8; 32] {
        blake3::derive_key(context, &self.set().token[0].pair.signing().to_bytes())
    }

    /// The key of this name with which tokens may have been signed; an unknown one is searched for in the
    /// database.
    pub(crate) async fn token_key(&self, kid: &str, now: DateTime<Utc>) -> Option<Arc<KeyPair>> {
        self.refresh(now).await;
        if let Some(key) = self.known_token_key(kid, now) {
            return Some(key);
        }
        self.read_again(now, READ_AGAIN).await;
        self.known_token_key(kid, now)
    }

    fn known_token_key(&self, kid: &str, now: DateTime<Utc>) -> Option<Arc<KeyPair>> {
        let set = self.set();
        let found = set.token.iter().find(|key| key.pair.kid() == kid)?;
        found.verifies(now).then(|| Arc::clone(&found.pair))
    }

    /// Reads the keys again when they are older than a minute.
    pub(crate) async fn refresh(&self, now: DateTime<Utc>) {
        self.read_again(now, READ_EVERY).await;
    }

    /// Reads the keys again unless that was tried within `pause`. A failed read changes nothing: the known
    /// keys stay in use.
    async fn read_again(&self, now: DateTime<Utc>, pause: TimeDelta) {
        let mut tried_at = self.0.tried_at.lock().await;
        if now - *tried_at < pause {
            return;
        }
        *tried_at = now;
        match KeySet::read(&self.0.store, &self.0.sealing).await {
            Ok(set) => {
                let mut current = self.0.set.write().unwrap_or_else(PoisonError::into_inner);
                if KeySet::signing(&set.token).kid() != KeySet::signing(&current.token).kid() {
                    info!("Another key signs tokens from now on");
                }
                *current = Arc::new(set);
            }
            Err(failure) => {
                let causes = crate::chain(&failure);
                error!(error = %causes, "The signing keys could not be read again: {causes}");
            }
        }
    }

    /// The public halves as a JSON Web Key Set (RFC 7517, RFC 8037): all with which something may
    /// still have to be verified.
    #[must_use]
    pub fn jwks(&self, now: DateTime<Utc>) -> serde_json::Value {
        let show = |key: &KnownKey, purpose: &str| {
            serde_json::json!({
                "kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "use": "sig",
                "kid": key.pair.kid(), "x": key.pair.public_text(), "purpose": purpose,
            })
        };
        let set = self.set();
        let tokens = set.token.iter().filter(|key| key.verifies(now));
        let keys: Vec<_> = tokens
            .map(|key| show(key, "token"))
            .chain(set.attestation.iter().map(|key| show(key, "attestation")))
            .collect();
        serde_json::json!({ "keys": keys })
    }
}

/// Makes a key that signs for a purpose from now on, retires the one before, and gives its name.
///
/// Errors: [`KeyError::Store`]; [`KeyError::Sealed`] when `sealing` is not the key of this
/// database.
pub async fn rotate(
    store: &Store,
    sealing: &SealingKey,
    purpose: KeyPurpose,
    now: DateTime<Utc>,
) -> Result<String, KeyError> {
    // A key sealed with the wrong key would leave the service with none that signs.
    read_keys(store, sealing, purpose).await?;
    let (made, kid) = make(sealing, purpose, now);
    let entry = NewAuditEntry::of_command(None, "keys rotate", Some(kid.clone()), now);
    store.signing_keys().rotate(made, now, entry).await?;
    Ok(kid)
}

fn make(sealing: &SealingKey, purpose: KeyPurpose, now: DateTime<Utc>) -> (SealedKey, String) {
    let mut seed = [0; 32];
    rand::rng().fill_bytes(&mut seed);
    let pair = KeyPair::from_seed(seed);
    let made = SealedKey {
        kid: pair.kid().to_owned(),
        purpose,
        sealed_private: sealing.seal(purpose_word(purpose), &seed),
        public: pair.signing().verifying_key().as_bytes().to_vec(),
        created_at: now,
        retired_at: None,
    };
    (made, pair.kid().to_owned())
}

async fn read_keys(
    store: &Store,
    sealing: &SealingKey,
    purpose: KeyPurpose,
) -> Result<Vec<KnownKey>, KeyError> {
    let rows = store.signing_keys().list(purpose).await?;
    rows.into_iter()
        .map(|row| {
            let seed = sealing.open(purpose_word(purpose), &row.sealed_private)?;
            let pair = KeyPair::from_seed(seed.try_into().map_err(|_| KeyError::Damaged)?);
            Ok(KnownKey {
                pair: Arc::new(pair),
                retired_at: row.retired_at,
            })
        })
        .collect()
}

/// The word under which a key is sealed, so that one kind cannot be opened as the other. It is the
/// word in the column beside it.
const fn purpose_word(purpose: KeyPurpose) -> &'static str {
    match purpose {
        KeyPurpose::Token => "token",
        KeyPurpose::Attestation => "attestation",
    }
}
