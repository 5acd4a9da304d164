//! A Redis to test on: private to one test, so that it can be killed, paused and started again.

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use secrecy::SecretString;

/// Runs the commands on its input, and removes the server and its folder when the input ends: the server ends
/// with the test in every case. It reports when it has started, because its socket exists before it listens.
const KEEPER: &str = r#"
dir=$(mktemp -d /tmp/broker-test-redis.XXXXXX)
server=
finish() { [ -z "$server" ] || kill -KILL "$server" 2>/dev/null; rm -rf "$dir"; }
trap finish EXIT
trap 'exit 1' INT TERM HUP
echo "$dir/redis.sock"
while read -r word; do
  case $word in
    start) redis-server --port 0 --unixsocket "$dir/redis.sock" --dir "$dir" --save '' \
             --appendonly no >"$dir/log" 2>&1 </dev/null &
           server=$!
           tries=0
           until grep -q 'ready to accept connections' "$dir/log"; do
             kill -0 "$server" 2>/dev/null && [ $tries -lt 6000 ] || { cat "$dir/log" >&2; exit 1; }
             tries=$((tries + 1))
             sleep 0.01
           done ;;
    kill) kill -KILL "$server"; wait "$server" 2>/dev/null; rm -f "$dir/redis.sock" ;;
    pause) kill -STOP "$server" ;;
    resume) kill -CONT "$server" ;;
  esac
  echo done
done
"#;

/// A running private server.
pub(crate) struct RedisServer {
    address: String,
    orders: ChildStdin,
    done: BufReader<ChildStdout>,
    keeper: Child,
}

impl RedisServer {
    /// A fresh server from the installed binary; `None`, with a printed notice, where there is none.
    pub(crate) fn private() -> Option<Self> {
        if let Err(why) = Command::new("redis-server").arg("--version").output() {
            skip(&why.to_string());
            return None;
        }
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let orders = keeper.stdin.take().expect("its input");
        let done = BufReader::new(keeper.stdout.take().expect("its output"));
        let mut server = Self {
            address: String::new(),
            orders,
            done,
            keeper,
        };
        server.address = server.heard();
        server.start();
        Some(server)
    }

    pub(crate) fn url(&self) -> SecretString {
        SecretString::from(format!("unix://{}", self.address))
    }

    /// Starts it again, empty.
    pub(crate) fn start(&mut self) {
        self.order("start");
    }

    /// Kills it: its data is gone.
    pub(crate) fn kill(&mut self) {
        self.order("kill");
    }

    /// From now on it takes calls and answers none.
    pub(crate) fn pause(&mut self) {
        self.order("pause");
    }

    pub(crate) fn resume(&mut self) {
        self.order("resume");
    }

    fn order(&mut self, word: &str) {
        writeln!(self.orders, "{word}").expect("the keeper listens");
        assert_eq!(self.heard(), "done", "the server does not {word}");
    }

    fn heard(&mut self) -> String {
        let mut line = String::new();
        self.done.read_line(&mut line).expect("the keeper answers");
        line.trim().to_owned()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // A paused server is killed as well; the folder goes with the keeper, which is asked to end.
        let _ = Command::new("kill")
            .arg(self.keeper.id().to_string())
            .status();
        let _ = self.keeper.wait();
    }
}

/// Where a server is that nobody needs to break: the one that is named, else a private one.
pub(crate) enum AnyRedis {
    Named(SecretString),
    Private(RedisServer),
}

impl AnyRedis {
    /// `None`, with a printed notice, where there is none.
    pub(crate) fn find() -> Option<Self> {
        match env::var("TEST_REDIS_URL") {
            Ok(url) => Some(Self::Named(SecretString::from(url))),
            Err(_) => RedisServer::private().map(Self::Private),
        }
    }

    pub(crate) fn url(&self) -> SecretString {
        match self {
            Self::Named(url) => url.clone(),
            Self::Private(server) => server.url(),
        }
    }
}

fn skip(why: &str) {
    let required = env::var("REQUIRE_SERVICES").is_ok_and(|set| set == "1");
    assert!(
        !required,
        "REQUIRE_SERVICES=1, but redis-server does not run: {why}"
    );
    // Not a print macro: those of a passing test are kept from the reader.
    let _ = writeln!(std::io::stderr(), "skipped: needs redis-server ({why})");
}
