//! The settings of one provider: its connection, and its record.

use market::provider_facts::{Certification, Operator, ProviderFacts, StorageOnRecord};
use secrecy::SecretString;
use serde::Deserialize;

/// One provider.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProviderConfig {
    /// Whether it is read and ordered from.
    pub enabled: bool,
    /// Its address, when it is not the documented one.
    pub base_url: Option<String>,
    /// The credential of our account there.
    pub credential: Option<SecretString>,
    /// The operator. Without one, no policy on operators admits the provider. Like its certifications it
    /// applies to offers of price lists too, and needs no `enabled`.
    pub operator: Option<Operator>,
    /// Certifications of which the evidence was seen; no other counts.
    pub certifications: Vec<Certification>,
    /// The storage speed that it promised for its machines, by contract or on its pages. A promised speed is
    /// measured when a node proves itself; without a promise nothing is measured.
    pub storage: Vec<StorageOnRecord>,
}

impl ProviderConfig {
    /// Its record.
    #[must_use]
    pub fn facts(&self) -> ProviderFacts {
        ProviderFacts {
            operator: self.operator.clone(),
            certifications: self.certifications.clone(),
            storage: self.storage.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use figment::Figment;
    use figment::providers::{Format as _, Serialized, Toml};
    use market::ids::ProviderId;

    use super::super::{Config, ConfigError, defaults};

    fn read(text: &str) -> Result<Config, String> {
        let figment = Figment::from(Serialized::defaults(defaults())).merge(Toml::string(text));
        let read = figment.extract::<Config>();
        read.map_err(|error| ConfigError::Unreadable(Box::new(error)).to_string())
    }

    #[test]
    fn facts_need_no_connection_and_what_cannot_be_read_is_named() {
        let facts = r#"
            [providers.nebius.operator]
            company = "Example B.V."
            country = "NL"
            [[providers.nebius.certifications]]
            name = "ISO 27001"
            evidence = "doc 7"
            valid_until = "2027-03-31"
        "#;
        let config = read(facts).expect("facts");
        let nebius = ProviderId::parse("nebius").expect("a provider");
        let known = config.facts_of(&nebius);
        assert_eq!(known.certifications[0].name.as_str(), "iso27001");
        assert!(!config.providers[&nebius].enabled);
        let nobody = config.facts_of(&ProviderId::parse("lambda").expect("a provider"));
        assert_eq!(nobody, Default::default());
        let told = read(&facts.replace("evidence = \"doc 7\"", "")).expect_err("missing");
        assert!(
            told.contains("certifications.0.evidence` is missing"),
            "{told}"
        );
        for (good, wrong, key) in [
            ("\"NL\"", "\"XX\"", "operator.country"),
            ("\"2027-03-31\"", "\"soon\"", "certifications.0.valid_until"),
            ("\"doc 7\"", "\"\"", "certifications.0.evidence"),
            ("\"ISO 27001\"", "\"--\"", "certifications.0.name"),
            (
                "[providers.nebius",
                "[providers.Nebius",
                "`providers.Nebius`",
            ),
            (
                "[[providers.nebius",
                "[[providers.\"neb ius\"",
                "`providers.neb ius`",
            ),
        ] {
            let told = read(&facts.replace(good, wrong)).expect_err("wrong");
            assert!(told.contains(key), "{key}: {told}");
        }
    }
}
