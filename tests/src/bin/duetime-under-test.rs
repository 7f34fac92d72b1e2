//! The program itself, built for the tests: a plain `cargo test` builds no other package's program.

fn main() -> std::process::ExitCode {
    duetime::main()
}
