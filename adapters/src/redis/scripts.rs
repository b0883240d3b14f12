//! The two scripts: the only writers of counts.

use std::sync::LazyLock;

use redis::{Cmd, cmd};

/// Replaces a count that is older, one of the same version that was inexact by one that is exact, or a fill under way;
/// writes nothing where there is nothing. ARGV: the count, its version, whether it is exact, its lifetime in ms. Versions
/// are compared as digits, longer ones being greater: Lua's numbers end at 2^53.
pub(super) static UPDATE: LazyLock<Script> = LazyLock::new(|| {
    Script::new(
        r"
local held = redis.call('GET', KEYS[1])
if not held then return 0 end
if string.sub(held, 1, 2) ~= '0:' then
  local version, exact = string.match(held, '^1:(%d+):%-?%d+:([01]):')
  if not version or #version > #ARGV[2] or (#version == #ARGV[2] and version > ARGV[2]) then return 0 end
  if version == ARGV[2] and exact >= ARGV[3] then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[4])
return 1
",
    )
});

/// Writes a count in the place of the token that was given for it, if that still stands. ARGV: the token, the count, its
/// lifetime in ms.
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
