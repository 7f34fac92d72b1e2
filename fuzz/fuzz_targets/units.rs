//! See `duetime_core::fuzz::units`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| duetime_core::fuzz::units(data));
