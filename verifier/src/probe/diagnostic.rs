//! The results of the vendor's own diagnostic (`dcgmi diag`), where the node has it.
//!
//! It runs as a process of its own, without the agent's environment, and is killed with all its processes
//! when its time is over. Its versions differ in their output: any object that looks like a test with results
//! counts as one. Source: DCGM 3.3 and 4.2 documentation, `dcgmi diag --json`.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use market::verification::{
    DiagnosticEnd, DiagnosticFacts, DiagnosticResult, DiagnosticTest, Level, MOST_DIAGNOSTIC_TESTS,
    NodeFacts, VerificationOrder,
};
use serde_json::Value;

use crate::child;
use crate::device::{Node, shortened};

/// Its name.
pub const TOOL: &str = "dcgmi";
/// The search path for programs where the environment has none.
const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// With less time than this it is not started.
const LEAST: Duration = Duration::from_secs(8);
/// The time reserved for the work after it.
const KEPT_BACK: Duration = Duration::from_secs(2);
/// The depth to which its JSON is searched.
const DEEPEST: u32 = 16;

/// The tests of a level, and how long they may take. Source: DCGM documentation: the tests of run level 1
/// take seconds, those of level 3 about a quarter of an hour.
const fn wanted(level: Level) -> Option<(&'static str, Duration)> {
    match level {
        Level::Quick => None,
        Level::Standard => Some(("1", Duration::from_secs(60))),
        Level::Deep => Some(("3", Duration::from_mins(30))),
    }
}

/// How long it may take at a level, of the time left; none where that is too little.
#[must_use]
pub fn lasts(level: Level, left: Duration) -> Option<Duration> {
    let (_, most) = wanted(level)?;
    let lasts = left.saturating_sub(KEPT_BACK).min(most);
    (lasts >= LEAST).then_some(lasts)
}

/// Runs it and adds its results to the facts. Skipped at level `quick`, where the node lacks it, or where too
/// little time is left.
pub fn run(node: &mut Node, facts: &mut NodeFacts, order: &VerificationOrder, left: Duration) {
    let asked = wanted(order.level).zip(lasts(order.level, left));
    if let (Some(((run, _), lasts)), Some(surroundings)) = (asked, &mut node.surroundings) {
        facts.diagnostic = surroundings.diagnostic(run, Instant::now() + lasts);
    }
}

/// The output of this program by the deadline; none where there is no such program.
#[must_use]
pub fn said_by(tool: &OsStr, run: &str, deadline: Instant) -> Option<DiagnosticFacts> {
    let ended = |ended, why: &str| DiagnosticFacts {
        ended,
        why: Some(shortened(why)),
        tests: Vec::new(),
    };
    let mut child = match start(tool, run) {
        Ok(child) => child,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            let why = format!("it does not start: {error}");
            return Some(ended(DiagnosticEnd::Unreadable, &why));
        }
    };
    let printed = child::printed(&mut child, deadline);
    child::end(&mut child);
    Some(match printed {
        None => ended(DiagnosticEnd::TimedOut, "it did not end in time"),
        Some(text) => match tests_of(&text) {
            tests if tests.is_empty() => {
                let first = text.lines().find(|line| !line.trim().is_empty());
                ended(
                    DiagnosticEnd::Unreadable,
                    first.unwrap_or("it said nothing"),
                )
            }
            tests => DiagnosticFacts {
                ended: DiagnosticEnd::Done,
                why: None,
                tests,
            },
        },
    })
}

fn start(tool: &OsStr, run: &str) -> io::Result<Child> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
    Command::new(tool)
        .args(["diag", "-r", run, "-j"])
        // The token of the verification must not reach other programs.
        .env_clear()
        .env("PATH", path)
        .env("LC_ALL", "C")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
}

/// The tests in its output; none where that is not its JSON.
fn tests_of(text: &str) -> Vec<DiagnosticTest> {
    let json = text.find('{').map_or("", |at| &text[at..]);
    let mut all = serde_json::Deserializer::from_str(json).into_iter::<Value>();
    let mut tests = Vec::new();
    if let Some(Ok(value)) = all.next() {
        collect(&value, DEEPEST, &mut tests);
    }
    // Failed tests come first, in case there are too many.
    tests.sort_by_key(|test| test.result != DiagnosticResult::Failed);
    tests.truncate(MOST_DIAGNOSTIC_TESTS);
    tests
}

