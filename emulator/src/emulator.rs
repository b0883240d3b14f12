//! [`Emulator`], the emulated DynamoDB as its users hold it. It passes requests through injected faults to the engine
//! and returns the answers; `server` adds sockets, and `client` the SDK's interface.

use std::cell::LazyCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use parking_lot::{Mutex, MutexGuard};
use rand::RngExt;

use crate::clock::{Clock, Millis, millis};
use crate::config::{Config, Latency};
use crate::engine::Engine;
use crate::envelope;
use crate::error::{Error, Kind};
use crate::fault::{Asked, Fault, Faults, Verdict};
use crate::limits::GHOST_MILLIS;
use crate::op::{Call, StatementBatch};
use crate::policies::{self, Denied, Uses};

/// An in-memory DynamoDB. Clones refer to the same one.
#[derive(Clone, Debug)]
pub struct Emulator {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    clock: Clock,
    state: Mutex<State>,
}

/// Everything that a request can change, behind one lock.
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) faults: Faults,
    /// Requests whose clients have given up, by the time at which they are carried out and their order of arrival.
    pub(crate) ghosts: BTreeMap<(Millis, u64), Call>,
    pub(crate) ghosts_applied: u64,
    pub(crate) panics: u64,
    pub(crate) requests: BTreeMap<&'static str, u64>,
    pub(crate) uses: Uses,
    received: u64,
}

/// There is no answer, because the connection was closed or fell silent. The request may have been carried out, or may be
/// later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    /// The connection was closed.
    #[error("the connection was closed before an answer")]
    Closed,
    /// The connection stays silent.
    #[error("the connection stayed silent until it was closed")]
    Silent,
}

impl Emulator {
    /// A new, empty emulator. Its clock starts now.
    pub fn new(config: Config) -> Self {
        let clock = Clock::new(config.epoch);
        let mut faults = Faults::default();
        faults.set(config.faults.clone(), clock.now());
        let state = State {
            engine: Engine::new(config, clock.now()),
            faults,
            ghosts: BTreeMap::new(),
            ghosts_applied: 0,
            panics: 0,
            requests: BTreeMap::new(),
            uses: Uses::default(),
            received: 0,
        };
        Self { shared: Arc::new(Shared { clock, state: Mutex::new(state) }) }
    }

    /// Answers one request. Everything that is due, including late requests and expiries, happens first.
    pub async fn handle(&self, request: Request<Bytes>) -> Result<Response<Bytes>, Lost> {
        self.handle_without(request, Denied::new()).await
    }

    /// Answers one request, some statements of which are not allowed.
    pub(crate) async fn handle_without(
        &self,
        request: Request<Bytes>,
        denied: Denied,
    ) -> Result<Response<Bytes>, Lost> {
        let opened = catch_unwind(AssertUnwindSafe(|| envelope::open(&request)));
        let mut call = match opened.unwrap_or_else(|_| Err(self.state().panicked())) {
            Ok(call) => call,
            Err(error) => return Ok(self.answer(Err(error))),
        };
        if let Some(batch) = call.as_batch() {
            batch.deny(denied);
        }
        let Verdict { before, after, fault } = self.state().decide(&mut call, &request);
        drop(request);
        let call = self.deliver(call, before).await;
        let outcome = self.carry_out(call, fault).await;
        pause(after).await;
        Ok(self.answer(outcome?))
    }

    /// Delays a request. If its client gives up meanwhile, it arrives nevertheless.
    async fn deliver(&self, call: Call, way: Duration) -> Call {
        let mut under_way = UnderWay { emulator: self, call: Some(call), way };
        pause(way).await;
        under_way.call.take().expect("only the end of the way takes it")
    }

    async fn carry_out(&self, mut call: Call, fault: Option<Fault>) -> Result<Result<Vec<u8>, Error>, Lost> {
        match fault {
            None | Some(Fault::Latency { .. }) => Ok(self.state().run(call)),
            Some(Fault::Unprocessed) => {
                call.leave_some();
                Ok(self.state().run(call))
            }
            Some(fault @ (Fault::Throttle | Fault::Conflict)) => {
                Ok(Err(call.refused_by(fault, &mut self.state().engine.rng)))
            }
            Some(fault @ Fault::InternalError { applied }) => {
                let mut state = self.state();
                let error = call.refused_by(fault, &mut state.engine.rng);
                if applied.unwrap_or_else(|| state.engine.rng.random()) {
                    // The client gets the error, whatever the outcome was.
                    let _ = state.run(call);
                }
                Ok(Err(error))
            }
            Some(Fault::DropReply) => {
                let _ = self.state().run(call);
                Err(Lost::Closed)
            }
            Some(Fault::Outage) => Err(Lost::Closed),
            Some(Fault::Ghost { max_delay_ms, hang_ms }) => {
                self.state().haunt(call, max_delay_ms);
                if hang_ms == 0 {
                    return Err(Lost::Closed);
                }
                pause(Duration::from_millis(hang_ms)).await;
                Err(Lost::Silent)
            }
        }
    }

