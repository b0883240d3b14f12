//! Tests the OpenAPI document: a snapshot pins it, it has every route, and it is true of what is served. `docs/check
//! schemathesis` checks it as a document of OpenAPI, and calls the routes.

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
        let api = Api::start(Config::default(), with).await;
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
