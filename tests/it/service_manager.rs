//! A node under a service manager (systemd's `Type=notify`), which a socket of our own stands for.

use std::time::Duration;

use duetime_testkit::servers::Node;
use tokio::net::UnixDatagram;

const PROGRAM: &str = env!("CARGO_BIN_EXE_duetime-under-test");
/// The manager's limit: a node that sends no sign of life for this long is ended.
const WATCHDOG: Duration = Duration::from_millis(800);
/// Longest wait for a message of the node.
const PATIENCE: Duration = Duration::from_secs(20);
const GRACE: Duration = Duration::from_secs(10);

struct Manager {
    socket: UnixDatagram,
    _folder: tempfile::TempDir,
    env: Vec<(&'static str, String)>,
}

impl Manager {
    fn listen() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        let limit = WATCHDOG.as_micros().to_string();
        let env = vec![("NOTIFY_SOCKET", path.to_str().unwrap().to_owned()), ("WATCHDOG_USEC", limit)];
        Self { socket, _folder: folder, env }
    }

    async fn next(&self) -> String {
        let mut buffer = [0; 4096];
        let length = tokio::time::timeout(PATIENCE, self.socket.recv(&mut buffer)).await.expect("a message").unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    /// The next message with this line; those before it, without signs of life.
    async fn until(&self, line: &str) -> (String, Vec<String>) {
        let mut before = Vec::new();
        loop {
            let sent = self.next().await;
            if sent.lines().any(|given| given == line) {
                return (sent, before);
            }
            if sent.trim() != "WATCHDOG=1" {
                before.push(sent);
            }
        }
    }

    /// Whether nothing is sent for as long as the manager would wait.
    async fn is_silent(&self) -> bool {
        let mut buffer = [0; 4096];
        while self.socket.try_recv(&mut buffer).is_ok() {}
        tokio::time::timeout(WATCHDOG, self.socket.recv(&mut buffer)).await.is_err()
    }
}

#[tokio::test]
async fn a_service_manager_sees_ready_signs_of_life_reloads_and_the_end() {
    let manager = Manager::listen();
    let mut node = Node::start_with(PROGRAM, "embedded:data", "", manager.env.clone()).await;
    let (_, before) = manager.until("READY=1").await;
    assert!(before.is_empty(), "{before:?}");
    for _ in 0..3 {
        manager.until("WATCHDOG=1").await;
    }

    node.stall().await;
    assert!(manager.is_silent().await, "a node that stands still shows life");
    node.resume();
    manager.until("WATCHDOG=1").await;

    node.sighup();
    let (reloading, _) = manager.until("RELOADING=1").await;
    assert!(reloading.lines().any(|line| line.starts_with("MONOTONIC_USEC=")), "{reloading}");
    let (_, between) = manager.until("READY=1").await;
    assert!(between.is_empty(), "{between:?}");

    assert!(node.sigterm(GRACE).await.success(), "{}", node.output());
    let (_, before) = manager.until("STOPPING=1").await;
    assert!(before.is_empty(), "{before:?}");
}

#[tokio::test]
async fn a_node_that_waits_for_its_store_is_not_ready_and_says_what_it_waits_for() {
    let manager = Manager::listen();
    let folder = tempfile::tempdir().unwrap();
    let mut program = std::process::Command::new(PROGRAM);
    program.current_dir(folder.path()).args(["serve", "--store", "redis://127.0.0.1:1", "--listen", "127.0.0.1:0"]);
    let mut program = program.envs(manager.env.clone()).spawn().unwrap();
    let sent = manager.next().await;
    program.kill().unwrap();
    program.wait().unwrap();
    assert_eq!(sent.trim(), "STATUS=waiting for the store");
}

#[tokio::test]
async fn a_node_whose_manager_is_gone_serves_all_the_same() {
    let manager = Manager::listen();
    let env = manager.env.clone();
    drop(manager);
    let mut node = Node::start_with(PROGRAM, "embedded:data", "", env).await;
    assert!(node.sigterm(GRACE).await.success(), "{}", node.output());
}
