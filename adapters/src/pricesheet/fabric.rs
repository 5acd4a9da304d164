//! Reads the network between the nodes of a row, in the words of price lists.

use market::fabric::Internode;
use market::ids::ProviderId;

use super::dialect::Fields;
use super::facts;
use super::word::word;
use crate::gate::Rejection;

/// The words of `fabric`.
const FABRICS: [(&str, Internode); 8] = [
    ("none", Internode::None),
    ("ethernet", Internode::Ethernet),
    ("roce200", Internode::Roce200),
    ("roce400", Internode::Roce400),
    ("ib_hdr200", Internode::InfinibandHdr200),
    ("ib_ndr400", Internode::InfinibandNdr400),
    ("ib_xdr800", Internode::InfinibandXdr800),
    ("proprietary", Internode::Proprietary),
];

/// The value of `fabric`, or else what the seller publishes for the SKU.
pub(super) fn internode(
    fields: &Fields<'_>,
    seller: &ProviderId,
    sku: &str,
) -> Result<Internode, Rejection> {
    let said = word("fabric", fields, &FABRICS)?;
    Ok(said.unwrap_or_else(|| facts::internode(seller.as_str(), sku)))
}
