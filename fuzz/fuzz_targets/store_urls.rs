//! See `duetime_redis::fuzz::store_urls`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime_redis::fuzz::store_urls(data));
