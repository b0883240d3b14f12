//! ClientRequestTokens: a transaction that is sent again within ten minutes is not carried out again.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::clock::Millis;
use crate::error::{Error, Kind};
use crate::limits::TOKEN_MILLIS;

/// The tokens of completed transactions, with a fingerprint of each request.
#[derive(Debug, Default)]
pub(crate) struct Tokens {
    done: HashMap<String, u64>,
    expiry: VecDeque<(Millis, String)>,
}

impl Tokens {
    /// Whether this transaction was carried out already. The same token with another transaction is refused.
    pub(crate) fn is_done(&mut self, token: &str, fingerprint: u64, now: Millis) -> Result<bool, Error> {
        while let Some((_, token)) = self.expiry.pop_front_if(|(done, _)| *done + TOKEN_MILLIS < now) {
            self.done.remove(&token);
        }
        match self.done.get(token) {
            None => Ok(false),
            Some(known) if *known == fingerprint => Ok(true),
            Some(_) => Err(Error::new(
                Kind::IdempotentParameterMismatch,
                "The provided client token was already used with a different request",
            )),
        }
    }

    pub(crate) fn remember(&mut self, token: String, fingerprint: u64, now: Millis) {
        self.expiry.push_back((now, token.clone()));
        self.done.insert(token, fingerprint);
    }
}
