//! See `duetime_sinks::fuzz::addresses`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime_sinks::fuzz::addresses(data));
