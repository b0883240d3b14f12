//! Serves the OpenAPI document, which is generated from the routes, and the page that shows it, whose files are in the
//! binary.

use std::borrow::Cow;
use std::sync::Arc;

use axum::Router;
use axum::extract::RawPathParams;
use axum::extract::rejection::RawPathParamsRejection;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use bytes::Bytes;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{Schema, SchemaType, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    ComponentsBuilder, ContactBuilder, Content, Header, InfoBuilder, LicenseBuilder, OpenApi, Ref, RefOr, Required,
    ResponseBuilder, ServerBuilder,
};
use utoipa::{PartialSchema, ToSchema};
use utoipa_swagger_ui::Config;

use super::hashtags;
use crate::error::{LoggedCause, Problem, ProblemDocument};
use crate::value::Id;

/// The path of the document.
const DOCUMENT: &str = "/openapi.json";

/// The name of the token's scheme in the document.
const BEARER: &str = "bearer";

/// Problems that every route may answer.
const ANYWHERE: [(&str, &str); 6] = [
    ("400", "Something in the request is wrong; `parameter` names it where it is a parameter"),
    ("401", "A token is required, and the request does not have exactly one header with it"),
    ("403", "Another site's page asks a process that answers pages of its own host alone, or writes are closed"),
    ("414", "The path and query are too long"),
    ("429", "More requests than one client may make"),
    ("503", "The store cannot be read now; no number is made up"),
];

/// Problems of the routes that read a body, and of those that name a counter.
const OF_A_BODY: [(&str, &str); 3] =
    [("408", "The body took too long"), ("413", "The body is too large"), ("415", "Not JSON")];
const OF_A_COUNTER: (&str, &str) = ("404", "No such counter");

/// What the parts of a path mean, in their order, each with an example.
const PATH_PARTS: [(&str, &str, &str); 4] = [
    ("post_id", "The post", "p-1"),
    ("user_id", "The user", "u-1"),
    ("counter", "The counter's name", "retweets"),
    ("member", "The member", "u-1"),
];

/// The groups of operations.
const TAGS: [(&str, &str); 4] = [
    ("counts", "How many users like a post, as a number with its age and certainty"),
    ("likes", "Which users like a post, and saying so"),
    ("counters", "Every counter of a post or a hashtag: sets, which have members, and sums, which have amounts"),
    ("trends", "What gained most over a window of time, and whether that is proved"),
];

/// Returns the routes of the page and the document, which need no token.
pub(super) fn routes(document: &OpenApi) -> Router {
    let document = Bytes::from(document.to_json().expect("the document is made of texts and numbers"));
    let config = Arc::new(Config::from(DOCUMENT));
    let page = get(async move |path: Result<RawPathParams, RawPathParamsRejection>| match path {
        Ok(path) => asset(&path, config),
        Err(_) => Problem::BadPath.into_response(),
    });
    Router::new()
        .route(DOCUMENT, get(async move || ([(header::CONTENT_TYPE, "application/json")], document)))
        .route("/docs", get(async || Redirect::to("/docs/")))
        .route("/docs/", page.clone())
        .route("/docs/{*asset}", page)
}

/// Returns a file of the page. It is looked up among those in the binary, so no path leads to the file system.
fn asset(path: &RawPathParams, config: Arc<Config<'static>>) -> Response {
    let name = path.iter().next().map_or("", |(_, name)| name);
    match utoipa_swagger_ui::serve(name, config) {
        Ok(Some(file)) => {
            let kind = HeaderValue::from_str(&file.content_type);
            let kind = kind.unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
            let policy = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:";
            // The files have megabytes; the answer borrows them.
            let bytes = match file.bytes {
                Cow::Borrowed(bytes) => Bytes::from_static(bytes),
                Cow::Owned(bytes) => Bytes::from(bytes),
            };
            let headers = [
                (header::CONTENT_TYPE, kind),
                (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy)),
                (HeaderName::from_static("x-content-type-options"), HeaderValue::from_static("nosniff")),
            ];
            (headers, bytes).into_response()
        }
        Ok(None) => Problem::NoRoute.into_response(),
        Err(error) => Problem::Internal(LoggedCause::new(&error)).into_response(),
    }
}

