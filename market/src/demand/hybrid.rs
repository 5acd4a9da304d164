//! The two halves of a hybrid demand, each as a demand of its own.
//!
//! The fields of the whole apply to both halves, and a half may only narrow them. Of least sizes the larger
//! one applies, and of ceilings the lower one. Of places, kinds of machine and laws of operators those apply
//! that both allow; of providers those that neither denies. All certifications apply, and of verification
//! levels the stricter one. A half keeps its own window; the end of the whole ends the fleet.

use super::check::DemandFault;
use super::{
    Ceiling, Demand, HybridDemand, Places, Policy, ServeHalf, Shared, TrainDemand, Window,
};
use crate::offer::Tenancy;
use crate::tags::Tags;
use crate::verification::Level;

/// One half of a hybrid demand.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Half {
    /// The training run.
    Train,
    /// The serving fleet.
    Serve,
}

impl Half {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Serve => "serve",
        }
    }
}

impl std::fmt::Display for Half {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The shared fields of a half, narrowed by those of the whole.
struct Narrowed {
    gpu_memory_gib: Option<u32>,
    host_memory_gib: Option<u32>,
    vcpus: Option<u32>,
    ceiling: Option<Ceiling>,
    places: Option<Places>,
    tenancy: Option<Vec<Tenancy>>,
    policy: Option<Policy>,
    verification: Option<Level>,
    tags: Tags,
}

impl HybridDemand {
    /// The training run as a demand of its own.
    #[must_use]
    pub fn train_half(&self) -> TrainDemand {
        let own = &self.train;
        let narrowed = Narrowed::of(self.shared(), own.shared());
        TrainDemand {
            gpu_memory_gib: narrowed.gpu_memory_gib,
            host_memory_gib: narrowed.host_memory_gib,
            vcpus: narrowed.vcpus,
            window: own.window.clone().or_else(|| self.window.clone()),
            ceiling: narrowed.ceiling,
            places: narrowed.places,
            tenancy: narrowed.tenancy,
            policy: narrowed.policy,
            verification: narrowed.verification,
            tags: narrowed.tags,
            ..own.clone()
        }
    }

    /// The fleet as a demand of its own.
    #[must_use]
    pub fn serve_half(&self) -> ServeHalf {
        let narrowed = Narrowed::of(self.shared(), self.serve.shared());
        let window = ends_with(self.serve.shared().window, self.window.as_ref());
        macro_rules! half {
            ($own:expr) => {{
                let mut half = $own.clone();
                half.gpu_memory_gib = narrowed.gpu_memory_gib;
                half.host_memory_gib = narrowed.host_memory_gib;
                half.vcpus = narrowed.vcpus;
                half.window = window;
                half.ceiling = narrowed.ceiling;
                half.places = narrowed.places;
                half.tenancy = narrowed.tenancy;
                half.policy = narrowed.policy;
                half.verification = narrowed.verification;
                half.tags = narrowed.tags;
                half
            }};
        }
        match &self.serve {
            ServeHalf::ServeRealtime(own) => ServeHalf::ServeRealtime(half!(own)),
            ServeHalf::ServeBatch(own) => ServeHalf::ServeBatch(half!(own)),
        }
    }

    /// One half as a demand of its own.
    #[must_use]
    pub fn half(&self, half: Half) -> Demand {
        match half {
            Half::Train => Demand::Train(self.train_half()),
            Half::Serve => self.serve_half().into(),
        }
    }

