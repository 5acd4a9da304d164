//! Names, prices and scripts.

use serde_json::json;

use super::*;

#[test]
fn a_sku_names_the_cloud_the_type_and_the_size_of_a_cluster() {
    for (text, sku) in [
        ("denvr/H100x8", Sku::new("denvr", "H100x8", None)),
        (
            "denvr/H100x8/cluster-2",
            Sku::new("denvr", "H100x8", Some(2)),
        ),
    ] {
        assert_eq!((Sku::read(text), sku.write()), (sku, text.to_owned()));
    }
    assert_eq!(Sku::read("nothing"), Sku::new("", "nothing", None));
    assert_eq!(Sku::read("a/b/cluster-many").cluster_of, None);
}

#[test]
fn cents_are_numbers_and_dollars_are_texts() {
    let read = |price, is_cents| dollars(&price, is_cents).map_err(|rejection| rejection.reason);
    assert_eq!(read(json!(1980), true), Ok(Decimal::new(1980, 2)));
    assert_eq!(read(json!("1.5"), false), Ok(Decimal::new(15, 1)));
    for (price, is_cents, why) in [
        (json!("19.80"), true, SkipReason::Unreadable),
        (json!(150), false, SkipReason::Unreadable),
        (json!(null), true, SkipReason::NoPrice),
        (json!(""), false, SkipReason::NoPrice),
    ] {
        assert_eq!(read(price, is_cents), Err(why));
    }
}