    /// The HTTP response for an outcome.
    pub(crate) fn answer(&self, outcome: Result<Vec<u8>, Error>) -> Response<Bytes> {
        let nth = self.state().next_request();
        envelope::seal(outcome, nth, self.shared.clock.now())
    }

    /// Refuses what the policies, if there are any, do not allow. Clients in this process need no role.
    pub(crate) fn admit(&self, request: &Request<Bytes>) -> Result<Denied, Error> {
        let mut state = self.state();
        let State { engine, uses, .. } = &mut *state;
        let Some(policies) = &engine.config.policies else { return Ok(Denied::new()) };
        policies.admit(request, &engine.config.region, uses)
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// The current state, after everything that was due.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        let mut state = self.shared.state.lock();
        state.tick(self.shared.clock.now());
        state
    }
}

struct UnderWay<'a> {
    emulator: &'a Emulator,
    call: Option<Call>,
    way: Duration,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.emulator.state().haunt(call, millis(self.way));
        }
    }
}

impl State {
    /// Advances the time, and carries out each late request at its own time.
    fn tick(&mut self, now: Millis) {
        while let Some(entry) = self.ghosts.first_entry().filter(|entry| entry.key().0 <= now) {
            let ((due, _), call) = entry.remove_entry();
            self.engine.tick(due);
            let _ = self.run(call);
            self.ghosts_applied += 1;
        }
        self.engine.tick(now);
    }

    fn decide(&mut self, call: &mut Call, request: &Request<Bytes>) -> Verdict {
        let operation = call.operation();
        *self.requests.entry(operation).or_default() += 1;
        let mut verdict = Verdict::default();
        if self.faults.are_set() {
            // What the request touches is only computed if a rule asks for it.
            let needs = LazyCell::new(|| policies::needs_of(request, &self.engine.config.region));
            let touches = |table: &str| needs.iter().any(|need| need.is_of(table));
            let asked = Asked { operation: Some(operation), action: call.action(), touches: &touches };
            verdict = self.faults.decide(&asked, self.engine.now, &mut self.engine.rng);
            if verdict.fault.is_none()
                && let Some(batch) = call.as_batch()
            {
                self.strike(batch, &mut verdict);
            }
        }
        let Engine { rng, config, .. } = &mut self.engine;
        if let Some(Latency { least, most }) = config.latency_of(operation) {
            verdict.delay(least, most, rng);
        }
        verdict
    }

    /// Applies the rules to each statement of a batch.
    fn strike(&mut self, batch: &mut StatementBatch, verdict: &mut Verdict) {
        for nth in 0..batch.len() {
            let Some((action, touched)) = batch.target(nth) else { continue };
            let touches = |table: &str| touched == table;
            let asked = Asked { operation: None, action: Some(action), touches: &touches };
            let struck = self.faults.decide(&asked, self.engine.now, &mut self.engine.rng);
            verdict.wait_for(struck);
            let Some(fault) = struck.fault else { continue };
            if !batch.strike(nth, fault, &mut self.engine.rng) {
                continue;
            }
            if let Fault::Ghost { max_delay_ms, .. } = fault {
                self.haunt(Call::BatchExecuteStatement(batch.alone(nth)), max_delay_ms);
            }
        }
    }

    fn run(&mut self, call: Call) -> Result<Vec<u8>, Error> {
        let engine = &mut self.engine;
        catch_unwind(AssertUnwindSafe(|| call.run(engine))).unwrap_or_else(|_| Err(self.panicked()))
    }

    fn panicked(&mut self) -> Error {
        self.panics += 1;
        Error::new(Kind::InternalServer, "The emulator has a bug: it panicked on this request")
    }

    /// Keeps a request to carry it out later.
    fn haunt(&mut self, call: Call, max_delay: Millis) {
        let delay = self.engine.rng.random_range(0..=max_delay.min(GHOST_MILLIS));
        let nth = self.next_request();
        self.ghosts.insert((self.engine.now + delay, nth), call);
    }

    fn next_request(&mut self) -> u64 {
        self.received += 1;
        self.received
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("now", &self.engine.now).field("requests", &self.requests).finish_non_exhaustive()
    }
}

async fn pause(duration: Duration) {
    if !duration.is_zero() {
        tokio::time::sleep(duration).await;
    }
}
