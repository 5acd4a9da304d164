//! Typed, prefixed ids. An id names one row of one kind and cannot stand for another.
//!
//! Ids of things that we make carry a UUID (version 7, made by the caller, who knows the time);
//! the id of an offer is a hash, so that it survives re-listing and repricing.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

/// Why a text is no id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not {what}; such an id looks like `{example}`")]
pub struct InvalidId {
    text: String,
    what: &'static str,
    example: &'static str,
}

macro_rules! string_schema {
    ($type:ty, $name:expr, $pattern:expr, $max:expr, $example:expr) => {
        impl utoipa::PartialSchema for $type {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::schema::Type::String)
                    .pattern(Some($pattern))
                    .max_length(Some($max))
                    .examples([serde_json::json!($example)])
                    .into()
            }
        }
        impl utoipa::ToSchema for $type {
            fn name() -> std::borrow::Cow<'static, str> {
                std::borrow::Cow::Borrowed($name)
            }
        }
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use string_schema;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $type:ident, $prefix:literal, $what:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $type(Uuid);

        impl $type {
            /// The prefix that every id of this kind begins with.
            pub const PREFIX: &'static str = $prefix;
            const EXAMPLE: &'static str = concat!($prefix, "019a3f0e1c7b7d40b2a1c3d4e5f60718");

            /// An id from a UUID, which the caller makes (version 7) from its own clock.
            #[must_use]
            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            /// The UUID behind the prefix.
            #[must_use]
            pub const fn uuid(self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{}"), self.0.simple())
            }
        }

        impl FromStr for $type {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                text.strip_prefix($prefix)
                    .filter(|rest| rest.len() == 32 && !rest.bytes().any(|b| b.is_ascii_uppercase()))
                    .and_then(|rest| Uuid::try_parse(rest).ok())
                    .map(Self)
                    .ok_or_else(|| InvalidId {
                        text: text.chars().take(80).collect(),
                        what: $what,
                        example: Self::EXAMPLE,
                    })
            }
        }

        string_schema!(
            $type,
            stringify!($type),
            concat!("^", $prefix, "[0-9a-f]{32}$"),
            36,
            $type::EXAMPLE
        );
    };
}

uuid_id!(
    /// A tenant: who buys.
    TenantId, "ten_", "a tenant id"
);
uuid_id!(
    /// A project within a tenant.
    ProjectId, "prj_", "a project id"
);
uuid_id!(
    /// An API key of a tenant.
    ApiKeyId, "key_", "an API key id"
);
uuid_id!(
    /// A principal: the person or service behind a credential. It outlives each of its keys.
    PrincipalId, "prn_", "a principal id"
);
uuid_id!(
    /// A public SSH key of a tenant.
    SshKeyId, "ssh_", "an SSH key id"
);
uuid_id!(
    /// A plan: the candidates found for a demand.
    PlanId, "pln_", "a plan id"
);
uuid_id!(
    /// A quote: a candidate's price, frozen until it lapses.
    QuoteId, "quo_", "a quote id"
);
uuid_id!(
    /// A reservation: the tenant's claim.
    ReservationId, "rsv_", "a reservation id"
);
uuid_id!(
    /// A lease: one thing at one provider that we run and pay for.
    LeaseId, "lse_", "a lease id"
);
uuid_id!(
    /// A verification of a lease: the conversation with its nodes.
    VerificationId, "ver_", "a verification id"
);
uuid_id!(
    /// A report of a tenant on a node that it has in use.
    NodeReportId, "nrp_", "a node report id"
);
uuid_id!(
    /// An attestation: the countersigned result for one node.
    AttestationId, "att_", "an attestation id"
);
uuid_id!(
    /// A usage record: a quantity over an interval.
    UsageId, "usg_", "a usage record id"
);
uuid_id!(
    /// A credit given to a tenant.
    CreditId, "crd_", "a credit id"
);
uuid_id!(
    /// A commitment: capacity that a tenant has paid for at a provider.
    CommitmentId, "cmt_", "a commitment id"
);
uuid_id!(
    /// A provider account: what a tenant agreed with a provider.
    ProviderAccountId, "pac_", "a provider account id"
);
uuid_id!(
    /// A budget: a cap on what a tenant or a project spends.
    BudgetId, "bud_", "a budget id"
);
uuid_id!(
    /// A transaction of the ledger.
    TransactionId, "txn_", "a ledger transaction id"
);
uuid_id!(
    /// An event: something that happened to a tenant's things.
    EventId, "evt_", "an event id"
);
uuid_id!(
    /// A webhook endpoint: where a tenant wants its events sent.
    WebhookEndpointId, "whe_", "a webhook endpoint id"
);
uuid_id!(
    /// A delivery: one event on its way to one webhook endpoint.
    WebhookDeliveryId, "whd_", "a webhook delivery id"
);

