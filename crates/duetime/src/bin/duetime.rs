//! The program `duetime`.

fn main() -> std::process::ExitCode {
    duetime::main()
}