    /// The fields in which the whole leaves nothing for a half.
    pub(super) fn contradictions(&self) -> Vec<DemandFault> {
        let mut faults = Vec::new();
        if self
            .window
            .as_ref()
            .is_some_and(|window| window.duration_hours.is_some())
        {
            faults.push(DemandFault {
                field: "window.duration_hours".to_owned(),
                detail: "is of one half: give it in `train.window` or `serve.window`".to_owned(),
            });
        }
        for (half, own) in [
            (Half::Train, self.train.shared()),
            (Half::Serve, self.serve.shared()),
        ] {
            let narrowed = Narrowed::of(self.shared(), own);
            let mut nothing_left = |field: &str| {
                faults.push(DemandFault {
                    field: format!("{half}.{field}"),
                    detail: format!("names nothing that `{field}` of the whole allows"),
                });
            };
            let given = |places: Option<&Places>| places.cloned().unwrap_or_default();
            let (left, said) = (given(narrowed.places.as_ref()), given(own.places));
            if (left.countries.is_empty() && !said.countries.is_empty())
                || (left.regions.is_empty() && !said.regions.is_empty())
            {
                nothing_left("places");
            }
            if narrowed.tenancy.is_some_and(|kinds| kinds.is_empty())
                && own.tenancy.is_some_and(|kinds| !kinds.is_empty())
            {
                nothing_left("tenancy");
            }
            let policy = |policy: Option<&Policy>| policy.cloned().unwrap_or_default();
            let (left, said) = (policy(narrowed.policy.as_ref()), policy(own.policy));
            if left.allow_providers.is_empty() && !said.allow_providers.is_empty() {
                nothing_left("policy.allow_providers");
            }
            if left.operator_countries.is_empty() && !said.operator_countries.is_empty() {
                nothing_left("policy.operator_countries");
            }
            let whole_allows = self
                .policy
                .as_ref()
                .and_then(|policy| policy.allow_ethernet);
            if (whole_allows, said.allow_ethernet) == (Some(false), Some(true)) {
                nothing_left("policy.allow_ethernet");
            }
            if let (Half::Train, Some(_), Some(_)) = (half, self.train.fabric, whole_allows) {
                faults.push(DemandFault {
                    field: "policy.allow_ethernet".to_owned(),
                    detail: "is the older word for `train.fabric`; leave it out".to_owned(),
                });
            }
        }
        faults
    }
}

impl ServeHalf {
    /// The fields that every kind has.
    #[must_use]
    pub fn shared(&self) -> Shared<'_> {
        match self {
            Self::ServeRealtime(demand) => demand.shared(),
            Self::ServeBatch(demand) => demand.shared(),
        }
    }
}

impl From<ServeHalf> for Demand {
    fn from(half: ServeHalf) -> Self {
        match half {
            ServeHalf::ServeRealtime(demand) => Self::ServeRealtime(demand),
            ServeHalf::ServeBatch(demand) => Self::ServeBatch(demand),
        }
    }
}

impl Narrowed {
    fn of(whole: Shared<'_>, own: Shared<'_>) -> Self {
        let mut tags = whole.tags.clone();
        tags.extend(own.tags.clone());
        Self {
            gpu_memory_gib: whole.gpu_memory_gib.max(own.gpu_memory_gib),
            host_memory_gib: whole.host_memory_gib.max(own.host_memory_gib),
            vcpus: whole.vcpus.max(own.vcpus),
            ceiling: both(whole.ceiling, own.ceiling, |whole, own| Ceiling {
                usd_per_gpu_hour: lower(whole.usd_per_gpu_hour, own.usd_per_gpu_hour),
                usd_per_hour: lower(whole.usd_per_hour, own.usd_per_hour),
            }),
            places: both(whole.places, own.places, |whole, own| Places {
                countries: allowed_by_both(&whole.countries, &own.countries, PartialEq::eq),
                regions: allowed_by_both(&whole.regions, &own.regions, |a, b| {
                    a.eq_ignore_ascii_case(b)
                }),
            }),
            tenancy: match (whole.tenancy, own.tenancy) {
                (Some(whole), Some(own)) => Some(allowed_by_both(whole, own, PartialEq::eq)),
                (whole, own) => own.or(whole).map(<[_]>::to_vec),
            },
            policy: both(whole.policy, own.policy, policy_of_both),
            verification: whole.verification.max(own.verification),
            tags,
        }
    }
}

