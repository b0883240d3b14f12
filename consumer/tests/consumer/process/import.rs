//! Likes from a file, sent by one process and written by another.

use std::path::PathBuf;

use tally_core::time::UnixMillis;
use tally_testkit::eventually;

use super::stage::{Likes, Stage};

const LINES: u64 = 4_000;

/// A file that goes with its test, and what is written beside it.
struct Csv(PathBuf);

impl Csv {
    /// Likes of some posts and users, and now and then an unlike of one of them; and what they amount to.
    fn new() -> (Self, Likes) {
        let path = std::env::temp_dir().join(format!("tally-import-process-{}.csv", std::process::id()));
        let (mut text, mut likes) = ("user_id,post_id,action,ts\n".to_owned(), Likes::new());
        for n in 0..LINES {
            let (post, user, ts) =
                (format!("post-{}", n * 7 % 31), format!("user-{}", n * 13 % 997), 1_500_000_000_000 + n);
            let action = if n % 5 == 4 { "unlike" } else { "like" };
            text.push_str(&format!("{user},{post},{action},{ts}\n"));
            match action {
                "like" => _ = likes.insert((post, user), UnixMillis(ts)),
                _ => _ = likes.remove(&(post, user)),
            }
        }
        std::fs::write(&path, text).unwrap();
        (Self(path), likes)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn beside(&self, ending: &str) -> PathBuf {
        PathBuf::from(format!("{}.{ending}", self.path()))
    }
}

impl Drop for Csv {
    fn drop(&mut self) {
        for path in [self.0.clone(), self.beside("progress"), self.beside("rejected")] {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "night: real processes over the in-process Kafka"]
async fn an_import_that_was_killed_goes_on_and_its_rows_are_those_of_the_file_with_their_old_times() {
    let stage = Stage::set().await;
    let (csv, likes) = Csv::new();
    let consumer = stage.consumer(&[]);
    let first = stage.consumer(&["import", csv.path(), "--rate", "1500"]);
    eventually("some of it is noted", async || csv.beside("progress").exists()).await;
    first.kill().await.unwrap();
    let rest = stage.run(&["import", csv.path(), "--rate", "100000"]).await;
    assert!(rest.code == Some(0), "{rest:?}");
    let said = rest.out.clone();
    assert!(said.starts_with(&format!("lines\t{}\nsent\t{LINES}\n", LINES + 1)), "{said}");
    assert!(rest.err.contains("going on behind"), "{rest:?}");
    eventually("its rows are there", async || stage.rows().await == likes).await;
    let again = stage.run(&["import", csv.path()]).await;
    assert_eq!(again.out, said, "nothing is left to do");
    consumer.stop().await.unwrap();
    assert_eq!(stage.rows().await, likes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_is_refused_before_it_begins_where_there_is_nothing_to_read_or_nowhere_to_send() {
    let stage = Stage::set().await;
    let missing = stage.run(&["import", "/nowhere/likes.csv"]).await;
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("cannot open `/nowhere/likes.csv`"), "{missing:?}");
    // Standard input is empty here.
    let empty = stage.run(&["import", "-"]).await;
    assert_eq!(empty.out, "lines\t0\nsent\t0\n", "{empty:?}");
    assert!(empty.code == Some(0));
    let unnamed = stage.run(&["import", "-", "--format", "csv"]).await;
    assert!(unnamed.err.contains("the first line has to name"), "{unnamed:?}");
}
