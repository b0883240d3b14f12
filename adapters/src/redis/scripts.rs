//! The Lua scripts that write the cache of counters in Redis. Nothing else writes counts there, or standings, which say
//! up to when all changes are counted. The scripts read with `MGET`, for which a key of another type than a string is
//! absent, and `SET` replaces it.

use std::sync::OnceLock;

use redis::{Cmd, cmd};

/// Writes a value over the token that was given for it, if the token is still there. KEYS: the value. ARGV: the token,
/// the text, its lifetime in ms. Safe to repeat: the first copy takes the token's place.
pub(super) static FILL: Script = Script::new(
    r"
if redis.call('MGET', KEYS[1])[1] ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
",
);

/// Takes a partition over, as `tally_core::cached::Slot::take_over` does. KEYS: the standing. ARGV: the number, the
/// deployment, the place, the standing, its lifetime in ms. Answers the deployment whose standing it replaced, or its
/// own if there was none; or nothing if it did not take the partition over.
pub(super) static TAKE_OVER: Script = Script::new(
    r"
local function less(a, b) return #a < #b or #a == #b and a < b end
local of, at = string.match(redis.call('MGET', KEYS[1])[1] or '', '^3:%x+:%d+:([^:]*):(%d+):')
if of == ARGV[2] and less(ARGV[3], at) then return false end
redis.call('SET', KEYS[1], '3:' .. ARGV[1] .. ':0:' .. ARGV[2] .. ':' .. ARGV[4], 'PX', ARGV[5])
return of or ARGV[2]
",
);

/// Writes what the fold tells, as `tally_core::cached::Slot::tell` does. KEYS: the standing, then each value. ARGV: the
/// number, the least sequence number that it replaces, the one that it sets, the lifetime of the standing in ms, the
/// standing or an empty text; then text, version and lifetime of each value. Answers -1 where it writes nothing.
pub(super) static TELL: Script = Script::new(
    r"
local function less(a, b) return #a < #b or #a == #b and a < b end
local number, sequence, of, stated = string.match(redis.call('MGET', KEYS[1])[1] or '', '^3:(%x+):(%d+):([^:]*):(.*)$')
if number ~= ARGV[1] then return -1 end
if sequence == ARGV[3] then return 0 end
if less(sequence, ARGV[2]) or less(ARGV[3], sequence) then return -1 end
local written = 0
for nth = 2, #KEYS do
  local value, version, lifetime = ARGV[3 * nth], ARGV[3 * nth + 1], ARGV[3 * nth + 2]
  local held = redis.call('MGET', KEYS[nth])[1] or ''
  local under, older = string.match(held, '^2:(%x+):(%d+):')
  if under then older = less(older, version) else under, older = string.match(held, '^0:(%x+):'), true end
  if under == number and older then
    redis.call('SET', KEYS[nth], value, 'PX', lifetime)
    written = written + 1
  end
end
if ARGV[5] ~= '' then stated = ARGV[5] end
redis.call('SET', KEYS[1], '3:' .. number .. ':' .. ARGV[3] .. ':' .. of .. ':' .. stated, 'PX', ARGV[4])
return written
",
);

/// Gives the right to fill, as `tally_core::cached::Slot::begin_fill` does. KEYS: the standing, the value. ARGV: the
/// nonce, the lifetime of the right in ms. Answers the token, or nothing.
pub(super) static BEGIN: Script = Script::new(
    r"
local number, sequence = string.match(redis.call('MGET', KEYS[1])[1] or '', '^3:(%x+):(%d+):')
if not number or string.match(redis.call('MGET', KEYS[2])[1] or '', '^[02]:(%x+):') == number then return false end
local token = '0:' .. number .. ':' .. sequence .. ':' .. ARGV[1]
redis.call('SET', KEYS[2], token, 'PX', ARGV[2])
return token
",
);

/// A script whose keys are in one hash slot.
pub(super) struct Script {
    text: &'static str,
    digest: OnceLock<String>,
}

impl Script {
    const fn new(text: &'static str) -> Self {
        Self { text, digest: OnceLock::new() }
    }

    /// Builds a call by the digest, or by the text, which teaches the script to the server.
    pub(super) fn call(&self, keys: &[String], args: &[String], with_text: bool) -> Cmd {
        let mut call = if with_text { cmd("EVAL") } else { cmd("EVALSHA") };
        let digest = self.digest.get_or_init(|| redis::Script::new(self.text).get_hash().to_owned());
        call.arg(if with_text { self.text } else { digest }).arg(keys.len()).arg(keys).arg(args);
        call
    }
}
