//! Prints both state machines into `docs/reservations.md`, so that a new state or event shows in
//! review. `UPDATE_DOCS=1 cargo test -p market` rewrites the grids.

use std::fmt::Write as _;
use std::path::PathBuf;

use market::lease::{LeaseEvent, LeaseState};
use market::reservation::{CloseReason, ReservationEvent, ReservationState};

fn page() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/reservations.md")
}

fn grid<S: Copy, E: Copy + std::fmt::Debug>(
    states: &[(String, S)],
    events: &[E],
    next: impl Fn(S, E) -> Option<String>,
) -> String {
    let mut text = String::from("| event |");
    for (name, _) in states {
        let _ = write!(text, " `{name}` |");
    }
    text.push_str("\n|---|");
    text.push_str(&"---|".repeat(states.len()));
    text.push('\n');
    for event in events {
        let _ = write!(text, "| {event:?} |");
        for (_, state) in states {
            let _ = write!(
                text,
                " {} |",
                next(*state, *event).unwrap_or_else(|| "·".into())
            );
        }
        text.push('\n');
    }
    text
}

fn lease_grid() -> String {
    let states: Vec<_> = LeaseState::ALL
        .map(|state| (state.to_string(), state))
        .into();
    grid(&states, &LeaseEvent::ALL, |state, event| {
        Some(state.next(event).ok()?.to_string())
    })
}

fn reservation_grid() -> String {
    // One reason is shown for all; the cell names the one that an arrow sets.
    let shown = |state: &ReservationState| {
        state
            .reason()
            .is_none_or(|why| why == CloseReason::Released)
    };
    let states: Vec<_> = ReservationState::all()
        .into_iter()
        .filter(shown)
        .map(|state| {
            let name = if state.reason().is_some() {
                format!("{}(why)", state.as_str())
            } else {
                state.to_string()
            };
            (name, state)
        })
        .collect();
    grid(&states, &ReservationEvent::ALL, |state, event| {
        let next = state.next(event).ok()?;
        let same_reason = state.reason().is_some();
        Some(if same_reason {
            format!("{}(why)", next.as_str())
        } else {
            next.to_string()
        })
    })
}

fn with_section(text: &str, name: &str, body: &str) -> String {
    let (open, close) = (
        format!("<!-- {name} -->\n"),
        format!("<!-- end of {name} -->"),
    );
    let (before, rest) = text
        .split_once(&open)
        .expect("the page marks where the grid begins");
    let (_, after) = rest
        .split_once(&close)
        .expect("the page marks where the grid ends");
    format!("{before}{open}{body}{close}{after}")
}

#[test]
fn the_page_on_reservations_shows_both_grids_as_they_are() {
    let old = std::fs::read_to_string(page()).expect("docs/reservations.md is there");
    let new = with_section(&old, "lease grid", &lease_grid());
    let new = with_section(&new, "reservation grid", &reservation_grid());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(page(), &new).expect("the page can be written");
    }
    let now = std::fs::read_to_string(page()).expect("docs/reservations.md is there");
    assert_eq!(
        now, new,
        "run `UPDATE_DOCS=1 cargo test -p market` and review the change"
    );
}

#[test]
fn a_reservation_state_reads_back_from_its_two_words() {
    for state in ReservationState::all() {
        let reason = state.reason().map(CloseReason::as_str);
        assert_eq!(ReservationState::parse(state.as_str(), reason), Ok(state));
    }
    assert!(ReservationState::parse("closed", None).is_err());
    assert!(ReservationState::parse("held", Some("released")).is_err());
}

#[test]
fn nothing_leaves_the_last_states() {
    for event in LeaseEvent::ALL {
        assert!(LeaseState::Gone.next(event).is_err(), "{event:?}");
    }
    for event in ReservationEvent::ALL {
        for why in CloseReason::ALL {
            assert!(
                ReservationState::Closed(why).next(event).is_err(),
                "{event:?}"
            );
        }
    }
}

#[test]
fn every_state_can_reach_its_end() {
    for start in LeaseState::ALL {
        let mut seen = vec![start];
        let mut at = 0;
        while at < seen.len() {
            let reached = LeaseEvent::ALL
                .into_iter()
                .filter_map(|event| seen[at].next(event).ok());
            for state in reached.collect::<Vec<_>>() {
                if !seen.contains(&state) {
                    seen.push(state);
                }
            }
            at += 1;
        }
        assert!(seen.contains(&LeaseState::Gone), "{start} never ends");
    }
}
