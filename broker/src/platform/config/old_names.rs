//! Settings that had another name before: a source may still give them under it.

use figment::value::{Dict, Map};
use figment::{Error, Metadata, Profile, Provider};

/// The old and the new name of each section.
const RENAMED: [(&str, &str); 1] = [("limits", "rate_limits")];

/// A source of settings in which an old name stands for the new one.
pub(super) struct OldNames<P>(pub(super) P);

impl<P: Provider> Provider for OldNames<P> {
    fn metadata(&self) -> Metadata {
        self.0.metadata()
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        let mut data = self.0.data()?;
        for settings in data.values_mut() {
            for (old, new) in RENAMED {
                let Some(value) = settings.remove(old) else {
                    continue;
                };
                if settings.insert(new.to_owned(), value).is_some() {
                    return Err(Error::from(format!(
                        "`{old}` is the old name of `{new}`, and both are given; use `{new}` alone"
                    )));
                }
            }
        }
        Ok(data)
    }
}

#[cfg(test)]
mod tests {
    use figment::Figment;
    use figment::providers::{Format as _, Serialized, Toml};

    use super::*;
    use crate::platform::config::{Config, defaults};

    fn read(text: &str) -> Result<Config, String> {
        Figment::from(Serialized::defaults(defaults()))
            .merge(OldNames(Toml::string(text)))
            .extract()
            .map_err(|error| error.to_string())
    }

    #[test]
    fn the_old_name_of_the_rate_limits_still_sets_them() {
        for section in ["limits", "rate_limits"] {
            let config = read(&format!("[{section}.reads]\nburst = 7")).expect("it is read");
            let reads = config.rate_limits.reads;
            assert_eq!(
                (reads.burst.get(), reads.per_second.get()),
                (7, 50),
                "{section}"
            );
        }
        let both = read("[limits]\nenabled = false\n[rate_limits]\nenabled = true");
        let why = both.expect_err("both names");
        assert!(why.contains("use `rate_limits` alone"), "{why}");
    }
}
