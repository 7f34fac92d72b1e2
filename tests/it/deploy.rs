//! What `deploy/` holds, with the tools that will read it: helm, kubectl, systemd, nfpm, buildah, Redis and etcd; and the tasks of
//! operators, with the commands that `docs/OPERATIONS.md` has for them.

mod backup;
mod charts;
mod packages;
mod release;
mod servers;
mod tasks;

use std::path::{Path, PathBuf};
use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// Where `./test` puts programs that Debian does not have.
fn tools() -> [PathBuf; 2] {
    let variable = |name: &str| {
        PathBuf::from(
            std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set; run the tests with `./test`")),
        )
    };
    [variable("DUETIME_TEST_SERVERS"), variable("DUETIME_TEST_PYTHON").parent().unwrap().to_path_buf()]
}

/// A command that finds these programs, in the root of the repository.
fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    let system = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(tools().into_iter().chain(std::env::split_paths(&system))).unwrap();
    command.env("PATH", path).current_dir(root());
    command
}

/// Whether it went well, and what it printed on both ways.
fn ran(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?} does not start ({error}); `./test --tools` installs what the tests need")
    });
    let printed = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), printed)
}

/// What it printed; it has to go well.
fn done(command: &mut Command) -> String {
    let (well, printed) = ran(command);
    assert!(well, "{command:?}\n{printed}");
    printed
}

/// A copy of the program without what only a debugger reads: packages of the tests' own program would be large.
fn stripped(folder: &Path) -> PathBuf {
    let program = folder.join("duetime");
    done(command("strip").args(["--strip-all", "-o"]).arg(&program).arg(PROGRAM));
    program
}
