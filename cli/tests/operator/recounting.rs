//! `tally recount`: what is refused before it begins, and a run of it beside a change-streamer.

use crate::changes::File;
use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn posts_that_are_none_and_a_file_that_is_none_are_named() {
    let stage = Stage::set().await;
    let file = File::of("posts.txt", "a\n\nb\n\u{1}\n");
    let mistakes: [(&[&str], &str); 4] = [
        (&["recount"], "say which posts, by their ids or --file, or --all"),
        (&["recount", "p", "--all"], "cannot be used with"),
        (&["recount", "--all", "--counter", "likes"], "cannot be used with"),
        (&["recount", "--file", file.name()], ", line 4: "),
    ];
    for (line, why) in mistakes {
        let said = stage.tally(line).await;
        assert!(said.code == Some(2) && said.err.contains(why), "{line:?}: {said:?}");
    }
}
