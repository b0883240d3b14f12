//! The same routes for hashtags: the handlers are those of posts, and the document describes them in the same words.

use utoipa::openapi::path::{PathItem, Paths};
use utoipa_axum::router::UtoipaMethodRouter;

/// What a path of posts begins with, and one of hashtags.
const POSTS: &str = "/v1/posts/{post_id}/";
const HASHTAGS: &str = "/v1/hashtags/{hashtag}/";

/// What is said of posts, and what is said of hashtags instead.
const WORDS: [(&str, &str); 10] = [
    ("post_id", "hashtag"),
    ("The post", "The hashtag"),
    ("A post", "A hashtag"),
    ("a post", "a hashtag"),
    ("p-1", "rust"),
    ("u-1", "p-1"),
    ("retweets", "posts"),
    ("retweet", "tag"),
    ("views", "searches"),
    ("\"view\"", "\"search\""),
];

/// The path for hashtags of a path for posts.
pub(in crate::routes) fn path_of_hashtags(path: &str) -> String {
    path.replacen(POSTS, HASHTAGS, 1)
}

/// The routes for hashtags of routes for posts.
pub(in crate::routes) fn of_hashtags<S>((schemas, paths, methods): UtoipaMethodRouter<S>) -> UtoipaMethodRouter<S> {
    let items = paths.paths.into_iter().map(|(path, item)| (path_of_hashtags(&path), described(&item)));
    let mut paths = Paths::new();
    paths.paths = items.collect();
    (schemas, paths, methods)
}

fn described(item: &PathItem) -> PathItem {
    let text = serde_json::to_string(item).expect("a description is made of texts and numbers");
    let text = WORDS.iter().fold(text, |text, (post, hashtag)| text.replace(post, hashtag));
    let mut item: PathItem = serde_json::from_str(&text).expect("a description can be read as it was written");
    for operation in [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten() {
        operation.operation_id = operation.operation_id.as_ref().map(|id| format!("{id}OfHashtag"));
    }
    item
}
