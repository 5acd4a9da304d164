//! A call that got through, and what its dialect may read and change: the price list, the machines, and the
//! things beside them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use crate::machine::{Phase, Shown};
use crate::market::Row;
use crate::page::{Page, Paging};
use crate::reply::{Refusal, Reply};
use crate::request::Request;
use crate::state::State;
use crate::things::{SSH_KEY, Thing};
use crate::world::SimulatedMarket;
use crate::{FaultKind, Front, Provider};

/// The answer of a dialect, or a refusal that the twin words.
pub type Answer = Result<Reply, Refusal>;

/// A call to one provider.
pub struct Call<'a> {
    pub(crate) world: &'a mut SimulatedMarket,
    pub(crate) state: &'a State,
    /// Whom it is for.
    pub provider: Provider,
    /// The moment that it sees: a read may be late.
    pub now: DateTime<Utc>,
    /// Whether the caller is someone else with the same account.
    pub foreign: bool,
    /// What it meets; the kit carries out most of them.
    pub fault: Option<FaultKind>,
    pub(crate) front: Option<Front>,
}

/// The price list.
impl Call<'_> {
    /// What the provider sells, sold out or not, in the order of the market file.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.world.rows(self.provider)
    }

    /// A record of all rows with the same key, in the order in which the keys come first.
    pub fn records<K: PartialEq>(
        &self,
        key: impl Fn(&Row) -> K,
        record: fn(&[&Row]) -> Value,
    ) -> Vec<Value> {
        let mut groups: Vec<(K, Vec<&Row>)> = Vec::new();
        for row in self.rows() {
            let key = key(row);
            match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.push(row),
                None => groups.push((key, vec![row])),
            }
        }
        groups.iter().map(|(_, group)| record(group)).collect()
    }

    /// A record of each place, in the order of the names of the places.
    pub fn places(&self, record: fn(&Row) -> Value) -> Vec<Value> {
        let places: BTreeMap<&str, &Row> = self.rows().map(|row| (&*row.place, row)).collect();
        places.into_values().map(record).collect()
    }

    /// The currency of the price list.
    pub fn currency(&self) -> &'static str {
        if self.fault == Some(FaultKind::OtherCurrency) {
            "EUR"
        } else {
            "USD"
        }
    }

    /// A price list in one piece, after its faults.
    pub fn catalog(&self, mut records: Vec<Value>) -> Vec<Value> {
        if self.fault == Some(FaultKind::PartialCatalog) {
            records.truncate(records.len() / 2);
        }
        self.with_faults(records)
    }

    /// A page of the price list, or all of it, after its faults.
    ///
    /// Errors: [`Refusal::Internal`] where a later page fails.
    pub fn catalog_page(
        &mut self,
        request: &Request,
        paging: Option<&Paging>,
        records: Vec<Value>,
    ) -> Result<Page, Refusal> {
        let Some(paging) = paging else {
            return Ok(Page::whole(self.catalog(records)));
        };
        let is_first = paging.start(request) == 0;
        let is_partial = self.fault == Some(FaultKind::PartialCatalog);
        if is_first && is_partial {
            self.world.later_pages_fail.insert(self.provider);
        } else if is_first {
            self.world.later_pages_fail.remove(&self.provider);
        } else if self.world.later_pages_fail.contains(&self.provider) {
            return Err(Refusal::Internal);
        }
        let records = self.with_faults(records);
        let half = if is_partial {
            records.len() / 2
        } else {
            usize::MAX
        };
        Ok(paging.cut(request, records, half))
    }

    fn with_faults(&self, mut records: Vec<Value>) -> Vec<Value> {
        match self.fault {
            Some(FaultKind::EmptyCatalog) => records.clear(),
            Some(FaultKind::OddRecord) => {
                let odd = odd_one(records.first());
                records.push(odd);
            }
            _ => {}
        }
        records
    }
}

/// A record with the fields of this one, and nothing in them that anybody can read.
fn odd_one(like: Option<&Value>) -> Value {
    let fields = like.and_then(Value::as_object).into_iter().flatten();
    let odd = fields.map(|(name, value)| {
        let odd = if value.is_string() {
            json!("odd")
        } else {
            json!({ "odd": true })
        };
        (name.clone(), odd)
    });
    Value::Object(odd.collect::<Map<_, _>>())
}

