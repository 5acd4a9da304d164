//! What each error (XID) of the driver means, by NVIDIA's catalogue and in this order of gravity.

use super::*;

/// Errors, and what comes of a run in which the driver reported one; 79 has a rule of its own, and 154 says in
/// words what the GPU needs.
const MEANINGS: &[(&[u32], Outcome)] = &[
    // Memory that could not be corrected (48, 95, also contained: 94) or replaced (64), a link that failed (74),
    // firmware that does not answer (119, 120) or failed (143), an error that was not recovered from (140).
    (&[48, 64, 74, 94, 95, 119, 120, 140, 143], Outcome::Failed),
    // A row that is to be replaced, errors that were corrected; and what nobody knows.
    (&[63, 92, 7_777], Outcome::Warned),
    // What a program does wrongly: the agent's own.
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