fn policy_of_both(whole: &Policy, own: &Policy) -> Policy {
    let mut deny_providers = whole.deny_providers.clone();
    deny_providers.extend(own.deny_providers.iter().cloned());
    let mut certifications = whole.certifications.clone();
    certifications.extend(own.certifications.iter().cloned());
    Policy {
        deny_providers,
        allow_providers: allowed_by_both(
            &whole.allow_providers,
            &own.allow_providers,
            PartialEq::eq,
        ),
        operator_countries: allowed_by_both(
            &whole.operator_countries,
            &own.operator_countries,
            PartialEq::eq,
        ),
        certifications,
        // It permits something, so it applies where either sets it.
        allow_ethernet: match whole.allow_ethernet {
            Some(false) => Some(false),
            whole => own.allow_ethernet.or(whole),
        },
        on_unreachable: own.on_unreachable.or(whole.on_unreachable),
    }
}

fn both<T: Clone>(whole: Option<&T>, own: Option<&T>, merge: impl Fn(&T, &T) -> T) -> Option<T> {
    match (whole, own) {
        (Some(whole), Some(own)) => Some(merge(whole, own)),
        (whole, own) => own.or(whole).cloned(),
    }
}

fn lower<T: Ord>(whole: Option<T>, own: Option<T>) -> Option<T> {
    whole.into_iter().chain(own).min()
}

/// The items that both lists allow, where an empty one allows everything.
fn allowed_by_both<T: Clone>(whole: &[T], own: &[T], same: impl Fn(&T, &T) -> bool) -> Vec<T> {
    if whole.is_empty() {
        return own.to_vec();
    }
    if own.is_empty() {
        return whole.to_vec();
    }
    let allowed = own
        .iter()
        .filter(|own| whole.iter().any(|whole| same(whole, own)));
    allowed.cloned().collect()
}

