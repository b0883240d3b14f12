//! `tally dlq` and `tally status` over letters and receipts that another program has written.

use std::time::Duration;

use crate::stage::Stage;

#[tokio::test(flavor = "multi_thread")]
async fn of_a_receipt_that_cannot_be_read_the_place_is_said_and_everything_else_works() {
    let stage = Stage::set().await;
    stage.put_aside(5).await;
    let ours = stage.deployment().await;
    let headers = [("__tally.replayed.deployment", ours.as_str()), ("__tally.replayed.topic", "likes")];
    stage.say("likes.dlq", 0, b"{", &headers, Duration::ZERO).await;
    for (line, code, found) in [
        ("dlq list", 1, "1 in all"),
        ("dlq show --partition 1 --offset 5", 1, "put back   no"),
        ("dlq replay", 0, "1 letter to send"),
        ("status", 1, "1 in likes.dlq"),
        ("dlq replay --yes --why test", 1, "the receipt at likes.dlq/0, offset 1 cannot be read"),
    ] {
        let said = stage.shows(line, code, [found]).await;
        assert!(said.err.contains("cannot be read is passed over: likes.dlq/0, offset 1"), "{line}: {said:?}");
    }
    assert_eq!(stage.sent().await, 0);
}
