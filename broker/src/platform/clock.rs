//! The clock that everything takes `now` from.
//!
//! Deadlines of the verification conversation do not use it: they run on the machine's real
//! monotonic clock.

mod watched;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, SubsecRound, TimeDelta, Utc};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tokio::task::AbortHandle;
use tracing::{info, warn};

pub use watched::{BOUND, WatchedClock};

/// How often a followed clock is read: a turned one is seen so much later.
const READ_EVERY: Duration = Duration::from_millis(50);
/// How long one reading of a followed clock may take.
const READING_TIMEOUT: Duration = Duration::from_secs(2);

/// Tells the time.
pub trait Clock: Send + Sync + 'static {
    /// The time now, in whole microseconds, as every database keeps it.
    fn now(&self) -> DateTime<Utc>;

    /// Sets once, at startup, the newest time in the database: the present is later.
    fn begin_after(&self, newest: DateTime<Utc>) {
        let _ = newest;
    }

    /// Whether other clocks can contradict it: it is this machine's, and not trusted in any case.
    fn can_be_contradicted(&self) -> bool {
        false
    }

    /// Sets once, at startup, the time of a clock that is trusted more than this machine's.
    fn begin_at(&self, other: DateTime<Utc>) {
        let _ = other;
    }

    /// Why the machine's clock is not trusted just now; `None` where it is, and for a clock that is no
    /// machine's.
    fn doubt(&self) -> Option<Doubt> {
        None
    }

    /// Believes the machine's clock after all, unless it jumped again since `doubt`.
    fn accept(&self, doubt: &Doubt) {
        let _ = doubt;
    }
}

/// An untrusted clock of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// The time that it shows.
    pub shows: DateTime<Utc>,
    /// The time that the broker uses.
    pub believed: DateTime<Utc>,
    /// For how long it has been like that.
    pub stands_for: TimeDelta,
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Utc::now().trunc_subsecs(6)
    }
}

impl simulator::Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Clock::now(self)
    }
}

/// A clock that only moves on command: for the demo and the tests.
#[derive(Debug)]
pub struct ManualClock(Mutex<DateTime<Utc>>);

impl ManualClock {
    /// A clock that shows `start`.
    #[must_use]
    pub fn at(start: DateTime<Utc>) -> Self {
        Self(Mutex::new(start.trunc_subsecs(6)))
    }

    /// Advances the clock and returns its new time.
    pub fn advance(&self, by: TimeDelta) -> DateTime<Utc> {
        let mut now = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *now += by;
        *now
    }
}

impl Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl simulator::Clock for ManualClock {
    fn now(&self) -> DateTime<Utc> {
        Clock::now(self)
    }
}

/// The clock of a simulation that several processes share, as its simulator last showed it.
///
/// Nothing is added to the last reading: a clock that stands still must stand still here as well.
/// It never goes back, and while the simulator does not answer it stands.
#[derive(Debug)]
pub struct FollowedClock {
    shown: Arc<Mutex<DateTime<Utc>>>,
    reader: AbortHandle,
}

/// Why a clock cannot be followed.
#[derive(Debug, thiserror::Error)]
pub enum ClockError {
    /// It could not be asked.
    #[error(
        "the simulator's clock cannot be read; is the simulator running, and its credential right?"
    )]
    Unreadable(#[source] reqwest::Error),
}

/// The answer of the simulator.
#[derive(Deserialize)]
struct Reading {
    now: DateTime<Utc>,
}

impl FollowedClock {
    /// Reads the clock once, and keeps reading it until this is dropped. Must be called within a Tokio
    /// runtime.
    ///
    /// `market_url` is the control plane of a simulator, without a slash at the end.
    /// Errors: [`ClockError`].
    pub async fn follow(market_url: &str, credential: &SecretString) -> Result<Self, ClockError> {
        let client = reqwest::Client::builder()
            .no_proxy()
            .timeout(READING_TIMEOUT)
            .build()
            .map_err(ClockError::Unreadable)?;
        let url = format!("{market_url}/clock");
        let credential = credential.clone();
        let first = read(&client, &url, &credential)
            .await
            .map_err(ClockError::Unreadable)?;
        let shown = Arc::new(Mutex::new(first));
        let kept = Arc::clone(&shown);
        let reader = tokio::spawn(async move {
            let mut stands = false;
            loop {
                tokio::time::sleep(READ_EVERY).await;
                match read(&client, &url, &credential).await {
                    Ok(now) => {
                        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                        *kept = now.max(*kept);
                        if stands {
                            info!("The simulator's clock can be read again");
                        }
                        stands = false;
                    }
                    Err(error) if !stands => {
                        warn!(error = %crate::chain(&error), "The simulator's clock cannot be read; the broker's clock stays");
                        stands = true;
                    }
                    Err(_) => {}
                }
            }
        });
        Ok(Self {
            shown,
            reader: reader.abort_handle(),
        })
    }
}

async fn read(
    client: &reqwest::Client,
    url: &str,
    credential: &SecretString,
) -> Result<DateTime<Utc>, reqwest::Error> {
    let asked = client.get(url).bearer_auth(credential.expose_secret());
    let reading: Reading = asked.send().await?.error_for_status()?.json().await?;
    Ok(reading.now.trunc_subsecs(6))
}

impl Clock for FollowedClock {
    fn now(&self) -> DateTime<Utc> {
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FollowedClock {
    fn drop(&mut self) {
        self.reader.abort();
    }
}
