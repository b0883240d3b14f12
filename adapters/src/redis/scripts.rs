//! The two scripts: the only writers of counts.

use std::sync::LazyLock;

use redis::{Cmd, cmd};

/// Replaces a count where `Served::replaces` says so, or a fill under way; writes nothing where there is nothing. ARGV: the
/// count, its version, whether it is exact, its `as_of`, its lifetime in ms. Numbers are compared as digits, longer ones
/// being greater: Lua's numbers end at 2^53. Safe to repeat: a count does not replace itself.
pub(super) static UPDATE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local function less(a, b) return #a < #b or #a == #b and a < b end
local held = redis.call('GET', KEYS[1])
if not held then return 0 end
if string.sub(held, 1, 2) ~= '0:' then
  local version, exact, as_of = string.match(held, '^1:(%d+):%-?%d+:([01]):(%d+)$')
  if not version or less(ARGV[2], version) then return 0 end
  if version == ARGV[2] and (exact > ARGV[3] or exact == ARGV[3] and not less(as_of, ARGV[4])) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[5])
return 1
",
    )
});

/// Writes a count in the place of the token that was given for it, if the token is still there. ARGV: the token, the count,
/// its lifetime in ms. Safe to repeat: the first copy takes the token's place.
pub(super) static FILL: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
",
    )
});

/// A script of one key.
pub(super) struct Script {
    text: &'static str,
    digest: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, digest: redis::Script::new(text).get_hash().to_owned() }
    }

    /// A call by the digest, or by the text, which teaches it to the server.
    pub(super) fn call(&self, key: &str, args: &[String], with_text: bool) -> Cmd {
        let mut call = if with_text { cmd("EVAL") } else { cmd("EVALSHA") };
        call.arg(if with_text { self.text } else { &self.digest }).arg(1).arg(key).arg(args);
        call
    }
}
