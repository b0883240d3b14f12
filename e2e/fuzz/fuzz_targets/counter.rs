#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let target = tally_e2e::fuzz::TARGETS.iter().find(|target| target.name == "counter");
    (target.expect("the target exists").run)(data);
});
