//! Tests that the API shows no credential: puts a canary into every token and password, and looks for it in the
//! answers, logs, metrics and errors of the process.

use tally_testkit::Redis;
use tally_testkit::process::run;

use crate::harness::ask_with;
use crate::process::{Tables, command, start};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_credential_is_ever_seen() {
    // A server that cannot be reached makes the client log its address.
    none_is_seen("127.0.0.1:1").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs redis-server; .ci/night runs it"]
async fn no_credential_is_seen_where_a_server_refuses_it() {
    let server = Redis::start(&[]).await.unwrap();
    none_is_seen(&server.address().to_string()).await;
}

async fn none_is_seen(host: &str) {
    let tables = Tables::start().await;
    tables.plant("p", 3).await;
    let folder =
        std::env::temp_dir().join(format!("tally-count-api-{}-{}", std::process::id(), host.replace(':', "-")));
    std::fs::create_dir_all(&folder).unwrap();
    let file = |name: &str, text: &str| {
        std::fs::write(folder.join(name), text).unwrap();
        folder.join(name).to_str().unwrap().to_owned()
    };
    let (read, write) = (file("read", "canary-read-token\n"), file("write", "canary-write-token\n"));
    let admin = file("admin", "canary-admin-token\n");
    let redis = format!("redis://canary-user:canary-password@{host}");
    let login = ["--sasl", "plain", "--sasl-user", "u", "--sasl-password", "canary-sasl-password"];
    let args =
        ["--read-token-file", &read, "--write-token-file", &write, "--redis", &redis, "--brokers", "127.0.0.1:1"];
    let args =
        [&args[..], &["--admin-token-file", &admin], &login, &["--write-budget", "300ms", "--log", "debug"]].concat();
    let (process, address) = start(&tables, &args).await;
    let mut seen = String::new();
    for token in ["canary-read-token", "canary-write-token", "canary-admin-token", "canary-wrong"] {
        for (method, target) in
            [("GET", "/v1/posts/p/likes"), ("PUT", "/v1/posts/p/counters/likes"), ("GET", "/v1/posts/%zz/likes")]
        {
            let header = ("authorization", &*format!("Bearer {token}"));
            let answer = ask_with(address, method, target, header).await;
            seen += &format!("{:?} {}", answer.headers, String::from_utf8_lossy(&answer.body));
        }
    }
    for path in ["/metrics", "/readyz"] {
        seen += &process.get(path).await.unwrap().body;
    }
    let check = run(&mut command(&[&["--check"], &args[..]].concat())).await;
    assert_eq!(check.code, Some(0));
    let bad = run(&mut command(&["--check", "--redis", "canary-address", "--local-ttl", "canary"])).await;
    assert_eq!(bad.code, Some(78));
    let help = run(command(&["--help"]).env("TALLY_REDIS", &redis).env("TALLY_SASL_PASSWORD", "canary")).await;
    let nowhere = run(&mut command(&[&["--check"], &login[..]].concat())).await;
    for done in [check, help, nowhere] {
        seen += &(done.out + &done.err);
    }
    process.stop().await.unwrap();
    seen += &process.log();
    assert!(seen.len() > 1_000, "something was seen");
    let hits: Vec<&str> = seen.lines().filter(|line| line.contains("canary")).collect();
    assert!(hits.is_empty(), "{hits:#?}");
    std::fs::remove_dir_all(&folder).unwrap();
}
