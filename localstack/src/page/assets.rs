//! The files of the page, embedded: nothing is built, and nothing comes from elsewhere.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

/// What the page may load and where it may be shown: everything from here, nothing inline, never in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; \
                      trusted-types 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Every file, by its path.
pub(super) static ASSETS: [Asset; 11] = [
    Asset { path: "/", kind: "text/html; charset=utf-8", text: include_str!("assets/index.html") },
    Asset { path: "/page.css", kind: "text/css; charset=utf-8", text: include_str!("assets/page.css") },
    Asset { path: "/favicon.svg", kind: "image/svg+xml", text: include_str!("assets/favicon.svg") },
    Asset { path: "/page.js", kind: SCRIPT, text: include_str!("assets/page.js") },
    Asset { path: "/page/dom.js", kind: SCRIPT, text: include_str!("assets/page/dom.js") },
    Asset { path: "/page/live.js", kind: SCRIPT, text: include_str!("assets/page/live.js") },
    Asset { path: "/page/counters.js", kind: SCRIPT, text: include_str!("assets/page/counters.js") },
    Asset { path: "/page/chart.js", kind: SCRIPT, text: include_str!("assets/page/chart.js") },
    Asset { path: "/page/posts.js", kind: SCRIPT, text: include_str!("assets/page/posts.js") },
    Asset { path: "/page/trending.js", kind: SCRIPT, text: include_str!("assets/page/trending.js") },
    Asset { path: "/page/stack.js", kind: SCRIPT, text: include_str!("assets/page/stack.js") },
];

pub(super) struct Asset {
    pub(super) path: &'static str,
    kind: &'static str,
    text: &'static str,
}

impl Asset {
    /// The file, or that the browser has it already.
    pub(super) fn serve(&self, request: &HeaderMap) -> Response {
        let tag = self.tag();
        let has_it = request.get_all(header::IF_NONE_MATCH).iter().any(|tags| names(tags, &tag));
        let headers = [
            (header::ETAG, HeaderValue::from_str(&tag).expect("hexadecimal digits in quotes make a header")),
            (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
            (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
            (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
            (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
            (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
        ];
        if has_it {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        (headers, [(header::CONTENT_TYPE, self.kind)], self.text).into_response()
    }

    /// Weak: the same file may go out compressed.
    fn tag(&self) -> String {
        let mut hasher = DefaultHasher::new();
        self.text.hash(&mut hasher);
        format!("W/\"{:016x}\"", hasher.finish())
    }
}

/// Whether `tag` is one of the `tags` of an `If-None-Match`.
fn names(tags: &HeaderValue, tag: &str) -> bool {
    tags.to_str().is_ok_and(|tags| tags.split(',').any(|one| one.trim() == tag))
}
