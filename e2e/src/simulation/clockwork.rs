//! The process's source of entropy, replaced by one that is wound up with a seed: the standard library's maps and tokio's
//! choices among equals draw their keys from it, and would make two runs of one seed differ.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tally_service::Chance;

static WOUND: AtomicBool = AtomicBool::new(false);
static STATE: AtomicU64 = AtomicU64::new(0);

/// Makes everything drawn from now on follow from `seed`.
pub(crate) fn wind(seed: u64) {
    STATE.store(seed, Ordering::Relaxed);
    WOUND.store(true, Ordering::Relaxed);
}

/// Fills `bytes` from the seed, or from the system where there is none; whether that could be done.
fn fill(bytes: &mut [u8]) -> bool {
    if !WOUND.load(Ordering::Relaxed) {
        return File::open("/dev/urandom").and_then(|mut file| file.read_exact(bytes)).is_ok();
    }
    let chance = Chance::seeded(STATE.fetch_add(1, Ordering::Relaxed));
    for part in bytes.chunks_mut(8) {
        part.copy_from_slice(&chance.token().to_le_bytes()[..part.len()]);
    }
    true
}

#[expect(unsafe_code, reason = "the standard library looks this symbol up: the one way to give its maps a seed")]
mod symbol {
    /// What libc's function of this name does, without flags.
    ///
    /// # Safety
    /// `buffer` must be valid for `length` bytes.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn getrandom(buffer: *mut u8, length: usize, _flags: u32) -> isize {
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
        if super::fill(bytes) { isize::try_from(length).unwrap_or(-1) } else { -1 }
    }
}
