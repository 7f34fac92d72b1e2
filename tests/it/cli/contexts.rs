//! `duetime context`, and the node that a command talks to; `duetime init`.

use super::*;

/// Types a command as a user with this folder.
fn at_home(home: &std::path::Path, env: &[(&str, &str)], args: &[&str]) -> Said {
    let mut command = command(None, args);
    command.current_dir(home).env("HOME", home).env_remove("XDG_CONFIG_HOME").envs(env.iter().copied());
    said(command.output().expect("the program is there"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_talks_to_the_node_of_its_context_and_shows_the_token_to_no_other() {
    let secret = "a-token-of-this-test-1";
    let config = format!("[[auth.tokens]]\nname = \"ops\"\nsecret = \"{secret}\"\nscopes = [\"admin\"]\n");
    let node = Node::start_embedded(PROGRAM, &config).await;
    let home = tempfile::tempdir().unwrap();
    let (home, url) = (home.path(), node.url());
    std::fs::write(home.join("token"), secret).unwrap();
    let typed = |args: &[&str]| at_home(home, &[], args);
    assert!(typed(&["context", "list"]).done().out.contains("no contexts yet"));
    typed(&["context", "add", "shop", "--node", &url, "--token-file", "token"]).done();
    typed(&["context", "add", "shop", "--node", &url]).refused(1, &["--replace"]);
    typed(&["context", "add", "env", "--node", &url, "--token-env", "SHOP_TOKEN"]).done();
    let name = |said: Said| said.done().json()["name"].clone();
    assert_eq!(name(typed(&["--context", "shop", "whoami", "--json"])), "ops");
    assert_eq!(name(at_home(home, &[("SHOP_TOKEN", secret)], &["whoami", "--context", "env", "--json"])), "ops");
    assert_eq!(name(at_home(home, &[("DUETIME_CONTEXT", "shop")], &["whoami", "--json"])), "ops");
    typed(&["whoami", "--context", "env"]).refused(1, &["SHOP_TOKEN"]);
    typed(&["whoami", "--context", "shp"]).refused(1, &["did you mean \"shop\"?"]);
    typed(&["context", "use", "shop"]).done();
    assert_eq!(name(typed(&["whoami", "--json"])), "ops");
    // Who names a node shows it no token of a context.
    typed(&["whoami", "--node", &url]).refused(1, &["token_missing"]);
    typed(&["whoami", "--node", &url, "--context", "shop"]).refused(1, &["both name a node"]);
    let list = typed(&["context", "list"]).done().out;
    assert!(list.contains("shop") && list.contains("env SHOP_TOKEN") && !list.contains(secret), "{list}");
    typed(&["context", "remove", "shop"]).done();
    typed(&["context", "use", "shop"]).refused(1, &["shop"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_to_begin_with_is_one_that_a_node_takes() {
    let home = tempfile::tempdir().unwrap();
    let typed = |args: &[&str]| at_home(home.path(), &[], args);
    let made = typed(&["init", "--listen", "0.0.0.0:3830", "--with-token", "ops"]).done().out;
    assert!(made.contains("duetime.toml is written") && made.contains("token: "), "{made}");
    typed(&["check-config", "duetime.toml", "--offline"]).done();
    typed(&["init"]).refused(1, &["is there already"]);
    typed(&["init", "open.toml", "--listen", "0.0.0.0:3830"])
        .refused(1, &["no token is asked for", "nothing was written"]);
    assert!(!home.path().join("open.toml").exists());
}
