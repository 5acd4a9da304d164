//! The README is true: its marked commands are run, line by line as written. The rest, and the commands on
//! other pages, are compared with the commands that exist.

use std::env;
use std::fs::Permissions;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use broker::cli::Cli;
use clap::Parser as _;
use clap::error::ErrorKind;
use market::demand::Demand;
use tokio::process::Command;

use crate::eventually::{in_time, output_of};

/// The marker after the backquotes of a block that is run in one shell with its like.
const WALK: &str = "sh walk";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).expect("a page")
}

/// The README and every page of the docs.
fn pages() -> Vec<PathBuf> {
    let (mut pages, mut folders) = (vec![root().join("README.md")], vec![root().join("docs")]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|kind| kind == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The fenced blocks of a page in order, also those within lists: the text after their backquotes, and their
/// lines.
fn blocks(page: &str) -> Vec<(&str, String)> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(mark) = line.trim_start().strip_prefix("```") else {
            continue;
        };
        let block = lines.by_ref().take_while(|line| line.trim_start() != "```");
        blocks.push((mark, block.map(|line| format!("{line}\n")).collect()));
    }
    blocks
}

/// The fenced blocks of a page that are marked like this, in order.
fn marked(page: &str, mark: &str) -> Vec<String> {
    let blocks = blocks(page).into_iter();
    let like_this = blocks.filter(|(found, _)| *found == mark);
    like_this.map(|(_, block)| block).collect()
}

/// The fenced blocks of a page that are typed into a shell, in order.
fn typed(page: &str) -> Vec<String> {
    let blocks = blocks(page).into_iter();
    let for_shell = blocks.filter(|(mark, _)| mark.split(' ').next() == Some("sh"));
    for_shell.map(|(_, block)| block).collect()
}

/// A script as a shell parts it: simple commands, and their words.
#[derive(Debug, Default)]
struct Parted {
    commands: Vec<Vec<String>>,
    word: Option<String>,
}

impl Parted {
    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        match self.commands.last_mut() {
            Some(command) => command.push(word),
            None => self.commands.push(vec![word]),
        }
    }

    fn end_command(&mut self) {
        self.end_word();
        self.commands.push(Vec::new());
    }
}

/// Every simple command of a script, also those within `$(…)`, without those that only set variables.
fn commands(script: &str) -> Vec<Vec<String>> {
    let script = script.replace("\\\n", " ");
    let (mut parted, mut quote, mut depth, mut before) = (Parted::default(), None, 0, '\n');
    let mut rest = script.chars().peekable();
    while let Some(c) = rest.next() {
        let next = rest.peek().copied();
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => parted.push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                // An empty word is one, too.
                parted.word.get_or_insert_default();
            }
            (None, '$') if next == Some('(') => {
                rest.next();
                depth += 1;
                parted.end_command();
            }
            (None, ')') if depth > 0 => {
                depth -= 1;
                parted.end_command();
            }
            // An ampersand within a redirection parts nothing.
            (None, '&') if before == '>' || next == Some('>') => parted.push(c),
            (None, '\n' | ';' | '|' | '&') => parted.end_command(),
            (None, c) if c.is_whitespace() => parted.end_word(),
            (None, c) => parted.push(c),
        }
        before = c;
    }
    parted.end_command();
    let is_assignment = |word: &String| {
        let name = word.split_once('=').map_or("", |(name, _)| name);
        !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
    };
    let words = parted.commands.into_iter();
    words
        .map(|words| words.into_iter().skip_while(is_assignment).collect())
        .filter(|words: &Vec<_>| !words.is_empty())
        .collect()
}

/// The words that our binary is started with by a command; `None` where it starts another.
fn of_broker(words: &[String]) -> Option<Vec<&str>> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    let ours = match words.as_slice() {
        ["broker", ours @ ..] | ["cargo", "run", "--release", "--", ours @ ..] => ours,
        ["docker", "compose", "run", composed @ ..] => {
            let service = composed.iter().position(|word| *word == "broker")?;
            &composed[service + 1..]
        }
        _ => return None,
    };
    let redirects = |word: &&&str| !word.trim_start_matches(['1', '2']).starts_with(['>', '<']);
    let ours = ours.iter().take_while(redirects).copied();
    Some(["broker"].into_iter().chain(ours).collect())
}

