//! See `duetime_http::fuzz::paths`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime_http::fuzz::paths(data));
