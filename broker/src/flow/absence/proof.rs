//! The proof that lists give about a machine that they lack. Pure: no clock, no I/O.

use chrono::{DateTime, TimeDelta, Utc};
use store::leases::Missing;

/// A list that is empty or halved proves something when it was so for so long; and where so much is
/// missing at once that it is the provider's trouble, so long is waited before each lease is judged by
/// itself.
pub(super) const REPEATED: TimeDelta = TimeDelta::minutes(10);
/// Leases that are missed so soon after each other are missing for one reason: their provider.
const TOGETHER: TimeDelta = TimeDelta::minutes(5);

/// A list that lacks a lease, and the other facts that decide what it proves.
#[derive(Debug, Clone, Copy)]
pub(super) struct Evidence {
    /// A time before the list was asked for.
    pub(super) asked_at: DateTime<Utc>,
    /// When a node of the lease last showed its host key: lists before that prove nothing.
    pub(super) seen_at: Option<DateTime<Utc>>,
    /// Whether it was read with the credential with which the lease was last shown.
    pub(super) same_credential: bool,
    /// Whether it is empty or halved.
    pub(super) doubtful: bool,
    /// Whether more is missing at the provider, so that the cause is at the provider.
    pub(super) together: bool,
    /// Whether the machine is counted on: it was accepted, and nobody wants its end.
    pub(super) stands: bool,
    /// Whether the provider accepted its end.
    pub(super) ended: bool,
    /// How long lists may lag behind.
    pub(super) lag: TimeDelta,
}

/// The conclusion from a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// The part of the lists' answer to keep.
    pub(super) missing: Option<Missing>,
    /// Whether it is proved that the provider has it no more.
    pub(super) proved: bool,
    /// The conclusion, in words.
    pub(super) words: String,
}

/// Weighs a list that lacks a lease, given the result of the lists before it.
pub(super) fn weigh(evidence: &Evidence, before: Option<Missing>) -> Found {
    let Evidence { asked_at, lag, .. } = *evidence;
    if evidence.stands && !evidence.same_credential {
        let since = before.map_or(asked_at, |missing| missing.since);
        return Found {
            missing: Some(Missing {
                since,
                lacked_since: None,
            }),
            proved: false,
            words: "the list was read with another credential than the one that last showed it, \
                    perhaps of another account"
                .to_owned(),
        };
    }
    let since = before.map_or(asked_at, |missing| missing.since);
    let counts_from = evidence.seen_at.map_or(since, |seen_at| since.max(seen_at));
    let before = before.and_then(|missing| missing.lacked_since);
    let before = before.filter(|lacked_since| *lacked_since >= counts_from);
    let lacked_since = match evidence.doubtful {
        true => before,
        false => before.or(Some(asked_at)),
    };
    let slow = evidence.together || !evidence.same_credential;
    let wait = match (evidence.ended, slow) {
        (false, true) => lag.max(REPEATED),
        _ => lag,
    };
    let lasted = asked_at - counts_from;
    let proved = if evidence.ended {
        lasted >= lag
    } else {
        let by_lists = lacked_since.is_some_and(|first| asked_at - first >= wait);
        (by_lists && !evidence.doubtful) || lasted >= lag.max(REPEATED)
    };
    let words = match proved {
        true => format!("no list has shown it for {} s", lasted.num_seconds()),
        false if evidence.together => {
            "its provider does not show several machines at once, or all of them: a trouble of the \
             provider's, which is waited for"
                .to_owned()
        }
        false => format!("no list has shown it since {since}"),
    };
    Found {
        missing: Some(Missing {
            since,
            lacked_since,
        }),
        proved,
        words,
    }
}

/// Whether leases that are missing since these times, of so many that are counted on at a provider,
/// are the provider's trouble: two of them within five minutes, or all.
pub(super) fn is_of_the_provider(missing_since: &[DateTime<Utc>], counted_on: usize) -> bool {
    let mut times = missing_since.to_vec();
    times.sort_unstable();
    let close = times.windows(2).any(|two| two[1] - two[0] <= TOGETHER);
    close || (!times.is_empty() && times.len() >= counted_on)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    const PLAIN: Evidence = Evidence {
        asked_at: DateTime::UNIX_EPOCH,
        seen_at: None,
        same_credential: true,
        doubtful: false,
        together: false,
        stands: true,
        ended: false,
        lag: TimeDelta::seconds(120),
    };

    /// After how many seconds of lists, one each ten seconds, it is proved; `None` within an hour.
    fn proved_after(evidence: impl Fn(i64) -> Evidence) -> Option<i64> {
        let mut missing = None;
        (0..=3600).step_by(10).find(|&second| {
            let evidence = Evidence {
                asked_at: at(second),
                ..evidence(second)
            };
            let found = weigh(&evidence, missing);
            missing = found.missing;
            found.proved
        })
    }

    #[test]
    fn how_long_lists_must_lack_a_machine_until_it_is_proved_that_it_is_gone() {
        let ended = Evidence {
            stands: false,
            ended: true,
            ..PLAIN
        };
        let always = |evidence: Evidence| proved_after(move |_| evidence);
        let doubtful = Evidence {
            doubtful: true,
            ..PLAIN
        };
        let together = Evidence {
            together: true,
            ..PLAIN
        };
        let stranger = Evidence {
            same_credential: false,
            ..PLAIN
        };
        assert_eq!(always(PLAIN), Some(120), "two lists, a listing lag apart");
        assert_eq!(always(doubtful), Some(600), "empty or halved lists");
        assert_eq!(always(together), Some(600), "the provider's trouble");
        assert_eq!(always(stranger), None, "another credential");
        let seen_for = |seconds: i64| {
            move |second: i64| Evidence {
                seen_at: Some(at(second.min(seconds))),
                ..PLAIN
            }
        };
        assert_eq!(proved_after(seen_for(300)), Some(420), "lists after that");
        assert_eq!(proved_after(seen_for(3600)), None, "its node answers");
        let unwanted = Evidence {
            stands: false,
            ..stranger
        };
        assert_eq!(always(unwanted), Some(600), "of what nobody counts on");
        for evidence in [
            ended,
            Evidence {
                doubtful: true,
                ..ended
            },
        ] {
            assert_eq!(always(evidence), Some(120), "an end that was accepted");
        }
        let first_is_empty = |second| match second {
            0 => doubtful,
            _ => PLAIN,
        };
        assert_eq!(proved_after(first_is_empty), Some(130), "two good lists");
        let last_is_empty = |second| match second {
            0 => PLAIN,
            _ => doubtful,
        };
        assert_eq!(proved_after(last_is_empty), Some(600), "only one is good");
    }

    #[test]
    fn two_missing_within_five_minutes_or_all_are_the_providers_trouble() {
        for (since, counted_on, of_the_provider) in [
            (&[][..], 0, false),
            (&[][..], 3, false),
            (&[0][..], 2, false),
            (&[0][..], 1, true),
            (&[0, 300][..], 9, true),
            (&[300, 0][..], 9, true),
            (&[0, 301][..], 9, false),
            (&[0, 301][..], 2, true),
            (&[0, 400, 600][..], 9, true),
        ] {
            let times: Vec<_> = since.iter().copied().map(at).collect();
            assert_eq!(
                is_of_the_provider(&times, counted_on),
                of_the_provider,
                "{since:?} of {counted_on}"
            );
        }
    }
}