/// A program that the walk needs and this machine does not have.
fn missing() -> Option<&'static str> {
    let path = env::var_os("PATH").unwrap_or_default();
    let has = |name: &str| env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if let Some(name) = ["bash", "curl", "ssh", "ssh-keygen"]
        .into_iter()
        .find(|name| !has(name))
    {
        return Some(name);
    }
    // The README names the default port of the service.
    let port = TcpListener::bind("127.0.0.1:8080");
    port.is_err().then_some("port 8080 of this machine")
}

#[test]
fn commands_are_parted_wherever_a_shell_parts_them() {
    let script = "A=1 B=$(one -x | two 'a;b') three && four \"c|d\" 2>&1 &\n\
                  six; seven \\\n  --eight\n";
    let parted: Vec<_> = commands(script)
        .iter()
        .map(|words| words.join(" "))
        .collect();
    assert_eq!(
        parted,
        [
            "one -x",
            "two a;b",
            "three",
            "four c|d 2>&1",
            "six",
            "seven --eight"
        ]
    );
}

#[test]
fn the_walk_of_the_readme_from_nothing_to_a_cost_report_is_less_than_ten_commands() {
    let blocks = marked(&page("README.md"), WALK);
    let [service, client, _curl] = blocks.as_slice() else {
        panic!("three marked blocks, not {}", blocks.len());
    };
    let typed = commands(&format!("{service}{client}"));
    assert!(
        (5..10).contains(&typed.len()),
        "{}: {typed:#?}",
        typed.len()
    );
}

#[test]
fn every_command_of_ours_that_a_page_types_is_one_with_the_flags_it_is_typed_with() {
    let mut seen = 0;
    for path in pages() {
        let text = std::fs::read_to_string(&path).expect("a page");
        let id = format!("rsv_{}", "0".repeat(32));
        for block in typed(&text) {
            let block = block.replace("${ID: -8}", "00000000").replace("$ID", &id);
            for command in commands(&block) {
                let Some(ours) = of_broker(&command) else {
                    continue;
                };
                seen += 1;
                let Err(error) = Cli::try_parse_from(&ours) else {
                    continue;
                };
                let told = [ErrorKind::DisplayHelp, ErrorKind::DisplayVersion];
                let (shown, words) = (path.display(), ours.join(" "));
                assert!(told.contains(&error.kind()), "{shown}: {words}: {error}");
            }
        }
    }
    assert!(seen > 70, "only {seen} commands were found");
}

/// A zsh that somebody types into knows no comments: it takes their words for more of the command.
#[test]
fn no_line_that_a_page_types_has_a_comment() {
    let mut seen = 0;
    for path in pages() {
        let text = std::fs::read_to_string(&path).expect("a page");
        for block in typed(&text) {
            seen += 1;
            for line in block.lines() {
                let has_comment = line.split_whitespace().any(|word| word.starts_with('#'));
                assert!(!has_comment, "{}: {line}", path.display());
            }
        }
    }
    assert!(seen > 20, "only {seen} blocks were found");
}

