//! See `duetime_http::fuzz::queries`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime_http::fuzz::queries(data));
