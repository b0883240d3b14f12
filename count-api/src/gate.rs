//! What every request to a group of routes passes: its client's rate, then the group's token. A client without the token
//! is held to the rate as well, so it cannot guess quickly.

use axum::Router;
use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};

use crate::auth::Guard;
use crate::error::Problem;
use crate::limits::{Peer, Rate};

#[derive(Clone)]
pub struct Gate {
    pub rate: Rate,
    pub guard: Guard,
}

impl Gate {
    /// Whether a request from `peer` with these headers may pass now. It counts towards the rate if it does.
    pub fn admits(&self, peer: Option<&Peer>, headers: &HeaderMap) -> Result<(), Problem> {
        self.rate.admit(peer, headers)?;
        self.guard.admits(headers)
    }

    /// `routes` behind this gate.
    pub fn before<S: Clone + Send + Sync + 'static>(self, routes: Router<S>) -> Router<S> {
        let stands_open = !self.rate.is_limited() && !self.guard.is_closed();
        if stands_open { routes } else { routes.route_layer(from_fn_with_state(self, pass)) }
    }
}

async fn pass(State(gate): State<Gate>, request: Request, next: Next) -> Response {
    match gate.admits(request.extensions().get(), request.headers()) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}
