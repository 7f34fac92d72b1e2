//! See `duetime_store_redis::fuzz::replies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime_store_redis::fuzz::replies(data));
