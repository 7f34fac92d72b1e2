//! See `duetime_http::fuzz::items`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime_http::fuzz::items(data));
