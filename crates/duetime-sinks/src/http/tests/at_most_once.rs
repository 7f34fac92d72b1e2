//! What may have been sent is not sent again where the topic says so.

use super::*;

#[tokio::test]
async fn at_most_once_nothing_is_sent_again_that_a_target_may_have_had() {
    for (at_most_once, requests) in [(true, 1), (false, 2)] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let text = format!(
            "[hook]\ntype = \"http\"\nurl = \"http://{}/\"\nallow = [\"127.0.0.1\"]",
            listener.local_addr().unwrap()
        );
        let had = Arc::new(AtomicUsize::new(0));
        let target = tokio::spawn({
            let had = had.clone();
            async move {
                loop {
                    let (mut socket, _) = listener.accept().await.unwrap();
                    if socket.read(&mut [0; 4096]).await.unwrap() > 0 {
                        had.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        });
        let sent = Delivery { at_most_once, ..message("one", "payload") };
        let named = serde_json::from_value(serde_json::json!({"name": "hook"})).unwrap();
        let sink = registry(&text, Arc::new(WallClock)).unwrap().bind(&sent.topic, &named).unwrap();
        let verdict = sink.deliver(&[sent]).await.remove(0);
        assert!(matches!(verdict, Verdict::NoAnswer { .. }), "{verdict:?}");
        assert_eq!(had.load(Ordering::SeqCst), requests);
        target.abort();
    }
}
