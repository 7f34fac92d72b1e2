//! Where an export goes on, and what it leaves out: nothing.

use clap::Parser;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::*;

#[derive(Parser)]
struct Typed {
    #[command(flatten)]
    args: ExportArgs,
}

/// A page of lines; one that is cut has less than its head says.
fn page(next: &str, lines: &str, is_cut: bool) -> String {
    let (length, kind) = (lines.len() + usize::from(is_cut), "application/x-ndjson");
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{next}content-length: {length}\r\nconnection: close\r\n\r\n{lines}"
    )
}

#[tokio::test]
async fn a_page_that_is_cut_and_ends_earlier_the_second_time_leaves_nothing_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        let mut is_cut = true;
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 16 << 10];
            let read = socket.read(&mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..read]);
            let answer = if head.contains("cursor=behind-2") {
                page("", "3\n", false)
            } else if head.contains("cursor=behind-1") {
                page("", "2\n3\n", false)
            } else if std::mem::take(&mut is_cut) {
                page("duetime-next: behind-2\r\n", "1\n2\n", true)
            } else {
                page("duetime-next: behind-1\r\n", "1\n", false)
            };
            let _ = socket.write_all(answer.as_bytes()).await;
        }
    });
    let file = tempfile::NamedTempFile::new().unwrap();
    let to = tokio::fs::OpenOptions::new().write(true).open(file.path()).await.unwrap();
    let args = Typed::parse_from(["export", "orders", "--state", "scheduled"]).args;
    let mut export = Export {
        client: Client::new(&url, None).unwrap().retrying(Duration::from_secs(30)),
        args: &args,
        filter: ListFilter::default(),
        target: Target { to: Box::new(to), file: None, bytes: 0, messages: 0 },
        bar: ProgressBar::hidden(),
    };
    export.pass(Place { shards: (1, 1), part: Part::Live, cursor: None }).await.map_err(|(_, error)| error).unwrap();
    assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "1\n2\n3\n");
}

#[test]
fn a_cursor_is_read_as_it_was_shown() {
    for cursor in [None, Some("WzAsMSxudWxsXQ".to_owned())] {
        for part in [Part::Live, Part::Dead] {
            let place = Place { shards: (3, 7), part, cursor: cursor.clone() };
            assert_eq!(Place::read(&place.shown()), Some(place));
        }
    }
    assert_eq!(Place::read("3.7.other."), None);
    assert_eq!(Place::read("WzAsMSxudWxsXQ"), None);
}
