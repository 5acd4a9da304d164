//! Which operation a call is, and which functions of the dialect carry it out.

use crate::Operation;
use crate::call::{Answer, Call};
use crate::machine::{Order, Shown};
use crate::market::Row;
use crate::page::Page;
use crate::reply::{Refusal, Reply};
use crate::request::Request;
use crate::things::NewThing;
use serde_json::Value;

/// The operation of a call.
#[derive(Clone, Copy)]
pub struct Route {
    pub(crate) operation: Operation,
    pub(crate) act: Act,
    pub(crate) is_paged: bool,
}

/// Reads a thing that is to be added.
pub type ReadThing = fn(&Call<'_>, &Request) -> Result<NewThing, Refusal>;

/// Reads a launch; it changes nothing, and whether there is room is not its business.
pub type ReadOrder = fn(&Call<'_>, &Request) -> Result<Order, Refusal>;

/// Writes a list: the whole one, or a page of it.
pub type WriteList = fn(Page) -> Reply;

#[derive(Clone, Copy)]
pub(crate) enum Act {
    Answer(fn(&mut Call<'_>, &Request) -> Answer),
    Catalog(fn(&Call<'_>) -> Vec<Value>, WriteList),
    Places(fn(&Row) -> Value, WriteList),
    List(WriteList),
    Read(fn(Value) -> Reply),
    Launch(ReadOrder, fn(&Shown<'_>) -> Reply),
    Release(fn() -> Reply),
    Things(&'static str, WriteList),
    AddThing(&'static str, ReadThing, fn(Value) -> Reply),
    RemoveThing(&'static str, fn() -> Reply),
    /// The same answer to everybody, which is no operation.
    Fixed(fn(&Request) -> Reply),
}

impl Route {
    const fn of(operation: Operation, act: Act) -> Self {
        Self {
            operation,
            act,
            is_paged: true,
        }
    }

    /// Any other operation, and its answer.
    pub const fn to(operation: Operation, answer: fn(&mut Call<'_>, &Request) -> Answer) -> Self {
        Self::of(operation, Act::Answer(answer))
    }

    /// The price list: its records, and how they are written.
    pub const fn catalog(records: fn(&Call<'_>) -> Vec<Value>, written: WriteList) -> Self {
        Self::of(Operation::Catalog, Act::Catalog(records, written))
    }

    /// The places, in the order of their names: a record of each, from one of its rows.
    pub const fn places(record: fn(&Row) -> Value, written: WriteList) -> Self {
        Self::of(Operation::Places, Act::Places(record, written))
    }

    /// The list of machines, as the twin shows each.
    pub const fn list(written: WriteList) -> Self {
        Self::of(Operation::List, Act::List(written))
    }

    /// The machine whose id is the last segment of the path, as the twin shows it.
    pub const fn read(found: fn(Value) -> Reply) -> Self {
        Self::of(Operation::Read, Act::Read(found))
    }

    /// A launch: how its order is read, and the answer once the machine is there.
    pub const fn launch(order: ReadOrder, made: fn(&Shown<'_>) -> Reply) -> Self {
        Self::of(Operation::Launch, Act::Launch(order, made))
    }

    /// The end of the machine whose id is the last segment of the path.
    pub const fn release(ended: fn() -> Reply) -> Self {
        Self::of(Operation::Release, Act::Release(ended))
    }

    /// The list of the things of one kind, as the twin shows each.
    pub const fn things(kind: &'static str, written: WriteList) -> Self {
        Self::of(Operation::Keys, Act::Things(kind, written))
    }

    /// A new thing of one kind: how it is read, and the answer from how the twin shows it.
    pub const fn add_thing(kind: &'static str, read: ReadThing, added: fn(Value) -> Reply) -> Self {
        Self::of(Operation::Keys, Act::AddThing(kind, read, added))
    }

    /// The end of the thing of one kind whose id is the last segment of the path.
    pub const fn remove_thing(kind: &'static str, removed: fn() -> Reply) -> Self {
        Self::of(Operation::Keys, Act::RemoveThing(kind, removed))
    }

    /// An answer that needs no credential, is not counted and never breaks, such as a redirect.
    pub const fn fixed(reply: fn(&Request) -> Reply) -> Self {
        Self::of(Operation::Places, Act::Fixed(reply))
    }

    /// The same list without pages, at a provider whose other lists have them.
    #[must_use]
    pub const fn in_one_piece(self) -> Self {
        Self {
            is_paged: false,
            ..self
        }
    }
}
