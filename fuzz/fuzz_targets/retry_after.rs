//! See `duetime_sinks::fuzz::retry_after`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime_sinks::fuzz::retry_after(data));
