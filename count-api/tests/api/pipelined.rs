//! Reads a page of posts from a stand-in for Redis, which answers nothing until the whole page is asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tally_adapters::redis;
use tally_count_api::{Config, Ports};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::harness::{Deployed, PARTITIONS, define, post, serve};

/// 25 posts with four counters.
const PAGE: usize = 100;

/// Answers every command at once, except that it waits for one `MGET` of each partition. If the API asked for one after
/// the other, it would get no answer.
async fn answer_together(stream: TcpStream, pages: Arc<AtomicUsize>) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut asked = Vec::new();
    while let Some((command, keys)) = command(&mut stream).await? {
        if command != "MGET" {
            stream.get_mut().write_all(b"+OK\r\n").await?;
            continue;
        }
        asked.push(keys);
        if asked.len() == PARTITIONS as usize {
            pages.fetch_add(1, Ordering::SeqCst);
            let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
            let (standing, value) =
                (text("3:0000000000000001:1:tally:1000:1700000000000:-:"), text("2:0000000000000001:7:5:-:0"));
            let answer = |keys: usize| format!("*{keys}\r\n{standing}{}", value.repeat(keys - 1));
            let answers: String = asked.drain(..).map(answer).collect();
            stream.get_mut().write_all(answers.as_bytes()).await?;
        }
    }
    Ok(())
}

/// Reads the next command. Returns its name and how many keys it has, or `None` at the end.
async fn command(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<(String, usize)>> {
    let Some(parts) = length(stream, '*').await? else { return Ok(None) };
    let mut name = None;
    for _ in 0..parts {
        let length = length(stream, '$').await?.unwrap_or(0);
        let mut text = vec![0; length + 2];
        stream.read_exact(&mut text).await?;
        name.get_or_insert_with(|| String::from_utf8_lossy(&text[..length]).to_uppercase());
    }
    Ok(name.map(|name| (name, parts - 1)))
}

async fn length(stream: &mut BufReader<TcpStream>, mark: char) -> std::io::Result<Option<usize>> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line.trim_end().strip_prefix(mark).and_then(|digits| digits.parse().ok()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_posts_that_is_cached_is_one_pipeline_and_no_read_of_a_counter() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let (pages, mut tasks) = (Arc::<AtomicUsize>::default(), JoinSet::new());
    let counted = Arc::clone(&pages);
    tasks.spawn(async move {
        let mut served = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            served.spawn(answer_together(stream, Arc::clone(&counted)));
        }
    });
    let tables = Deployed::start().await;
    define(tables.connection()).await;
    let cache = redis::PartitionCache::new(&redis::Settings::at(vec![url])).unwrap();
    let ports = Ports { cache: Some(Arc::new(cache)), ..Ports::over(tables.connection()) };
    let config = Config { local_ttl: Duration::ZERO, cache_budget: Duration::from_secs(20), ..Config::default() };
    let (address, _running) = serve(config, ports).await;
    let ids: Vec<String> = (0..25).map(|n| format!("p{n}")).collect();
    let body = serde_json::json!({"post_ids": ids, "counters": ["views", "likes", "retweets", "replies"]});
    let answer = post(address, "/v1/counters:batchGet", &body.to_string()).await.json();
    let counts = answer["counts"].as_array().unwrap();
    assert!(counts.len() == PAGE && counts.iter().all(|it| it["value"] == 5), "{answer}");
    assert_eq!((pages.load(Ordering::SeqCst), tables.reads()), (1, 0));
}
