//! See `duetime_redis::fuzz::server_says`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime_redis::fuzz::server_says(data));
