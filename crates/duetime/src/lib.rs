//! The hall: command line, configuration, wiring, drain. The only crate that names a concrete store,
//! ownership or sink.

/// The program.
#[must_use]
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
