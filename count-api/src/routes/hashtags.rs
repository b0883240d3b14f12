//! Derives the routes for hashtags from those for posts. The handlers are the same, and the OpenAPI document describes
//! them in the same words, with the names replaced.

use utoipa::openapi::path::Operation;
use utoipa_axum::router::UtoipaMethodRouter;

/// The beginning of a path for posts, and for hashtags.
const POSTS: &str = "/v1/posts/{post_id}/";
const HASHTAGS: &str = "/v1/hashtags/{hashtag}/";

/// Words of descriptions, examples and names of parameters: each is replaced as a whole, and once. No other part of a
/// description has one of them as a whole word.
const WORDS: [(&str, &str); 9] = [
    ("post", "hashtag"),
    ("post_id", "hashtag"),
    ("p-1", "rust"),
    ("u-1", "p-1"),
    ("retweets", "posts"),
    ("retweet", "tag"),
    ("unretweet", "untag"),
    ("views", "searches"),
    ("view", "search"),
];

/// Returns the routes for hashtags that correspond to routes for posts.
pub(super) fn of_hashtags<S>((schemas, mut paths, methods): UtoipaMethodRouter<S>) -> UtoipaMethodRouter<S> {
    paths.paths = paths.paths.into_iter().map(|(path, item)| (path.replacen(POSTS, HASHTAGS, 1), item)).collect();
    (schemas, paths, methods)
}

/// Turns the description of an operation for posts into that for hashtags, if `path` is of hashtags.
pub(super) fn describe(path: &str, operation: &mut Operation) {
    if path.starts_with(HASHTAGS) {
        let described = serde_json::to_string(operation).expect("a description is made of texts and numbers");
        *operation = serde_json::from_str(&renamed(&described)).expect("a description can be read as it was written");
        operation.operation_id = operation.operation_id.take().map(|id| id + "OfHashtag");
    }
}

/// Returns `text` with every whole word of [`WORDS`] replaced.
fn renamed(text: &str) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let replaced = |word: &str| WORDS.iter().find(|(from, _)| *from == word).map(|(_, to)| *to);
    let mut renamed = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let (word, behind) = rest.split_at(end);
        renamed.push_str(replaced(word).unwrap_or(word));
        let next = behind.find(is_part).unwrap_or(behind.len());
        renamed.push_str(&behind[..next]);
        rest = &behind[next..];
    }
    renamed
}
