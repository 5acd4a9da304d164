//! The settings of outside issuers of tokens.

use std::collections::BTreeMap;

use market::identity::Role;
use market::ids::ProviderId;
use serde::Deserialize;

/// An outside issuer whose tokens are trusted, and the mapping of their bearers to principals here. Any word
/// that it does not map is refused.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OidcConfig {
    /// The issuer, exactly as its tokens name it.
    pub issuer: String,
    /// The audience that its tokens must name.
    pub audience: String,
    /// The URL of its public keys; by default the one in its published configuration.
    #[serde(default)]
    pub jwks_url: Option<String>,
    /// The one tenant that it speaks for; this, or `tenant_claim` and `tenant_map`.
    #[serde(default)]
    pub tenant: Option<String>,
    /// The claim that names the tenant.
    #[serde(default)]
    pub tenant_claim: Option<String>,
    /// Words of that claim, and the names of their tenants.
    #[serde(default)]
    pub tenant_map: BTreeMap<String, String>,
    /// The claim that names roles; one within objects is reached by dots.
    pub role_claim: String,
    /// Words of that claim, and their roles.
    pub role_map: BTreeMap<String, Role>,
    /// The claim that names the provider of those with the role `provider`.
    #[serde(default)]
    pub provider_claim: Option<String>,
    /// Words of that claim, and the ids of their providers.
    #[serde(default)]
    pub provider_map: BTreeMap<String, ProviderId>,
    /// Whether its `role_map` may make administrators of the whole service, who reach every tenant.
    #[serde(default)]
    pub may_administer: bool,
    /// Algorithms of its signatures; RS256, ES256 and EdDSA by default.
    #[serde(default = "OidcAlgorithm::all")]
    pub algorithms: Vec<OidcAlgorithm>,
}

/// An algorithm by which an issuer may sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum OidcAlgorithm {
    /// RSA with SHA-256.
    #[serde(rename = "RS256")]
    Rs256,
    /// ECDSA on P-256.
    #[serde(rename = "ES256")]
    Es256,
    /// Ed25519.
    #[serde(rename = "EdDSA")]
    EdDsa,
}

impl OidcAlgorithm {
    fn all() -> Vec<Self> {
        vec![Self::Rs256, Self::Es256, Self::EdDsa]
    }
}
