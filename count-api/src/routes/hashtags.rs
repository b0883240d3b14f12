//! Derives the routes for hashtags from those for posts. The handlers are the same, and the OpenAPI document describes
//! them in the same words, with the names replaced.

use serde_json::Value;
use utoipa::openapi::path::PathItem;
use utoipa_axum::router::UtoipaMethodRouter;

/// The beginning of a path for posts, and for hashtags.
const POSTS: &str = "/v1/posts/{post_id}/";
const HASHTAGS: &str = "/v1/hashtags/{hashtag}/";

/// Words in descriptions, and their replacements for hashtags.
const WORDS: &[(&str, &str)] = &[("post", "hashtag")];

/// Words in examples and names of parameters: each is replaced as a whole, and once.
const NAMES: &[(&str, &str)] = &[
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

/// Turns the description of a route for posts into that of hashtags, if `path` is of hashtags.
pub(super) fn describe(path: &str, item: &mut PathItem) {
    if !path.starts_with(HASHTAGS) {
        return;
    }
    let mut described = serde_json::to_value(&*item).expect("a description is made of texts and numbers");
    for operation in described.as_object_mut().into_iter().flat_map(|operations| operations.values_mut()) {
        describe_part(operation);
        if let Some(Value::String(id)) = operation.get_mut("operationId") {
            id.push_str("OfHashtag");
        }
    }
    *item = serde_json::from_value(described).expect("a description can be read as it was written");
}

/// Replaces words in a part of a description: in its texts, its examples and its parameters' names.
fn describe_part(part: &mut Value) {
    match part {
        Value::Array(parts) => parts.iter_mut().for_each(describe_part),
        Value::Object(fields) => {
            for (field, value) in fields {
                match field.as_str() {
                    "summary" | "description" => rename(value, WORDS),
                    "example" | "name" => rename(value, NAMES),
                    _ => describe_part(value),
                }
            }
        }
        _ => {}
    }
}

/// Replaces words in the texts of `value` and in the names of its fields.
fn rename(value: &mut Value, words: &[(&str, &str)]) {
    match value {
        Value::String(text) => *text = renamed(text, words),
        Value::Array(values) => values.iter_mut().for_each(|value| rename(value, words)),
        Value::Object(fields) => {
            let renamed = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                rename(&mut value, words);
                (renamed(&name, words), value)
            });
            *fields = renamed.collect();
        }
        _ => {}
    }
}

/// Returns `text` with every whole word of `words` replaced.
fn renamed(text: &str, words: &[(&str, &str)]) -> String {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-');
    let replaced = |word: &str| words.iter().find(|(from, _)| *from == word).map(|(_, to)| *to);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn whole_words_are_replaced_and_each_once() {
        assert_eq!(renamed("A post, a post's id: post_id", WORDS), "A hashtag, a hashtag's id: post_id");
        assert_eq!(renamed("é p-1 p-12 u-1\n\"view\":views", NAMES), "é rust p-12 p-1\n\"search\":searches");
        assert_eq!(renamed("", WORDS), "");
    }

    #[test]
    fn texts_examples_and_names_of_parameters_change_and_nothing_else_does() {
        let mut part = json!({
            "summary": "What a post has", "operationId": "post", "tags": ["post"],
            "parameters": [{"name": "post_id", "in": "path", "description": "The post", "example": "p-1"}],
            "responses": {"200": {"description": "A post's", "content": {"x": {"example": {"views": ["u-1", 3]}}}}}
        });
        describe_part(&mut part);
        let expected = json!({
            "summary": "What a hashtag has", "operationId": "post", "tags": ["post"],
            "parameters": [{"name": "hashtag", "in": "path", "description": "The hashtag", "example": "rust"}],
            "responses": {"200": {"description": "A hashtag's", "content": {"x": {"example": {"searches": ["p-1", 3]}}}}}
        });
        assert_eq!(part, expected);
    }
}
