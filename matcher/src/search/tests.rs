//! The search as a whole: its reasons, its ranks, and its naive twin.

mod calibration;
mod counts;
mod demands;
mod evidence;
mod extremes;
mod fleets;
mod gangs;
mod golden;
mod gpus;
mod launches;
mod longest;
mod moved_up;
mod own;
mod own_fleets;
mod reasons;
mod rests;
mod scaling;
mod scan;
mod sellers;
mod serve;
mod ties;
mod train;
mod twin;
mod waits;

use std::collections::BTreeMap;

use ::market::offer::Offer;
use serde_json::{Value, json};

use super::*;
use crate::plan::{Candidate, Refused};
use crate::samples::{now, snapshot};

/// A demand of this kind with these extra fields.
fn demand(kind: &str, fields: Value) -> Demand {
    let mut body = json!({"kind": kind});
    let fields = fields.as_object().expect("an object").clone();
    body.as_object_mut().expect("an object").extend(fields);
    serde_json::from_value(body).expect("a demand")
}

fn find(offers: Vec<Offer>, demand: &Demand) -> Plan {
    search(
        &snapshot(offers),
        demand,
        &Held::new(),
        now(),
        &SearchOptions::default(),
    )
    .expect("a plan")
}

/// The SKUs of the candidates, best first.
fn skus(plan: &Plan) -> Vec<&str> {
    plan.candidates
        .iter()
        .map(|candidate| candidate.lines[0].offer.sku.as_str())
        .collect()
}

#[test]
fn a_model_that_is_not_known_is_refused_whatever_is_on_sale() {
    let unknown = demand("train", json!({"model": "Llama 9", "tokens": 1}));
    let refusal = search(
        &snapshot(vec![]),
        &unknown,
        &Held::new(),
        now(),
        &SearchOptions::default(),
    );
    assert!(
        matches!(refusal, Err(MatchError::UnknownModel { .. })),
        "{refusal:?}"
    );
}