/// Adds to the document what holds for all routes.
pub(super) fn describe(mut document: OpenApi) -> OpenApi {
    let license = LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build();
    document.info = InfoBuilder::new()
        .title("Tally counts")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "How many users like a post, what its other counters come to, whether that is exact (`exact`), what it \
             includes (`as_of`), and whether that is recent (`fresh`). \
             Errors are problem+json with a stable `type`.",
        ))
        .contact(Some(ContactBuilder::new().name(Some("Tally")).build()))
        .license(Some(license))
        .build();
    let server = |url: &str, description: &str| ServerBuilder::new().url(url).description(Some(description)).build();
    document.servers = Some(vec![
        server("/", "The process that serves this document"),
        server("http://127.0.0.1:8080", "The local stack"),
    ]);
    let tag = |(name, description): (&str, &str)| TagBuilder::new().name(name).description(Some(description)).build();
    document.tags = Some(TAGS.map(tag).to_vec());
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    let components = document.components.take().unwrap_or_else(|| ComponentsBuilder::new().build());
    let components = ComponentsBuilder::from(components)
        .schema(ProblemDocument::name(), ProblemDocument::schema())
        .security_scheme(BEARER, bearer)
        .build();
    document.components = Some(components);
    for (path, item) in &mut document.paths.paths {
        for operation in [&mut item.get, &mut item.put, &mut item.post, &mut item.delete].into_iter().flatten() {
            describe_operation(path, operation);
            hashtags::describe(path, operation);
        }
    }
    document
}

fn describe_operation(path: &str, operation: &mut Operation) {
    operation.operation_id = operation.operation_id.as_deref().map(camel_case);
    describe_path(path, operation);
    // A token is optional in the document, since a process may run without one.
    operation.security =
        Some(vec![SecurityRequirement::default(), SecurityRequirement::new::<_, [&str; 0], _>(BEARER, [])]);
    operation.parameters.iter_mut().flatten().for_each(never_null);
    let of_a_body = OF_A_BODY.into_iter().filter(|_| operation.request_body.is_some());
    let of_a_counter = path.contains("{counter}").then_some(OF_A_COUNTER);
    let may_be: Vec<_> = ANYWHERE.into_iter().chain(of_a_body).chain(of_a_counter).collect();
    for (status, description) in may_be {
        let problem = Content::new(Some(Ref::from_schema_name(ProblemDocument::name())));
        let mut response = ResponseBuilder::new().description(description).content("application/problem+json", problem);
        if matches!(status, "429" | "503") {
            let mut header = Header::new(u64::schema());
            header.description = Some("Seconds until it is worth trying again".to_owned());
            response = response.header("retry-after", header);
        }
        // What the route itself describes is kept.
        operation.responses.responses.entry(status.to_owned()).or_insert_with(|| response.build().into());
    }
}

/// Turns a handler's name into an operation's.
fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

/// Adds the parts of the path that the operation does not describe itself.
fn describe_path(path: &str, operation: &mut Operation) {
    let named = |name: &str| path.split(['{', '}']).any(|part| part == name || (part, name) == ("hashtag", "post_id"));
    let parameters = operation.parameters.take().unwrap_or_default();
    let missing = PATH_PARTS.into_iter().filter(|(name, ..)| {
        named(name) && !parameters.iter().any(|it| matches!(it, RefOr::T(it) if it.name == *name))
    });
    let missing = missing.map(|(name, description, example)| {
        let schema = if name == "counter" { String::schema() } else { Ref::from_schema_name(Id::name()).into() };
        let parameter = ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
        let parameter = parameter.description(Some(description)).example(Some(example.into())).schema(Some(schema));
        parameter.build().into()
    });
    let all: Vec<_> = missing.collect::<Vec<_>>().into_iter().chain(parameters).collect();
    operation.parameters = Some(all).filter(|all| !all.is_empty());
}

/// Removes `null` from the types of an optional parameter: it may be left out, but is not null.
fn never_null(parameter: &mut RefOr<Parameter>) {
    let RefOr::T(parameter) = parameter else { return };
    let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema else { return };
    if let SchemaType::Array(types) = &mut schema.schema_type {
        types.retain(|kind| *kind != Type::Null);
        if let [kind] = types.as_slice() {
            schema.schema_type = SchemaType::Type(kind.clone());
        }
    }
}