/// The machines.
impl Call<'_> {
    /// The list, in the order of creation, as the twin shows each.
    pub fn machines(&self) -> Vec<Value> {
        let listed = self.listed();
        listed.iter().map(self.provider.twin().machine).collect()
    }

    fn listed(&self) -> Vec<Shown<'_>> {
        let made = self.world.records(self.provider);
        let mut listed: Vec<_> = made
            .filter(|record| record.created_at <= self.now)
            .map(|record| record.shown(self.now))
            .filter(|shown| shown.phase != Phase::Gone)
            .collect();
        match self.front {
            Some(Front::EmptyList) => listed.clear(),
            Some(Front::CutList) => listed.truncate(listed.len() / 2),
            _ => {}
        }
        listed
    }

    /// The machine with this id; one that is gone only where the provider still knows it.
    ///
    /// Errors: [`Refusal::NoSuchMachine`].
    pub fn machine(&self, id: &str) -> Result<Shown<'_>, Refusal> {
        if self.provider.twin().keeps_gone {
            return self.known(id);
        }
        self.alive(id)
    }

    /// The machine with this id, unless it is gone.
    ///
    /// Errors: [`Refusal::NoSuchMachine`].
    pub fn alive(&self, id: &str) -> Result<Shown<'_>, Refusal> {
        let shown = self.known(id)?;
        if shown.phase == Phase::Gone {
            return Err(Refusal::NoSuchMachine);
        }
        Ok(shown)
    }

    fn known(&self, id: &str) -> Result<Shown<'_>, Refusal> {
        let record = self.world.record(self.provider, id);
        let shown = record.ok_or(Refusal::NoSuchMachine)?.shown(self.now);
        let is_listed = self.listed().iter().any(|listed| listed.id == id);
        if is_listed || shown.phase == Phase::Gone {
            return Ok(shown);
        }
        Err(Refusal::NoSuchMachine)
    }

    /// The machine with this id as the twin shows it.
    ///
    /// Errors: [`Refusal::NoSuchMachine`].
    pub fn read(&self, id: &str) -> Result<Value, Refusal> {
        Ok((self.provider.twin().machine)(&self.machine(id)?))
    }

    /// Ends a machine; one that is ending already stays as it is.
    ///
    /// Errors: [`Refusal::NoSuchMachine`], also once it is gone; [`Refusal::NotYet`] by its fault.
    pub fn release(&mut self, id: &str) -> Result<(), Refusal> {
        let is_booting = self.known(id)?.phase == Phase::Booting;
        if is_booting && self.fault == Some(FaultKind::CannotDeleteYet) {
            return Err(Refusal::NotYet);
        }
        if !self.world.release(self.provider, id, self.now) {
            return Err(Refusal::NoSuchMachine);
        }
        self.state.nodes.stop_machine(id);
        Ok(())
    }
}

/// Several machines at once.
impl Call<'_> {
    /// Ends all of these machines, or none, and returns each as the twin shows it.
    ///
    /// Errors: as those of [`Call::release`].
    pub fn release_all(&mut self, ids: &[String]) -> Result<Vec<Value>, Refusal> {
        for id in ids {
            self.alive(id)?;
        }
        ids.iter()
            .map(|id| self.release(id).and_then(|()| self.read(id)))
            .collect()
    }
}

/// The things beside the machines.
impl Call<'_> {
    /// Those of one kind, in the order of their creation.
    pub fn things(&self, kind: &str) -> Vec<&Thing> {
        let of_kind = |thing: &&Thing| thing.provider == self.provider && thing.kind == kind;
        self.world.things.iter().filter(of_kind).collect()
    }

    /// Those of one kind as the twin shows each.
    pub fn shown_things(&self, kind: &str) -> Vec<Value> {
        let things = self.things(kind).into_iter();
        things.map(self.provider.twin().thing).collect()
    }

    /// The one with this id.
    ///
    /// Errors: [`Refusal::NoSuchThing`].
    pub fn thing(&self, kind: &str, id: &str) -> Result<&Thing, Refusal> {
        let mut things = self.things(kind).into_iter();
        let thing = things.find(|thing| thing.id == id);
        thing.ok_or(Refusal::NoSuchThing)
    }

    /// The first one with this name.
    pub fn thing_named(&self, kind: &str, name: &str) -> Option<&Thing> {
        let mut things = self.things(kind).into_iter();
        things.find(|thing| thing.name == name)
    }

    /// The public keys with these names or ids.
    ///
    /// Errors: [`Refusal::UnknownKey`].
    pub fn public_keys(&self, wanted: &[String]) -> Result<Vec<String>, Refusal> {
        let keys = self.things(SSH_KEY);
        let find = |wanted: &String| {
            let key = keys
                .iter()
                .find(|key| key.id == *wanted || key.name == *wanted)?;
            key.body.as_str().map(str::to_owned)
        };
        let found: Option<Vec<String>> = wanted.iter().map(find).collect();
        found.ok_or(Refusal::UnknownKey)
    }

    /// Adds one, with a new id.
    pub fn add_thing(&mut self, kind: &'static str, name: &str, body: Value) -> Thing {
        let thing = Thing {
            provider: self.provider,
            kind,
            id: self.world.new_id(self.provider.twin().ids),
            name: name.to_owned(),
            body,
        };
        self.world.things.push(thing.clone());
        thing
    }

    /// Adds one that is known by its name alone, unless it is there.
    pub fn add_beside(&mut self, kind: &'static str, name: String) {
        if self.thing(kind, &name).is_err() {
            self.world.things.push(Thing {
                provider: self.provider,
                kind,
                id: name.clone(),
                name,
                body: Value::Null,
            });
        }
    }

    /// Takes one away.
    ///
    /// Errors: [`Refusal::NoSuchThing`].
    pub fn remove_thing(&mut self, kind: &str, id: &str) -> Result<Thing, Refusal> {
        let at = self.world.things.iter().position(|thing| {
            thing.provider == self.provider && thing.kind == kind && thing.id == id
        });
        Ok(self.world.things.remove(at.ok_or(Refusal::NoSuchThing)?))
    }
}
