//! See `duetime::fuzz::config`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime::fuzz::config(data));
