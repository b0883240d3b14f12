//! Tests the OpenAPI document: a snapshot pins it, it has every route, and it is true of what is served.

use std::collections::BTreeSet;

use serde_json::Value;
use tally_count_api::{Config, routes};

use crate::harness::{Api, WRITING, With, ask, get};

fn document() -> Value {
    serde_json::from_str(&routes::document().to_json().unwrap()).unwrap()
}

fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().iter();
        methods.map(move |(method, operation)| (path.clone(), method.clone(), operation.clone()))
    });
    operations.collect()
}

#[test]
fn the_document_is_what_clients_were_generated_from() {
    insta::assert_snapshot!(serde_json::to_string_pretty(&document()).unwrap());
}

#[test]
fn every_reference_leads_somewhere_and_every_operation_is_complete() {
    let document = document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"));
    let mut ids = BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap().to_owned();
        assert!(ids.insert(id.clone()), "{id} twice");
        assert!(operation["summary"].as_str().is_some_and(|summary| !summary.is_empty()), "{id}");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.values().all(|response| response["description"].is_string()), "{id}");
        for status in ["400", "401", "414", "429", "503"] {
            assert!(operation["responses"][status].is_object(), "{method} {path} says nothing of {status}");
        }
        for name in path.split('/').filter_map(|part| part.strip_prefix('{')) {
            let name = name.trim_end_matches('}');
            let described = operation["parameters"].as_array().unwrap();
            assert!(
                described.iter().any(|it| it["name"] == name && it["in"] == "path" && it["required"] == true),
                "{id} {name}"
            );
        }
    }
    let text = document.to_string();
    assert!(!text.contains("\"null\""), "a value that is absent is left out");
    assert!(document["servers"][0]["url"].is_string());
    let tags: BTreeSet<_> = document["tags"].as_array().unwrap().iter().map(|tag| tag["name"].as_str()).collect();
    for (path, _, operation) in operations(&document) {
        assert!(operation["tags"].as_array().unwrap().iter().all(|tag| tags.contains(&tag.as_str())), "{path}");
        assert!(operation["description"].is_string(), "{path}");
    }
    let id = &document["components"]["schemas"]["Id"];
    assert!(id["pattern"].is_string() && id["maxLength"] == 256, "{id}");
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
}

fn collect(value: &Value, references: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                references.push(reference.clone());
            }
            fields.values().for_each(|value| collect(value, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}

/// A target of a path.
fn target(path: &str) -> String {
    let counter = match (path.contains("{hashtag}"), path.ends_with("/events")) {
        (false, false) => "likes",
        (false, true) => "views",
        (true, false) => "posts",
        (true, true) => "searches",
    };
    let target = path.replace("{post_id}", "p").replace("{user_id}", "u").replace("{member}", "u");
    target.replace("{counter}", counter).replace("{hashtag}", "h")
}

#[tokio::test]
async fn what_is_described_is_served_and_what_is_off_is_refused_by_name() {
    for with in [WRITING, With::default()] {
        let api = Api::counting(Config::default(), with).await;
        let served = get(api.address, "/openapi.json").await;
        assert_eq!(served.header("content-type"), Some("application/json"));
        let described = operations(&served.json());
        assert_eq!(described.len(), if with.writes { 30 } else { 20 });
        for (path, method, operation) in operations(&document()) {
            let is_served = described.contains(&(path.clone(), method.clone(), operation));
            if is_served && path.ends_with(":stream") {
                continue;
            }
            let answer = ask(api.address, &method.to_uppercase(), &target(&path)).await;
            let status = answer.status.as_u16();
            if is_served {
                assert!(![404, 405].contains(&status), "{method} {path}: {status}");
                continue;
            }
            let off = if path.starts_with("/v1/top") { "lists-off" } else { "writes-off" };
            assert_eq!((status, answer.problem().as_str()), (404, off), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn the_page_is_served_from_the_binary_and_nothing_else_is() {
    let api = Api::start(Config::default(), With::default()).await;
    assert_eq!(get(api.address, "/docs").await.status, 303);
    let page = get(api.address, "/docs/").await;
    assert_eq!(page.status, 200);
    assert!(String::from_utf8_lossy(&page.body).contains("swagger-ui"));
    for asset in ["swagger-ui.css", "swagger-ui-bundle.js", "swagger-initializer.js"] {
        assert_eq!(get(api.address, &format!("/docs/{asset}")).await.status, 200, "{asset}");
    }
    let initializer = get(api.address, "/docs/swagger-initializer.js").await;
    assert!(String::from_utf8_lossy(&initializer.body).contains("/openapi.json"));
    for path in ["x", "../Cargo.toml", "%2e%2e%2fCargo.toml", "..%5c..%5cetc%5cpasswd", "/etc/passwd", "%00", "%ff"] {
        let answer = get(api.address, &format!("/docs/{path}")).await;
        assert!([400, 404].contains(&answer.status.as_u16()), "{path}: {}", answer.status);
        answer.problem();
    }
}
