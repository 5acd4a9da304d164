//! The two things that only GraphQL has: the listing of prices and stock, and bids.
//!
//! An answer with status 200 may contain errors; they are always checked.

use market::catalog::Skipped;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{COUNTS, Cloud, MOST_DATA_CENTRES, MOST_TYPES};
use crate::error::{AdapterError, Refusal};
use crate::gate::{self, Rejection};
use crate::http::{Answer, Http, Purpose};

const PATH: &str = "/graphql";

/// Everything that is sold, in one answer.
pub(super) struct Listing {
    pub(super) gpu_types: Vec<Value>,
    pub(super) data_centres: Vec<Value>,
    /// The missing part of the answer, in words; `None` where it is complete.
    pub(super) missing: Option<Skipped>,
}

/// Reads prices and stock of all types in all data centres.
pub(super) async fn read_listing(http: &Http) -> Result<Listing, AdapterError> {
    let query = json!({ "query": listing_query() });
    let answer = http.post(Purpose::Read, PATH, &query).await?;
    let envelope: Envelope<Data> = answer.read(|answer| Refusal::from_status(answer.status()))?;
    let words = (!envelope.errors.is_empty()).then(|| envelope.words());
    let Some(data) = envelope.data else {
        return Err(answer.unreadable(format!("no data, but {}", envelope.words())));
    };
    let (types, centres) = (data.gpu_types.unwrap_or_default(), data.data_centers);
    gate::count("types", types.len(), MOST_TYPES).map_err(unbelieved)?;
    let listed = centres.as_ref().map_or(0, Vec::len);
    gate::count("data centres", listed, MOST_DATA_CENTRES).map_err(unbelieved)?;
    let missing = match words {
        Some(words) => Some(Rejection::of_part("a part of the answer", words)),
        None if listed == 0 => {
            let why = "the answer lists none";
            Some(Rejection::of_part("the list of data centres", why))
        }
        None => None,
    };
    Ok(Listing {
        missing,
        gpu_types: types,
        data_centres: centres.unwrap_or_default(),
    })
}

/// One query for everything. Each count gets a name of its own, because stock and bids differ by count, and a
/// query can repeat a field only under different names.
fn listing_query() -> String {
    let mut types = String::new();
    let mut centres = String::new();
    for count in COUNTS {
        for cloud in Cloud::ALL {
            types.push_str(&format!(
                " {}{count}: lowestPrice(input: {{gpuCount: {count}, secureCloud: {}}}) \
                 {{ minimumBidPrice stockStatus }}",
                cloud.prefix(),
                cloud == Cloud::Secure,
            ));
        }
        centres.push_str(&format!(
            " gpus{count}: gpuAvailability(input: {{gpuCount: {count}, secureCloud: true}}) \
             {{ gpuTypeId stockStatus available }}"
        ));
    }
    format!(
        "query Listing {{ gpuTypes {{ id displayName memoryInGb secureCloud communityCloud \
         securePrice communityPrice maxGpuCount maxGpuCountSecureCloud \
         maxGpuCountCommunityCloud{types} }} dataCenters {{ id listed{centres} }} }}"
    )
}

/// The error for a listing that is implausibly large.
pub(super) fn unbelieved(why: Rejection) -> AdapterError {
    why.of_listing("POST", PATH)
}

/// Bids for a pod that may be taken back.
///
/// Errors: a refusal that is known to be one; any other answer without a pod leaves the outcome unknown.
pub(super) async fn bid(http: &Http, input: Value) -> Result<(Answer, BidPod), AdapterError> {
    let mutation = json!({
        "query": "mutation Bid($input: PodRentInterruptableInput!) { \
                  podRentInterruptable(input: $input) { id name desiredStatus gpuCount costPerHr } }",
        "variables": { "input": input },
    });
    let answer = http.post(Purpose::Order, PATH, &mutation).await?;
    let envelope: Envelope<Bid> = answer.read(|answer| Refusal::from_status(answer.status()))?;
    match envelope.data.and_then(|data| data.pod_rent_interruptable) {
        Some(pod) => Ok((answer, pod)),
        None => Err(refused(&answer, &envelope.errors)),
    }
}