/// An offer: a hash of provider, SKU, place, terms and ordinal among equals.
///
/// It stays the same through stock-out, re-listing and repricing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OfferId([u8; 16]);

impl OfferId {
    const EXAMPLE: &'static str = "off_5f0c2b9d8e7a61432f1e0d9c8b7a6f5e";

    /// The id of the offer with this identity.
    ///
    /// `parts` are joined unambiguously (each with its length), so that no two identities
    /// collide by moving a character from one part to the next.
    #[must_use]
    pub fn of_identity(parts: &[&str]) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(b"offer-id-1");
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut id = [0; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Self(id)
    }

    /// The hash itself: evenly distributed for any set of offers.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for OfferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("off_")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for OfferId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let refuse = || InvalidId {
            text: text.chars().take(80).collect(),
            what: "an offer id",
            example: Self::EXAMPLE,
        };
        let digits = text
            .strip_prefix("off_")
            .filter(|d| d.len() == 32 && d.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')))
            .ok_or_else(refuse)?;
        let value = u128::from_str_radix(digits, 16).map_err(|_| refuse())?;
        Ok(Self(value.to_be_bytes()))
    }
}

string_schema!(
    OfferId,
    "OfferId",
    "^off_[0-9a-f]{32}$",
    36,
    OfferId::EXAMPLE
);

/// A provider: a short lower-case word such as `lambda` or `voltagepark`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProviderId(String);

impl ProviderId {
    const EXAMPLE: &'static str = "lambda";

    /// Reads a provider id: 1 to 40 of `a-z`, `0-9`, `-`, `_`, beginning with a letter or digit.
    ///
    /// Errors: [`InvalidId`] when the text is anything else.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let bytes = text.as_bytes();
        let word = |b: &u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        let begins_well = bytes.first().is_some_and(u8::is_ascii_alphanumeric);
        if bytes.len() <= 40 && begins_well && bytes.iter().all(word) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidId {
            text: text.chars().take(80).collect(),
            what: "a provider id",
            example: Self::EXAMPLE,
        })
    }

    /// The word itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ProviderId {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        Self::parse(text)
    }
}

string_schema!(
    ProviderId,
    "ProviderId",
    "^[a-z0-9][a-z0-9_-]{0,39}$",
    40,
    ProviderId::EXAMPLE
);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_id_reads_back_as_it_was_written(value in any::<u128>()) {
            let id = ReservationId::from_uuid(Uuid::from_u128(value));
            prop_assert_eq!(id.to_string().parse::<ReservationId>(), Ok(id));
        }

        #[test]
        fn any_text_is_an_id_or_a_clear_refusal(text in ".{0,60}") {
            if let Ok(id) = text.parse::<OfferId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }
    }

    #[test]
    fn an_id_of_one_kind_is_refused_as_another() {
        let lease = LeaseId::from_uuid(Uuid::from_u128(7)).to_string();
        let refusal = lease
            .parse::<ReservationId>()
            .expect_err("a lease is no reservation");
        assert!(refusal.to_string().contains("rsv_"), "{refusal}");
    }

    #[test]
    fn moving_a_letter_between_parts_makes_another_offer() {
        assert_ne!(
            OfferId::of_identity(&["ab", "c"]),
            OfferId::of_identity(&["a", "bc"])
        );
    }

    #[test]
    fn a_provider_id_is_a_short_lower_case_word() {
        assert!(ProviderId::parse("sparecores_2").is_ok());
        for bad in ["", "Lambda", "a b", "-x", "é", &"x".repeat(41)] {
            assert!(ProviderId::parse(bad).is_err(), "{bad}");
        }
    }
}
