//! Images by their names: which of those that a type takes is meant.
//!
//! Names come in two styles, `ubuntu-24.04-cuda-12.8-open-docker` and `24.04.cuda12.9.docker`. Each type takes
//! some of them only, so that a catalogue word stands for the nearest one that the type takes.

use market::machine::ImageChoice;
use market::order::LeaseOrder;
use serde_json::Value;

use super::PROFILE;
use crate::error::AdapterError;
use crate::images;

/// The image with drivers of types that take none with CUDA in its name.
const OTHER_WITH_DRIVERS: &str = "jupyter";

/// The images of a type in one text, as an offer carries them; `None` for none.
pub(super) fn joined(supported_os: &Value) -> Option<String> {
    let names = supported_os.as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    Some(names.join(" ")).filter(|text| !text.trim().is_empty())
}

/// The image for an order.
///
/// Errors: [`AdapterError::CannotOrder`] where the type takes none such.
pub(super) fn of(order: &LeaseOrder) -> Result<&str, AdapterError> {
    let offered = order.offer.particulars.order_ref.as_deref();
    let offered: Vec<&str> = offered.into_iter().flat_map(|it| it.split(' ')).collect();
    let wanted = order.machine.image.as_ref();
    let name = images::chosen(&PROFILE, wanted, "")?;
    if offered.contains(&name) || matches!(wanted, Some(ImageChoice::Provider(_))) {
        return Ok(name);
    }
    nearest(Name::parse(name), &offered).ok_or_else(|| {
        let sku = &order.offer.sku;
        AdapterError::CannotOrder(format!("{sku} takes no such image"))
    })
}

/// The newest image with the same release and major version of CUDA. An order without a wish gets one with
/// drivers where there is any, best on Ubuntu 24.04.
fn nearest<'a>(wanted: Option<Name>, offered: &[&'a str]) -> Option<&'a str> {
    let named = offered
        .iter()
        .filter_map(|name| Some((*name, Name::parse(name)?)));
    let major = |name: &Name| name.cuda.map(|(major, _)| major);
    let meant = named.filter(|(_, it)| match &wanted {
        None => it.cuda.is_some(),
        Some(wanted) => it.release == wanted.release && major(it) == major(wanted),
    });
    let newest = meant.max_by_key(|(_, it)| (it.release == (24, 4), it.cuda, it.release));
    let other = || offered.iter().find(|name| **name == OTHER_WITH_DRIVERS);
    let any = || other().or(offered.last()).filter(|_| wanted.is_none());
    newest.map(|(name, _)| name).or_else(|| any().copied())
}

/// What a name says; none of images for clusters, confidential machines and the like.
struct Name {
    release: (u32, u32),
    cuda: Option<(u32, u32)>,
}

impl Name {
    fn parse(name: &str) -> Option<Self> {
        let name = name.strip_prefix("ubuntu-").unwrap_or(name);
        let (release, rest) = version(name)?;
        let mut rest = rest.trim_start_matches(['-', '.']);
        let mut cuda = None;
        if let Some(after) = rest.strip_prefix("cuda") {
            let (found, after) = version(after.trim_start_matches('-'))?;
            (cuda, rest) = (Some(found), after);
        }
        let plain = |word: &str| matches!(word, "" | "open" | "docker" | "base");
        rest.split(['-', '.'])
            .all(plain)
            .then_some(Self { release, cuda })
    }
}

/// The version at the start of a text, and what follows it.
fn version(text: &str) -> Option<((u32, u32), &str)> {
    let (major, rest) = text.split_once('.')?;
    let end = rest
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(rest.len());
    let (minor, rest) = rest.split_at(end);
    Some(((major.parse().ok()?, minor.parse().ok()?), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_gets_drivers_where_there_are_any_and_a_word_the_nearest_image() {
        let cuda_12 = "ubuntu-24.04-cuda-12.8-open-docker";
        let special = "26.04.cuda13.2.cc 26.04.cuda13.2.kubernetes-1.35.8 24.04.cuda";
        for (wanted, offered, image) in [
            (
                "",
                "ubuntu-22.04-cuda-12.4 24.04.cuda12.9 26.04.cuda13.2",
                "24.04.cuda12.9",
            ),
            (
                "",
                "24.04.cuda12.9 24.04.cuda13.0.docker",
                "24.04.cuda13.0.docker",
            ),
            ("", "24.04.base jupyter 26.04.base", "jupyter"),
            ("", "ubuntu-22.04 ubuntu-24.04", "ubuntu-24.04"),
            ("", special, "24.04.cuda"),
            (
                cuda_12,
                "24.04.cuda12.6 24.04.cuda12.9 24.04.cuda13.0",
                "24.04.cuda12.9",
            ),
            (cuda_12, "24.04.cuda13.0 24.04.base jupyter", ""),
            ("ubuntu-24.04", "24.04.cuda13.0 24.04.base", "24.04.base"),
        ] {
            let names: Vec<&str> = offered.split(' ').collect();
            let found = nearest(Name::parse(wanted), &names);
            assert_eq!(found.unwrap_or_default(), image, "{wanted} of {offered}");
        }
    }
}
