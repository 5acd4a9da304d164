//! The meaning of each error (XID) of the driver, by NVIDIA's catalogue and in this order of gravity.

use super::*;

/// Errors, and the outcome of a run in which the driver reported one; 79 has a rule of its own, and 154
/// states the recovery action in words.
const MEANINGS: &[(&[u32], Outcome)] = &[
    // Memory that could not be corrected (48, 95, also contained: 94) or replaced (64), a link that failed
    // (74), firmware that does not answer (119, 120) or failed (143), an unrecovered error (140).
    (&[48, 64, 74, 94, 95, 119, 120, 140, 143], Outcome::Failed),
    // A row to be replaced, corrected errors, and an unknown error.
    (&[63, 92, 7_777], Outcome::Warned),
    // Errors of a program: the agent's own.
    (&[13, 31, 43, 45], Outcome::Noted),
];

#[test]
fn an_error_fails_warns_or_is_the_agents_own() {
    for (xids, expected) in MEANINGS {
        for xid in *xids {
            let (findings, _) = judged(|e| changes::xids(e, &[*xid]));
            let mut findings = findings.into_iter();
            let found = findings.find(|found| found.code == FindingCode::HealthXid);
            let found = found.expect("judged");
            assert_eq!(found.outcome, *expected, "XID {xid}");
            assert!(found.note.contains(&xid.to_string()), "{}", found.note);
        }
    }
}
