//! The files for Redis and etcd, on real servers.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use duetime_testkit::servers::{Node, RedisOptions, RedisServer, free_port};

use super::{PROGRAM, command, done, ran, root};

/// Longest wait for a server of ours to serve.
const SERVES_WITHIN: Duration = Duration::from_secs(30);

fn file(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

/// The lines of a `redis.conf` that say something, but for where it listens.
fn lines(text: &str) -> Vec<String> {
    let own = ["bind", "port", "protected-mode", "aclfile", "include", "cluster-config-file", "appendonly", "save"];
    text.lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .filter(|line| !own.contains(&line.split_whitespace().next().unwrap()))
        .map(str::to_owned)
        .collect()
}

/// The users of `duetime.acl` as they are, as a line of `redis.conf`.
fn with_users() -> String {
    format!("aclfile {}", root().join("deploy/redis/duetime.acl").display())
}

#[test]
fn the_user_of_redis_is_the_one_that_the_documents_describe() {
    let page = file("docs/OPERATIONS.md");
    let row = page.lines().find(|line| line.starts_with("| ACL user |")).unwrap();
    let documented = row.split('`').nth(1).unwrap().replace('\\', "");
    let acl = file("deploy/redis/duetime.acl");
    let user: Vec<&str> =
        acl.lines().find(|line| line.starts_with("user duetime")).unwrap().split_whitespace().collect();
    for right in documented.split_whitespace().chain(["+cluster|slots", "+asking", "+role", "+wait"]) {
        assert!(user.contains(&right), "deploy/redis/duetime.acl lacks {right}");
    }
    let other = |right: &&&str| {
        right.starts_with(['+', '~', '&']) && !documented.split_whitespace().any(|known| known == **right)
    };
    let extra: Vec<&&str> = user.iter().filter(other).collect();
    assert_eq!(extra, [&"+cluster|slots", &"+asking", &"+wait", &"+role"], "more rights than are documented");
}

#[tokio::test]
async fn a_redis_of_these_files_passes_check_config_and_serves_a_node_as_its_user() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = lines(&file("deploy/redis/redis.conf"));
    settings.push(with_users());
    let redis =
        RedisServer::start_with(RedisOptions { append_only: true, lines: settings, ..RedisOptions::default() }).await;
    let url = redis.url().replacen("redis://", "redis://duetime:change-me@", 1);
    let config = folder.path().join("duetime.toml");
    std::fs::write(&config, format!("[store]\nurl = {url:?}\n")).unwrap();
    std::fs::set_permissions(&config, std::fs::Permissions::from_mode(0o600)).unwrap();
    let (well, printed) = ran(command(PROGRAM).arg("check-config").arg(&config));
    assert!(well && !printed.contains("warning"), "{printed}");
    let node = Node::start(PROGRAM, &url, "").await;
    let made = done(command(PROGRAM).args(["topic", "create", "orders", "--node", &node.url()]));
    assert!(made.contains("orders"), "{made}");
    assert!(!node.output().contains("WARN"), "{}", node.output());
}

/// A child that ends with the test.
struct Child(std::process::Child);

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn an_etcd_of_this_file_serves() {
    let folder = tempfile::tempdir().unwrap();
    let (client, peer) = (free_port(), free_port());
    let text = file("deploy/etcd/etcd.conf.yml")
        .replace("2379", &client.to_string())
        .replace("2380", &peer.to_string())
        .replace("/var/lib/etcd", folder.path().join("data").to_str().unwrap());
    let config = folder.path().join("etcd.conf.yml");
    std::fs::write(&config, text).unwrap();
    let log = std::fs::File::create(folder.path().join("log")).unwrap();
    let _etcd = Child(command("etcd").arg("--config-file").arg(&config).stderr(log).spawn().unwrap());
    let begun = tokio::time::Instant::now();
    let healthy =
        || ran(command("etcdctl").arg(format!("--endpoints=127.0.0.1:{client}")).args(["endpoint", "health"])).0;
    while !healthy() {
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
        duetime_testkit::in_time!(begun.elapsed() < SERVES_WITHIN, "etcd does not serve:\n{log}");
    }
}

/// Six servers of these files, but for the lines that are not `kept`, and their addresses.
async fn six(kept: impl Fn(&str) -> bool) -> (Vec<RedisServer>, Vec<String>) {
    let mut settings = lines(&file("deploy/redis/redis.conf"));
    settings.extend(lines(&file("deploy/redis/cluster.conf")));
    settings.retain(|line| kept(line));
    settings.push(with_users());
    let mut servers = Vec::new();
    for _ in 0..6 {
        let options = RedisOptions { lines: settings.clone(), ..RedisOptions::default() };
        servers.push(RedisServer::start_with(options).await);
    }
    let addresses = servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    (servers, addresses)
}

#[tokio::test]
async fn six_servers_of_these_files_become_a_cluster_whose_replicas_follow() {
    let (_servers, addresses) = six(|_| true).await;
    let said = done(command("deploy/redis/cluster").arg("1").args(&addresses).env("REDISCLI_AUTH", "change-me-too"));
    assert!(said.contains("3 replicas follow their masters"), "{said}");
    let url = format!("redis-cluster://duetime:change-me@{}", addresses.join(","));
    let node = Node::start(PROGRAM, &url, "").await;
    done(command(PROGRAM).args(["topic", "create", "orders", "--shards", "12", "--node", &node.url()]));
    let status = done(command(PROGRAM).args(["status", "--node", &node.url()]));
    assert!(status.contains("able to serve"), "{status}");
}

#[tokio::test]
async fn a_cluster_whose_replicas_may_not_follow_is_not_called_laid_out() {
    let (_servers, addresses) = six(|line| !line.starts_with("master")).await;
    let mut cluster = command("deploy/redis/cluster");
    cluster.arg("1").args(&addresses).env("REDISCLI_AUTH", "change-me-too").env("SECONDS_MAX", "3");
    let (well, said) = ran(&mut cluster);
    assert!(!well && said.contains("0 of 3 replicas follow their masters") && said.contains("masterauth"), "{said}");
}
