//! The contract of the coordination state, over both implementations; and the behaviour when Redis is lost.

pub(crate) mod server;

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use broker::platform::coordination::{
    HotState, InProcess, Patience, Quota, RateCheck, Redis, Topic, WakeUps,
};
use secrecy::SecretString;
use tokio::time::timeout;
use uuid::Uuid;

use crate::eventually::{eventually, in_time};
use server::{AnyRedis, RedisServer};

const LONG: Duration = Duration::from_secs(600);
const SHORT: Duration = Duration::from_millis(100);

fn deployment() -> String {
    format!("test-{}", Uuid::now_v7().simple())
}

fn quota(per_second: u32, burst: u32) -> Quota {
    Quota {
        per_second: NonZeroU32::new(per_second).expect("not zero"),
        burst: NonZeroU32::new(burst).expect("not zero"),
    }
}

/// Waits longer for an answer than a machine is busy: the test is about the answers, not their speed.
const PATIENT: Patience = Patience {
    of_requests: Duration::from_secs(30),
    of_work: Duration::from_secs(30),
};

/// Opens a Redis.
fn patient(url: &SecretString, deployment: &str) -> Redis {
    Redis::open_with(url, deployment, PATIENT).expect("an address")
}

/// Runs a test over each implementation.
async fn for_each_hot_state(test: impl AsyncFn(&dyn HotState)) {
    eprintln!("in process:");
    test(&InProcess::default()).await;
    if let Some(redis) = AnyRedis::find() {
        eprintln!("on Redis:");
        test(&patient(&redis.url(), &deployment())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_value_is_there_until_its_time_is_over() {
    for_each_hot_state(async |state| {
        assert_eq!(state.cached("a").await, None);
        state.cache("a", b"one", LONG).await;
        state.cache("b", &[0, 255], SHORT).await;
        assert_eq!(state.cached("a").await.as_deref(), Some(&b"one"[..]));
        state.cache("a", b"two", LONG).await;
        eventually("the end of a short life", async || {
            state.cached("b").await.is_none()
        })
        .await;
        assert_eq!(state.cached("a").await.as_deref(), Some(&b"two"[..]));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_one_holders_until_it_gives_it_back() {
    for_each_hot_state(async |state| {
        assert!(state.acquire("poll:a", "one", LONG).await);
        assert!(state.acquire("poll:a", "one", LONG).await, "it has it");
        assert!(!state.acquire("poll:a", "two", LONG).await);
        assert!(!state.renew("poll:a", "two", LONG).await);
        assert!(state.renew("poll:a", "one", LONG).await);
        state.release("poll:a", "two").await;
        assert!(!state.acquire("poll:a", "two", LONG).await, "not its own");
        assert!(state.acquire("poll:b", "two", LONG).await, "another lease");
        state.release("poll:a", "one").await;
        assert!(!state.renew("poll:a", "one", LONG).await, "given back");
        assert!(state.acquire("poll:a", "two", LONG).await);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_nobody_renews_lapses() {
    for_each_hot_state(async |state| {
        assert!(state.acquire("sweep", "one", SHORT).await);
        eventually("the lapse", async || {
            state.acquire("sweep", "two", LONG).await
        })
        .await;
        assert!(!state.renew("sweep", "one", LONG).await, "it is another's");
        assert!(state.renew("sweep", "two", SHORT).await, "shorter now");
        eventually("the lapse", async || {
            state.acquire("sweep", "one", LONG).await
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wake_up_is_heard_by_all_who_listen_for_its_topic_and_counts_once() {
    for_each_hot_state(async |state| {
        let mut first = state.subscribe(Topic::Work);
        let mut second = state.subscribe(Topic::Work);
        for _ in 0..3 {
            state.publish(Topic::Work);
        }
        in_time("a wake-up", first.hear()).await;
        in_time("a wake-up", second.hear()).await;
        let mut supply = state.subscribe(Topic::Supply);
        state.publish(Topic::Supply);
        in_time("a wake-up", supply.hear()).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_gives_its_burst_and_then_its_rate() {
    for_each_hot_state(async |state| {
        let quota = quota(2, 3);
        let (key, checks) = checked_at_once(state, quota).await;
        let [granted @ .., refused] = checks;
        for (check, remaining) in granted.into_iter().zip([2, 1, 0]) {
            assert_eq!(
                (check.allowed, check.limit, check.remaining),
                (true, 3, remaining)
            );
            assert!(check.retry_after.is_zero() && check.reset_after > Duration::ZERO);
        }
        assert_eq!((refused.allowed, refused.remaining), (false, 0));
        assert!(
            refused.retry_after <= Duration::from_millis(500),
            "{refused:?}"
        );
        assert!(refused.reset_after > Duration::from_secs(1), "{refused:?}");
        assert!(state.check_rate("other", quota).await.allowed);
        let began = Instant::now();
        eventually("the next turn", async || {
            state.check_rate(&key, quota).await.allowed
        })
        .await;
        assert!(began.elapsed() + Duration::from_millis(20) >= refused.retry_after);
    })
    .await;
}

/// Four checks of a fresh key, so close together that nothing of a quota of two a second comes back between them.
async fn checked_at_once(state: &dyn HotState, quota: Quota) -> (String, [RateCheck; 4]) {
    for attempt in 0..100 {
        let key = format!("acme-{attempt}");
        let began = Instant::now();
        let checks = [
            state.check_rate(&key, quota).await,
            state.check_rate(&key, quota).await,
            state.check_rate(&key, quota).await,
            state.check_rate(&key, quota).await,
        ];
        if began.elapsed() < Duration::from_millis(400) {
            return (key, checks);
        }
    }
    panic!("the machine is too slow for this test: four checks take it half a second");
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_a_deployment_share_and_other_deployments_do_not_meet_them() {
    let Some(redis) = AnyRedis::find() else {
        return;
    };
    let ours = deployment();
    let open = |deployment: &str| patient(&redis.url(), deployment);
    let (one, two, stranger) = (open(&ours), open(&ours), open(&deployment()));
    one.cache("a", b"shared", LONG).await;
    assert_eq!(two.cached("a").await.as_deref(), Some(&b"shared"[..]));
    assert_eq!(stranger.cached("a").await, None);
    assert!(one.acquire("sweep", "one", LONG).await);
    assert!(!two.acquire("sweep", "two", LONG).await);
    assert!(stranger.acquire("sweep", "stranger", LONG).await);
    // So large a quota is not given back while a machine is busy.
    let large = quota(1, 60);
    let left = async |state: &Redis| state.check_rate("acme", large).await.remaining;
    assert_eq!(left(&one).await, 59);
    assert!(left(&two).await <= 58, "counted by both");
    assert_eq!(left(&stranger).await, 59);
    assert_wakes(&one, &two).await;
    let mut heard = stranger.subscribe(Topic::Work);
    wakes(&stranger, &mut heard).await;
    falls_silent(&mut heard).await;
    assert_wakes(&two, &one).await;
    let none = timeout(SHORT, heard.hear()).await;
    assert!(none.is_err(), "another deployment's wake-up was heard");
}

/// Wake-ups of one reach the other, once both listen.
async fn assert_wakes(one: &Redis, other: &Redis) {
    let mut heard = other.subscribe(Topic::Work);
    // A new listener is woken once for wake-ups that it may have missed.
    falls_silent(&mut heard).await;
    wakes(one, &mut heard).await;
}

/// Wake-ups are heard, once the listener is ready.
async fn wakes(one: &Redis, heard: &mut WakeUps) {
    eventually("a wake-up", async || {
        one.publish(Topic::Work);
        timeout(SHORT, heard.hear()).await.is_ok()
    })
    .await;
}

/// Wake-ups sent before are no longer heard.
async fn falls_silent(heard: &mut WakeUps) {
    eventually("silence", async || {
        timeout(SHORT * 5, heard.hear()).await.is_err()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_redis_slows_and_breaks_nothing_and_is_found_again() {
    let Some(mut server) = RedisServer::private() else {
        return;
    };
    let ours = deployment();
    let (holder, other) = (patient(&server.url(), &ours), patient(&server.url(), &ours));
    holder.cache("a", b"one", LONG).await;
    assert!(holder.acquire("sweep", "one", LONG).await);
    assert!(!other.acquire("sweep", "two", LONG).await);
    server.kill();

    assert_eq!(holder.cached("a").await, None);
    let began = Instant::now();
    assert!(
        holder.renew("sweep", "one", LONG).await,
        "the holder goes on"
    );
    assert!(holder.acquire("sweep", "one", LONG).await);
    assert!(
        !other.acquire("sweep", "two", LONG).await,
        "it has not lapsed"
    );
    assert!(
        other.acquire("sweep", "two", Duration::ZERO).await,
        "it has"
    );
    for allowed in [true, false] {
        let check = holder.check_rate("acme", quota(1, 1)).await;
        assert_eq!(check.allowed, allowed, "each counts by itself");
    }
    assert!(other.check_rate("acme", quota(1, 1)).await.allowed);
    let mut heard = holder.subscribe(Topic::Work);
    holder.publish(Topic::Work);
    in_time("a wake-up at home", heard.hear()).await;
    // Not even one call waited for an answer as long as it may.
    assert!(
        began.elapsed() < PATIENT.of_requests,
        "{:?}",
        began.elapsed()
    );

    server.start();
    let mut moved = other.subscribe(Topic::Supply);
    in_time("a wake-up for what was missed", moved.hear()).await;
    eventually("the cache", async || {
        holder.cache("a", b"two", LONG).await;
        other.cached("a").await.as_deref() == Some(&b"two"[..])
    })
    .await;
    assert!(
        !holder.renew("sweep", "one", LONG).await,
        "the server forgot it"
    );
    assert!(holder.acquire("sweep", "one", LONG).await);
    assert!(!other.renew("sweep", "two", LONG).await);
    assert!(
        !other.acquire("sweep", "two", LONG).await,
        "one holder again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_hangs_holds_up_one_call_for_a_moment_and_the_next_not_at_all() {
    let Some(mut server) = RedisServer::private() else {
        return;
    };
    let state = Redis::open(&server.url(), &deployment()).expect("an address");
    eventually("the first answer", async || {
        state.cache("warm", b"up", LONG).await;
        state.cached("warm").await.is_some()
    })
    .await;
    server.pause();
    let began = Instant::now();
    assert!(state.check_rate("acme", quota(1, 100)).await.allowed);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    let began = Instant::now();
    for _ in 0..50 {
        assert!(state.check_rate("acme", quota(1, 100)).await.allowed);
    }
    // Half of the time that they would take if each waited as the first one did.
    assert!(
        began.elapsed() < 25 * Patience::default().of_requests,
        "{:?}",
        began.elapsed()
    );
    server.resume();
    eventually("the way back", async || {
        state.cache("a", b"one", LONG).await;
        state.cached("a").await.is_some()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_redis_never_answered_everybody_does_the_work() {
    let nowhere = secrecy::SecretString::from("unix:///nonexistent/redis.sock");
    let state = Redis::open(&nowhere, &deployment()).expect("an address");
    assert!(state.acquire("sweep", "one", LONG).await);
    assert!(state.acquire("sweep", "two", LONG).await);
    for url in ["", "http://host", "canary"] {
        let refused = Redis::open(&secrecy::SecretString::from(url), "test").err();
        let words = refused.expect("no Redis").to_string();
        assert!(
            words.contains("redis.url") && !words.contains("canary"),
            "{words}"
        );
    }
}
