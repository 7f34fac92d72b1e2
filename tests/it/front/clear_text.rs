//! A node has the hashes of its tokens in memory, and not the tokens: neither after its start, nor after it read its
//! configuration again.
//!
//! What is sent with a request is in the memory of its connection until that is used for something else, and a variable
//! of the environment is there for as long as the process.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::time::Duration;

use duetime_testkit::servers::Node;
use duetime_testkit::violation::{cannot_run, violated};
use duetime_testkit::wait::{Because, let_pass};
use tokio::time::Instant;

use super::PROGRAM;
use crate::test_node::client;

const PATIENCE: Duration = Duration::from_secs(20);
/// Never sent with a request.
const WRITTEN: &str = "a-token-that-is-written-out-W7q2";
const IN_FILE: &str = "a-token-that-is-in-a-file-4kZ9x1";
const LATER: &str = "a-token-that-is-added-later-B3m8";
/// The password of a sink is needed as it is: it shows that what is in the memory is found.
const NEEDED: &str = "a-token-that-a-sink-has-to-show!";
/// What they all begin with.
const MARK: &[u8] = b"a-token-that-";

/// What is read of the memory at once.
const PIECE_BYTES: u64 = 1 << 20;

/// What the process has in its memory from [`MARK`] on, each as long as a token; `None`: nobody may look.
fn marked(process: u32) -> Option<Vec<String>> {
    let mut memory = File::open(format!("/proc/{process}/mem")).ok()?;
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).ok()?;
    let (mut found, zeros) = (Vec::new(), vec![0; PIECE_BYTES as usize]);
    for line in maps.lines().filter(|line| line.contains(" rw") && !line.contains("[v")) {
        let (from, to) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [from, to] = [from, to].map(|address| u64::from_str_radix(address, 16).unwrap());
        for at in (from..to).step_by(PIECE_BYTES as usize) {
            // One that goes beyond the end of the piece is whole all the same.
            let mut piece = vec![0; (PIECE_BYTES + WRITTEN.len() as u64).min(to - at) as usize];
            // What is only reserved cannot be read, or has nothing but zeros.
            let is_read = memory.seek(SeekFrom::Start(at)).is_ok() && memory.read_exact(&mut piece).is_ok();
            if !is_read || zeros.starts_with(&piece[..piece.len().min(zeros.len())]) {
                continue;
            }
            let begins = memchr::memmem::find_iter(&piece, MARK).filter(|begin| *begin < PIECE_BYTES as usize);
            let texts = begins.filter_map(|begin| piece.get(begin..begin + WRITTEN.len()));
            found.extend(texts.map(|text| String::from_utf8_lossy(text).into_owned()));
        }
    }
    Some(found)
}

fn config(tokens: &[&str]) -> String {
    let written = tokens.iter().enumerate().map(|(n, secret)| {
        format!("[[auth.tokens]]\nname = \"written-{n}\"\nscopes = [\"admin\"]\nsecret = {secret:?}\n")
    });
    let file = "[[auth.tokens]]\nname = \"file\"\nscopes = [\"admin\"]\nsecret = { file = \"token\" }\n";
    let sink = "[sinks.hook]\ntype = \"http\"\nurl = \"http://127.0.0.1:1/\"\nallow = [\"127.0.0.1\"]\n";
    format!("{}{file}{sink}headers = {{ authorization = {NEEDED:?} }}\n", written.collect::<String>())
}

#[tokio::test]
async fn a_token_is_not_in_the_memory_of_a_node_after_it_was_read() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, format!("{IN_FILE}\n")).unwrap();
    let of = |tokens: &[&str]| config(tokens).replace("\"token\"", &format!("{token:?}"));
    let node = Node::start_embedded(PROGRAM, &of(&[WRITTEN])).await;
    if marked(node.id()).is_none() {
        return cannot_run("the memory of another process may not be read here; run the tests as root");
    }
    let clean = |when: &str| {
        let found = marked(node.id()).unwrap();
        assert!(found.iter().any(|text| text == NEEDED), "nothing is found in the memory");
        if let Some(secret) = found.iter().find(|text| [WRITTEN, IN_FILE, LATER].contains(&text.as_str())) {
            violated(format!("{when}, {secret} is in the memory"));
        }
    };
    clean("after the start");

    node.configure(&of(&[WRITTEN, LATER]));
    node.sighup();
    let until = Instant::now() + PATIENCE;
    while !node.output().contains("are read anew") {
        duetime_testkit::in_time!(Instant::now() < until, "{}", node.output());
        let_pass(Duration::from_millis(20), Because::AskedAgain).await;
    }
    clean("after a reload");

    let me = client().get(format!("{}/v1/me", node.url()));
    assert_eq!(me.bearer_auth(LATER).send().await.unwrap().status(), 200, "its hash is known");
    let copies = marked(node.id()).unwrap().iter().filter(|text| *text == LATER).count();
    assert!(copies <= 8, "{copies} copies of what one request sent");
}
