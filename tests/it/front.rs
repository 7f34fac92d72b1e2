//! Who gets in: a browser with a foreign page, TLS, tokens that change, and clients that hold on.

mod attack;
mod browser;
mod clear_text;
mod reload;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