fn collect(value: &Value, depth: u32, tests: &mut Vec<DiagnosticTest>) {
    let Some(depth) = depth.checked_sub(1) else {
        return;
    };
    match value {
        Value::Array(all) => all.iter().for_each(|one| collect(one, depth, tests)),
        Value::Object(fields) => match (fields.get("name"), fields.get("results")) {
            (Some(Value::String(name)), Some(Value::Array(results))) => {
                tests.push(test_of(name, results));
            }
            _ => fields.values().for_each(|one| collect(one, depth, tests)),
        },
        _ => {}
    }
}

/// A test with the worst of its results.
fn test_of(name: &str, results: &[Value]) -> DiagnosticTest {
    let result_of = |result: &Value| {
        let status = result["status"].as_str().unwrap_or_default();
        match status.to_ascii_lowercase().as_str() {
            "fail" | "failed" => DiagnosticResult::Failed,
            "warn" | "warning" => DiagnosticResult::Warned,
            "pass" | "passed" => DiagnosticResult::Passed,
            _ => DiagnosticResult::Skipped,
        }
    };
    let worst = results.iter().min_by_key(|result| result_of(result));
    let result = worst.map_or(DiagnosticResult::Skipped, result_of);
    let detail = worst.filter(|_| result != DiagnosticResult::Passed);
    DiagnosticTest {
        name: plain_name(name),
        result,
        gpu: worst.and_then(gpu_of),
        detail: detail.and_then(|worst| warning_of(&worst["warnings"])),
    }
}

/// The first GPU in a result: a list in words, or the number of an entity.
fn gpu_of(result: &Value) -> Option<u32> {
    let entity = result["entity_id"]
        .as_u64()
        .filter(|_| result["entity_group"] == "GPU");
    let listed = result["gpu_ids"].as_str().or(result["gpu_id"].as_str());
    let first = listed.and_then(|ids| ids.split(',').next()?.trim().parse().ok());
    entity
        .or_else(|| result["gpu_id"].as_u64())
        .or(first)
        .and_then(|gpu| u32::try_from(gpu).ok())
}

/// The first warning: text, or text under `warning`, alone or in a list.
fn warning_of(warnings: &Value) -> Option<String> {
    match warnings {
        Value::String(text) => Some(shortened(text)),
        Value::Array(all) => all.iter().find_map(warning_of),
        Value::Object(fields) => warning_of(fields.get("warning")?),
        _ => None,
    }
}