/// The meaning of errors in place of a pod. Only errors that are known to come before any pod are refusals.
fn refused(answer: &Answer, errors: &[Problem]) -> AdapterError {
    let refusal = errors.iter().find_map(Problem::refusal);
    let words = words_of(errors);
    match refusal {
        Some(refusal) => AdapterError::Refused {
            refusal,
            status: answer.status(),
            message: answer.without_secrets(&words),
        },
        None => answer.unreadable(format!("no pod, but {words}")),
    }
}

/// The first error, without the value that it may quote: our values contain a script.
fn words_of(errors: &[Problem]) -> String {
    let Some(first) = errors.first() else {
        return "no error either".to_owned();
    };
    let words = first.message.split("invalid value").next();
    gate::shown(words.unwrap_or_default())
}

#[derive(Debug, Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Envelope<T> {
    data: Option<T>,
    #[serde(default)]
    errors: Vec<Problem>,
}

impl<T> Envelope<T> {
    fn words(&self) -> String {
        words_of(&self.errors)
    }
}

#[derive(Debug, Deserialize)]
struct Problem {
    #[serde(default)]
    message: String,
    #[serde(default)]
    extensions: Value,
}

impl Problem {
    fn refusal(&self) -> Option<Refusal> {
        let message = self.message.to_lowercase();
        let code = self.extensions["code"].as_str().unwrap_or_default();
        if let Some(refusal) = super::lease::refusal_in_words(&message) {
            return Some(refusal);
        }
        match code {
            "UNAUTHENTICATED" | "FORBIDDEN" => Some(Refusal::Credential),
            // The query was not even started.
            "BAD_USER_INPUT" | "GRAPHQL_VALIDATION_FAILED" | "GRAPHQL_PARSE_FAILED" => {
                Some(Refusal::Request)
            }
            _ => None,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    gpu_types: Option<Vec<Value>>,
    data_centers: Option<Vec<Value>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bid {
    pod_rent_interruptable: Option<BidPod>,
}

/// A pod in the answer to a bid.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BidPod {
    pub(super) id: String,
    pub(super) name: Option<String>,
    pub(super) desired_status: Option<String>,
    pub(super) gpu_count: Option<u32>,
    /// US dollars an hour for the whole pod.
    #[serde(default)]
    pub(super) cost_per_hr: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_asks_for_each_count_under_a_name_of_its_own() {
        let query = listing_query();
        for part in [
            "secure8: lowestPrice(input: {gpuCount: 8, secureCloud: true})",
            "community1: lowestPrice(input: {gpuCount: 1, secureCloud: false})",
            "gpus4: gpuAvailability(input: {gpuCount: 4, secureCloud: true})",
        ] {
            assert!(query.contains(part), "{query}");
        }
        assert_eq!(query.matches('{').count(), query.matches('}').count());
    }

    #[test]
    fn an_error_is_told_without_the_value_that_it_quotes() {
        let quoting = json!({"message": "Variable \"$input\" got invalid value \"token\" at env"});
        let words = words_of(&[Problem::deserialize(quoting).expect("an error")]);
        assert_eq!(words, "Variable \"$input\" got ");
        assert_eq!(words_of(&[]), "no error either");
    }

    #[test]
    fn only_known_errors_are_certain_refusals() {
        let refusal = |message: &str, code: &str| {
            let problem = json!({"message": message, "extensions": {"code": code}});
            Problem::deserialize(problem).expect("an error").refusal()
        };
        let sold_out = "There are no longer any instances available with the requested specifications. Please refresh and try again.";
        assert_eq!(refusal(sold_out, "RUNPOD"), Some(Refusal::Capacity));
        assert_eq!(
            refusal("Field missing", "BAD_USER_INPUT"),
            Some(Refusal::Request)
        );
        assert_eq!(refusal("", "UNAUTHENTICATED"), Some(Refusal::Credential));
        assert_eq!(
            refusal("Something went wrong", "INTERNAL_SERVER_ERROR"),
            None
        );
        assert_eq!(refusal("Something went wrong", "RUNPOD"), None);
    }
}
