//! The catalogue of images: words of ours, and each provider's image for them (`data/images.csv`).

use std::collections::BTreeSet;
use std::sync::LazyLock;

use market::machine::ImageChoice;
use serde::Deserialize;

use crate::adapter::Profile;
use crate::error::AdapterError;

/// One word at one provider.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CatalogueImage {
    /// Our word: `ubuntu-22.04-cuda-12`.
    pub word: String,
    /// The provider that has the image.
    pub provider: String,
    /// The provider's own id of it.
    pub image: String,
    /// The date of the source: `2026-11-28`.
    pub as_of: String,
    /// Where the id is published.
    pub source: String,
}

static IMAGES: LazyLock<Vec<CatalogueImage>> = LazyLock::new(|| {
    let text = include_str!("../data/images.csv");
    let rows = csv::Reader::from_reader(text.as_bytes()).into_deserialize();
    // A test of this module reads the same text, so none is left out here.
    rows.filter_map(Result::ok).collect()
});

/// Every image of the catalogue, in the order of the table.
#[must_use]
pub fn all() -> &'static [CatalogueImage] {
    &IMAGES
}

/// The words of the catalogue.
#[must_use]
pub fn words() -> BTreeSet<&'static str> {
    all().iter().map(|image| image.word.as_str()).collect()
}

/// The image of a provider for a word of the catalogue; `None` where it has none.
#[must_use]
pub fn image_of(word: &str, provider: &str) -> Option<&'static str> {
    let its = |image: &&CatalogueImage| image.word == word && image.provider == provider;
    all().iter().find(its).map(|image| image.image.as_str())
}

/// The provider's id of the image that an order asks for, or its usual one.
///
/// Errors: [`AdapterError::CannotOrder`] for an image that the provider does not have.
pub(crate) fn chosen<'a>(
    profile: &Profile,
    choice: Option<&'a ImageChoice>,
    usual: &'a str,
) -> Result<&'a str, AdapterError> {
    let cannot = |why: String| Err(AdapterError::CannotOrder(why));
    let name = profile.name;
    match choice {
        None => Ok(usual),
        Some(ImageChoice::Catalogue(word)) => match image_of(word, profile.id) {
            Some(image) => Ok(image),
            None => cannot(format!("{name} has no image `{word}`")),
        },
        Some(ImageChoice::Provider(id)) if profile.machines.own_images => Ok(id),
        Some(ImageChoice::Provider(_)) => {
            cannot(format!("no image of its own can be named at {name}"))
        }
        Some(ImageChoice::Container(image)) if profile.machines.containers => Ok(image),
        Some(ImageChoice::Container(_)) => cannot(format!("{name} runs no container images")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry;

    #[test]
    fn every_row_is_of_a_known_provider_and_says_where_it_comes_from() {
        let text = include_str!("../data/images.csv");
        assert_eq!(
            all().len(),
            text.lines().count() - 1,
            "a row cannot be read"
        );
        let providers: BTreeSet<_> = registry::all().iter().map(|it| it.profile().id).collect();
        let mut seen = BTreeSet::new();
        for image in all() {
            assert!(providers.contains(image.provider.as_str()), "{image:?}");
            assert!(
                seen.insert((&image.word, &image.provider)),
                "twice: {image:?}"
            );
            assert!(
                !image.image.is_empty() && !image.source.is_empty(),
                "{image:?}"
            );
            assert!(
                image.as_of.parse::<chrono::NaiveDate>().is_ok(),
                "{image:?}"
            );
            let word = image.word.parse::<ImageChoice>();
            assert_eq!(word, Ok(ImageChoice::Catalogue(image.word.clone())));
        }
    }
}
