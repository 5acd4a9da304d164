//! An issuer on this machine: its published configuration, its keys, and tokens signed with them.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use actix_web::dev::ServerHandle;
use actix_web::{App, HttpResponse, HttpServer, web};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use broker::platform::config::{OidcAlgorithm, OidcConfig};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use market::identity::Role;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use serde_json::{Value, json};

/// Made for these tests, published with them, and trusted by nothing else.
const RSA: &[u8] = include_bytes!("rsa_for_tests_alone.pem");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Rs256,
    Es256,
    EdDsa,
}

impl Kind {
    fn algorithm(self) -> Algorithm {
        match self {
            Self::Rs256 => Algorithm::RS256,
            Self::Es256 => Algorithm::ES256,
            Self::EdDsa => Algorithm::EdDSA,
        }
    }
}

/// A key pair of an issuer.
#[derive(Clone)]
pub(crate) struct Signer {
    kind: Kind,
    kid: Option<String>,
    key: EncodingKey,
}

impl Signer {
    pub(crate) fn new(kind: Kind, kid: &str) -> Self {
        let random = SystemRandom::new();
        let key = match kind {
            Kind::Rs256 => EncodingKey::from_rsa_pem(RSA).expect("a key"),
            Kind::Es256 => {
                let rules = &ECDSA_P256_SHA256_FIXED_SIGNING;
                let made = EcdsaKeyPair::generate_pkcs8(rules, &random).expect("a key");
                EncodingKey::from_ec_der(made.as_ref())
            }
            Kind::EdDsa => {
                let made = Ed25519KeyPair::generate_pkcs8(&random).expect("a key");
                // The form without the public half, which is its beginning but for the version.
                let mut plain = vec![
                    0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20,
                ];
                plain.extend_from_slice(&made.as_ref()[16..48]);
                EncodingKey::from_ed_der(&plain)
            }
        };
        Self {
            kind,
            kid: Some(kid.to_owned()),
            key,
        }
    }

    /// The same key under another name.
    pub(super) fn named(&self, kid: &str) -> Self {
        Self {
            kid: Some(kid.to_owned()),
            ..self.clone()
        }
    }

    pub(super) fn unnamed(&self) -> Self {
        Self {
            kid: None,
            ..self.clone()
        }
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = Header {
            kid: self.kid.clone(),
            ..Header::new(self.kind.algorithm())
        };
        jsonwebtoken::encode(&header, claims, &self.key).expect("signed")
    }

    /// Signs by HMAC, with the public part of the key as the password.
    pub(super) fn sign_with_public_half(&self, claims: &Value) -> String {
        let header = Header {
            kid: self.kid.clone(),
            ..Header::new(Algorithm::HS256)
        };
        let jwk = self.jwk();
        let public = jwk["n"].as_str().expect("a modulus");
        let password = URL_SAFE_NO_PAD.decode(public).expect("base64url");
        let password = EncodingKey::from_secret(&password);
        jsonwebtoken::encode(&header, claims, &password).expect("signed")
    }

    fn jwk(&self) -> Value {
        let jwk = Jwk::from_encoding_key(&self.key, self.kind.algorithm()).expect("a public half");
        let mut jwk = serde_json::to_value(jwk).expect("JSON");
        jwk["kid"] = json!(self.kid);
        jwk
    }
}

/// A token that claims to need no signature.
pub(super) fn unsigned(claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({ "alg": "none", "typ": "JWT", "kid": "ec" });
    format!("{}.{}.", part(&header), part(claims))
}

struct State {
    name: String,
    keys: Mutex<Vec<Value>>,
    reads: AtomicUsize,
    broken: AtomicBool,
}

/// A running issuer.
pub(crate) struct Issuer {
    state: Arc<State>,
    server: ServerHandle,
}

impl Drop for Issuer {
    fn drop(&mut self) {
        // The message is sent at once; the test need not wait for the end.
        drop(self.server.stop(false));
    }
}

impl Issuer {
    pub(crate) async fn start(signers: &[Signer]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let state = Arc::new(State {
            name: format!("http://{}", listener.local_addr().expect("an address")),
            keys: Mutex::default(),
            reads: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
        });
        let shared = web::Data::from(Arc::clone(&state));
        let server = HttpServer::new(move || {
            App::new()
                .app_data(shared.clone())
                .route(
                    "/.well-known/openid-configuration",
                    web::get().to(discovery),
                )
                .route("/keys", web::get().to(keys))
        })
        .workers(1)
        .disable_signals()
        .listen(listener)
        .expect("listens")
        .run();
        let handle = server.handle();
        tokio::spawn(server);
        let issuer = Self {
            state,
            server: handle,
        };
        issuer.put(signers);
        issuer
    }

    /// The issuer's name in its tokens.
    pub(crate) fn name(&self) -> &str {
        &self.state.name
    }

    /// Publishes these keys, and no others; beside them stand some that nobody can use.
    pub(super) fn put(&self, signers: &[Signer]) {
        let mut keys = vec![
            json!({ "kty": "oct", "kid": "ec", "k": "c2VjcmV0" }),
            json!({ "kty": "new", "kid": "unheard of" }),
        ];
        keys.extend(signers.iter().map(Signer::jwk));
        *self.state.keys.lock().expect("keys") = keys;
    }

    /// How often its keys were read.
    pub(super) fn reads(&self) -> usize {
        self.state.reads.load(Ordering::Relaxed)
    }

    pub(super) fn break_down(&self, broken: bool) {
        self.state.broken.store(broken, Ordering::Relaxed);
    }

    /// The settings that make a broker trust it.
    pub(crate) fn config(&self) -> OidcConfig {
        let word = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        OidcConfig {
            issuer: self.state.name.clone(),
            audience: "broker".to_owned(),
            jwks_url: None,
            tenant: None,
            tenant_claim: Some("org".to_owned()),
            tenant_map: BTreeMap::from([
                word("acme-corp", "acme"),
                word("other-corp", "nobody made this one"),
            ]),
            role_claim: "realm_access.roles".to_owned(),
            role_map: BTreeMap::from([
                ("gpu-user".to_owned(), Role::Member),
                ("gpu-seller".to_owned(), Role::Provider),
            ]),
            provider_claim: Some("seller".to_owned()),
            provider_map: BTreeMap::from([
                (
                    "lambda-labs".to_owned(),
                    "lambda".parse().expect("a provider"),
                ),
                (
                    "runpod-inc".to_owned(),
                    "runpod".parse().expect("a provider"),
                ),
            ]),
            may_administer: false,
            algorithms: vec![
                OidcAlgorithm::Rs256,
                OidcAlgorithm::Es256,
                OidcAlgorithm::EdDsa,
            ],
        }
    }
}

async fn discovery(state: web::Data<State>) -> HttpResponse {
    if state.broken.load(Ordering::Relaxed) {
        return HttpResponse::InternalServerError().finish();
    }
    let jwks_uri = format!("{}/keys", state.name);
    HttpResponse::Ok().json(json!({ "issuer": state.name, "jwks_uri": jwks_uri }))
}

async fn keys(state: web::Data<State>) -> HttpResponse {
    state.reads.fetch_add(1, Ordering::Relaxed);
    let keys = state.keys.lock().expect("keys").clone();
    HttpResponse::Ok().json(json!({ "keys": keys }))
}
