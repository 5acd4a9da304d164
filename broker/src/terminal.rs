//! What commands print and how they end, whichever command it is.

pub(crate) mod aside;
pub(crate) mod colour;
pub(crate) mod ending;
pub(crate) mod plan_lines;
pub(crate) mod price;
pub(crate) mod price_lists;
pub(crate) mod screen;
pub(crate) mod table;
pub(crate) mod text;