/// The window of the fleet: its own, and where that is open at the end, the end of the whole.
fn ends_with(own: Option<&Window>, whole: Option<&Window>) -> Option<Window> {
    let end = whole.and_then(|whole| whole.end);
    match own {
        Some(own) if own.duration_hours.is_some() || own.end.is_some() => Some(own.clone()),
        own => {
            let window = own.cloned().unwrap_or_default();
            let window = Window { end, ..window };
            (window != Window::default()).then_some(window)
        }
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};
    use serde_json::{Value, json};

    use super::*;

    fn now() -> DateTime<Utc> {
        "2026-03-01T12:00:00Z".parse().expect("a time")
    }

    fn hybrid(whole: Value, train: Value, serve: Value) -> HybridDemand {
        let with = |mut body: Value, fields: Value| {
            let fields = fields.as_object().expect("an object").clone();
            body.as_object_mut().expect("an object").extend(fields);
            body
        };
        let train = with(json!({"model": "Llama 3 8B", "tokens": 1000}), train);
        let serve = with(
            json!({
                "kind": "serve_batch", "model": "Llama 3 8B", "requests": 9, "input_tokens": 9,
                "output_tokens": 9,
            }),
            serve,
        );
        let body = with(json!({"train": train, "serve": serve}), whole);
        serde_json::from_value(body).expect("a demand")
    }

    fn fields_at_fault(demand: HybridDemand) -> Vec<String> {
        let faults = Demand::Hybrid(Box::new(demand)).check(now());
        let faults = faults.err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.field).collect()
    }

    #[test]
    fn what_the_whole_says_holds_for_both_halves() {
        let demand = hybrid(
            json!({
                "places": {"countries": ["DE", "FR"]},
                "ceiling": {"usd_per_gpu_hour": "3.00", "usd_per_hour": "500"},
                "policy": {
                    "deny_providers": ["lambda"], "operator_countries": ["DE", "FR"],
                    "certifications": ["ISO 27001"],
                },
                "tags": {"team": "a", "stage": "x"}, "verification": "standard",
                "gpu_memory_gib": 40, "vcpus": 64,
                "window": {"end": "2026-06-01T00:00:00Z"},
            }),
            json!({
                "ceiling": {"usd_per_gpu_hour": "4.00", "usd_per_hour": "400"},
                "policy": {
                    "deny_providers": ["runpod"], "allow_ethernet": true, "operator_countries": ["FR"],
                    "certifications": ["c5"],
                },
                "tags": {"stage": "train"}, "verification": "quick",
                "gpu_memory_gib": 80, "vcpus": 32, "host_memory_gib": 512,
            }),
            json!({
                "places": {"countries": ["FR", "US"]}, "tenancy": ["vm"], "verification": "deep",
            }),
        );
        assert_eq!(fields_at_fault(demand.clone()), Vec::<String>::new());
        let train = serde_json::to_value(demand.half(Half::Train)).expect("json");
        assert_eq!(train["kind"], "train");
        assert_eq!(train["places"]["countries"], json!(["DE", "FR"]));
        assert_eq!(
            train["ceiling"],
            json!({"usd_per_gpu_hour": "3.00", "usd_per_hour": "400.00"})
        );
        assert_eq!(
            train["policy"],
            json!({
                "deny_providers": ["lambda", "runpod"], "allow_ethernet": true,
                "operator_countries": ["FR"], "certifications": ["iso27001", "c5"],
            })
        );
        assert_eq!(train["tags"], json!({"team": "a", "stage": "train"}));
        let sizes = |half: &Value| {
            let names = ["gpu_memory_gib", "vcpus", "host_memory_gib"];
            names.map(|name| half[name].as_u64())
        };
        assert_eq!(sizes(&train), [Some(80), Some(64), Some(512)]);
        assert_eq!(train["window"]["end"], "2026-06-01T00:00:00Z");
        assert_eq!(
            train["verification"], "standard",
            "no less than the whole says"
        );
        let serve = serde_json::to_value(demand.half(Half::Serve)).expect("json");
        assert_eq!(serve["kind"], "serve_batch");
        assert_eq!(sizes(&serve), [Some(40), Some(64), None]);
        assert_eq!(serve["places"]["countries"], json!(["FR"]));
        assert_eq!(serve["tenancy"], json!(["vm"]));
        assert_eq!(serve["verification"], "deep");
        assert_eq!(serve["policy"]["deny_providers"], json!(["lambda"]));
        assert_eq!(serve["window"], json!({"end": "2026-06-01T00:00:00Z"}));
    }

    #[test]
    fn a_half_that_allows_nothing_of_the_whole_is_a_fault() {
        let nowhere = hybrid(
            json!({
                "places": {"countries": ["DE"], "regions": ["eu-1"]}, "tenancy": ["bare_metal"],
                "policy": {
                    "allow_providers": ["lambda"], "operator_countries": ["DE"],
                    "allow_ethernet": false,
                },
            }),
            json!({
                "places": {"countries": ["US"]},
                "policy": {"operator_countries": ["US"], "allow_ethernet": true},
            }),
            json!({
                "places": {"regions": ["EU-1"]}, "tenancy": ["vm"],
                "policy": {"allow_providers": ["runpod"]},
            }),
        );
        assert_eq!(
            fields_at_fault(nowhere),
            [
                "train.places",
                "train.policy.operator_countries",
                "train.policy.allow_ethernet",
                "serve.tenancy",
                "serve.policy.allow_providers"
            ]
        );
    }

    #[test]
    fn how_long_and_how_late_is_said_by_each_half() {
        let of_the_whole = hybrid(
            json!({"window": {"duration_hours": 9}}),
            json!({}),
            json!({}),
        );
        assert_eq!(fields_at_fault(of_the_whole), ["window.duration_hours"]);
        let later =
            json!({"window": {"start_earliest": "2026-04-01T00:00:00Z", "duration_hours": 9}});
        let fleet_later = hybrid(json!({}), json!({}), later.clone());
        assert_eq!(fields_at_fault(fleet_later), Vec::<String>::new());
        let run_later = hybrid(json!({}), later, json!({}));
        assert_eq!(fields_at_fault(run_later), Vec::<String>::new());
    }
}
