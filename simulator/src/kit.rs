//! What a twin is made of: its data, and what its dialect may read and change. A dialect imports all of it.

pub use crate::call::{Answer, Call};
pub use crate::fields::decoded;
pub use crate::fields::{Fields, is_label};
pub use crate::machine::{Host, Order, Phase, Record, Shown};
pub use crate::market::{Network, PriceBasis, Row};
pub use crate::page::{By, Page, Paging};
pub use crate::provider::{Operation, Provider};
pub use crate::reply::{Refusal, Reply, by_name, require, without_nulls};
pub use crate::request::Request;
pub use crate::route::Route;
pub use crate::things::{NewThing, SSH_KEY, Thing, new_ssh_key};
pub use crate::twin::{Auth, Ids, RowRules, StatusWords, Timing, Twin};
