//! See `duetime_sinks::fuzz::message_urls`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime_sinks::fuzz::message_urls(data));