fn plain_name(name: &str) -> String {
    const LONGEST_NAME: usize = 64;
    name.chars()
        .filter(|c| !c.is_control())
        .take(LONGEST_NAME)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    /// The results of a program that prints this and then does that.
    fn said(printed: &str, then: &str, allowed: Duration) -> Option<DiagnosticFacts> {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("printed"), printed).expect("written");
        let tool = folder.path().join("dcgmi");
        let script = format!(
            "#!/bin/sh\ncat {}/printed\n{then}\n",
            folder.path().display()
        );
        let mut open = OpenOptions::new();
        let mut file = open
            .write(true)
            .create(true)
            .mode(0o755)
            .open(&tool)
            .expect("made");
        file.write_all(script.as_bytes()).expect("written");
        drop(file);
        // Another test that starts a process in between may hold the file open for a moment.
        let began = Instant::now();
        loop {
            let said = said_by(tool.as_os_str(), "1", Instant::now() + allowed);
            let busy = |said: &DiagnosticFacts| {
                said.why.as_deref().is_some_and(|why| why.contains("busy"))
            };
            if !said.as_ref().is_some_and(busy) {
                return said;
            }
            assert!(began.elapsed() < 2 * PATIENT, "it stays busy: {said:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    const PATIENT: Duration = Duration::from_secs(30);

    const OF_THREE: &str = r#"{"DCGM GPU Diagnostic":{"test_categories":[{"category":"Deployment","tests":[
        {"name":"Denylist","results":[{"status":"Pass"}]},
        {"name":"Page Retirement/Row Remap","results":[{"gpu_ids":"0,1,2","status":"PASS"},
            {"gpu_ids":"3","status":"Fail","warnings":["GPU 3 has a row pending"]}]},
        {"name":"Inforom","results":[{"status":"Skip","info":"not supported"}]}]}]}}"#;

    const OF_FOUR: &str = r#"Starting
        {"DCGM Diagnostic":{"test_categories":[{"category":"Deployment","tests":[
        {"name":"software","results":[
            {"entity_group":"GPU","entity_group_id":1,"entity_id":0,"status":"Pass"},
            {"entity_group":"GPU","entity_group_id":1,"entity_id":5,"status":"Warn",
             "warnings":[{"error_category":1,"error_id":2,"warning":"persistence mode is off"}]}],
         "test_summary":{"status":"Warn"}}]}]},"metadata":{"version":"4.2.3"}}"#;

    #[test]
    fn what_either_version_prints_is_read() {
        // A failed test makes its exit status non-zero.
        let three = said(OF_THREE, "exit 226", PATIENT).expect("it is there");
        assert_eq!(three.ended, DiagnosticEnd::Done);
        let row = &three.tests[0];
        assert_eq!(row.name, "Page Retirement/Row Remap");
        assert_eq!((row.result, row.gpu), (DiagnosticResult::Failed, Some(3)));
        assert_eq!(row.detail.as_deref(), Some("GPU 3 has a row pending"));
        let others: Vec<_> = three.tests[1..].iter().map(|test| test.result).collect();
        assert_eq!(
            others,
            [DiagnosticResult::Passed, DiagnosticResult::Skipped]
        );
        let four = said(OF_FOUR, "", PATIENT).expect("it is there");
        let software = &four.tests[0];
        assert_eq!(
            (software.result, software.gpu),
            (DiagnosticResult::Warned, Some(5))
        );
        assert_eq!(software.detail.as_deref(), Some("persistence mode is off"));
    }

    #[test]
    fn a_node_without_it_says_nothing_of_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let nowhere = folder.path().join("dcgmi");
        assert_eq!(
            said_by(nowhere.as_os_str(), "1", Instant::now() + PATIENT),
            None
        );
    }

    #[test]
    fn what_is_none_of_its_answers_is_told_as_unreadable() {
        for (printed, why) in [
            ("", "it said nothing"),
            (
                "Error: no connection to the host engine\n",
                "Error: no connection",
            ),
            ("{\"a\": ", "{\"a\":"),
            ("[1, 2]", "[1, 2]"),
        ] {
            let said = said(printed, "", PATIENT).expect("it is there");
            assert_eq!(said.ended, DiagnosticEnd::Unreadable, "{printed}");
            let told = said.why.expect("why");
            assert!(told.starts_with(why), "{told}");
        }
        let deep = format!("{}{}", "[{\"a\":".repeat(60), "}]".repeat(60));
        assert_eq!(tests_of(&deep), []);
    }

    #[test]
    fn one_that_hangs_is_ended_in_time_with_all_that_it_started() {
        let began = Instant::now();
        let folder = tempfile::tempdir().expect("a folder");
        let mark = folder.path().join("mark");
        let late = format!("(sleep 1; touch {}) & sleep 60", mark.display());
        let said = said(OF_THREE, &late, Duration::from_millis(300)).expect("it is there");
        assert_eq!(
            (said.ended, said.tests),
            (DiagnosticEnd::TimedOut, Vec::new())
        );
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(!mark.exists(), "what it started went on");
    }

    #[test]
    fn it_does_not_see_the_agents_environment() {
        let name = "{\"name\":\"$(env | grep -Evc '^(PATH|LC_ALL|PWD|OLDPWD|SHLVL|_)=')\",\"results\":[{\"status\":\"pass\"}]}";
        let said = said("", &format!("cat <<END\n{name}\nEND"), PATIENT).expect("it is there");
        assert_eq!(said.tests[0].name, "0");
    }
}