#[test]
fn the_demands_and_the_settings_of_the_readme_are_read() {
    let readme = page("README.md");
    let demands = marked(&readme, "json").concat();
    assert!(demands.lines().count() > 1, "{demands}");
    for line in demands.lines() {
        let read = serde_json::from_str::<Demand>(line);
        assert!(read.is_ok(), "{line}: {read:?}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let settings = marked(&readme, "toml");
    assert!(!settings.is_empty(), "no settings were found");
    for text in settings {
        std::fs::write(folder.path().join("broker.toml"), &text).expect("the settings");
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_broker"));
        command.args(["migrate", "up"]);
        let ended = output_of(command.current_dir(folder.path()).env_clear());
        assert!(ended.status.success(), "{text}\n{ended:?}");
    }
}

#[test]
fn what_the_composition_demands_is_set_by_the_readme_and_its_image_holds_the_agent() {
    let composition = page("docker-compose.yml");
    let demanded = composition.split("${").skip(1).filter_map(|rest| {
        let (name, _) = rest.split_once('}')?.0.split_once(":?")?;
        Some(name)
    });
    let demanded: Vec<_> = demanded.collect();
    assert!(demanded.len() >= 3, "{demanded:?}");
    let blocks = marked(&page("README.md"), "sh");
    let block = blocks.iter().find(|block| block.contains("docker compose"));
    let block = block.expect("how it is started");
    let (set, _) = block.split_once("docker compose").expect("before that");
    for name in demanded {
        let is_exported = set
            .lines()
            .any(|line| line.starts_with("export ") && line.contains(&format!(" {name}=")));
        assert!(is_exported, "the README does not export {name}");
    }
    let image = page("Dockerfile");
    let path = image
        .lines()
        .find_map(|line| line.strip_prefix("ENV BROKER__VERIFIER__AGENT_PATH="))
        .expect("where the agent is");
    // As its script builds it: for nodes whose C library is older than the image's.
    let script = page("verifier/build-agent.sh");
    let folder = script
        .lines()
        .find_map(|line| line.strip_prefix("target="))
        .expect("for which machines");
    let copied = format!("COPY --from=build /src/target/{folder}/agent/verifier {path}\n");
    assert!(image.contains(&copied), "the agent is not at {path}");
    assert!(
        image.contains("&& verifier/build-agent.sh\n"),
        "it is not built"
    );
}

#[test]
fn the_offline_match_of_the_readme_finds_something() {
    let blocks = marked(&page("README.md"), "sh match");
    assert_eq!(blocks.len(), 1, "the marked block");
    let folder = tempfile::tempdir().expect("a folder");
    symlink(root().join("adapters"), folder.path().join("adapters")).expect("the sources");
    // Replaces the release build that the README makes.
    let cargo = folder.path().join("cargo");
    let built = env!("CARGO_BIN_EXE_broker");
    let script = format!(
        "#!/bin/sh\n[ \"$1 $2 $3\" = 'run --release --' ] || exit 9\nshift 3\nexec '{built}' \"$@\"\n"
    );
    std::fs::write(&cargo, script).expect("a script");
    let may_run = Permissions::from_mode(0o755);
    std::fs::set_permissions(&cargo, may_run).expect("it can be run");
    let path = env::var_os("PATH").unwrap_or_default();
    let path = [folder.path().to_owned()]
        .into_iter()
        .chain(env::split_paths(&path));
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-e", "-c", &blocks.concat()])
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", env::join_paths(path).expect("a search path"));
    let ended = output_of(&mut shell);
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("H100"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lines_of_the_readme_lead_from_nothing_to_a_node_and_a_cost_report() {
    if let Some(missing) = missing() {
        let required = env::var("REQUIRE_SERVICES").is_ok_and(|set| set == "1");
        assert!(!required, "REQUIRE_SERVICES=1, but there is no {missing}");
        // Not a print macro: those of a passing test are kept from the reader.
        let _ = writeln!(std::io::stderr(), "skipped: needs {missing}");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let walk = folder.path().join("walk.sh");
    let lines = marked(&page("README.md"), WALK).concat();
    std::fs::write(&walk, lines).expect("the lines are written");
    let binary = Path::new(env!("CARGO_BIN_EXE_broker"));
    let mut path = vec![binary.parent().expect("a folder").to_owned()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut shell = Command::new("bash");
    shell
        .args(["-e", "-o", "pipefail", "-c"])
        .arg("trap 'kill $(jobs -p) 2>/dev/null || true' EXIT; source ./walk.sh")
        .current_dir(folder.path())
        .env_clear()
        .env("PATH", env::join_paths(path).expect("a search path"))
        .env("HOME", folder.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ended = in_time("the end of the walk", shell.output()).await;
    let ended = ended.expect("a shell");
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{said}\n{errors}");
    for expected in ["# gpu   pwr", "GPU-hours", "\"total_usd\""] {
        assert!(said.contains(expected), "no {expected}: {said}\n{errors}");
    }
}
