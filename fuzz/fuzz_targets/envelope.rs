//! See `duetime_core::fuzz::envelope`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime_core::fuzz::envelope(data));
