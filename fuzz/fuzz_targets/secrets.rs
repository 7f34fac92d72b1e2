//! See `duetime::fuzz::secrets`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime::fuzz::secrets(data));
