//! The path that a topic adds to that of its sink.

use super::*;

#[tokio::test]
async fn a_topics_path_stays_below_the_path_of_the_sink() {
    let hook = Webhook::start();
    for climbing in ["../x", "/../x", "/a/%2e%2E/x", "/./x", "x", "/a?b", "/a b", "/a#b", "/\\x"] {
        let error = sink_with(&hook, "", serde_json::json!({"path": climbing})).unwrap_err();
        assert!(error.contains("path"), "{error}");
    }
    // A target or a proxy before it may decode it, more than once, and take `\` for `/` and what follows `;` away.
    for climbing in ["/..%2fadmin", "/.%2e%2fadmin", "/..%5cadmin", "/..;/admin", "/%252e%252e/admin", "/a/%2E%2e;x=1"]
    {
        let error = sink_with(&hook, "", serde_json::json!({"path": climbing})).unwrap_err();
        assert!(error.contains("without \"..\""), "{climbing}: {error}");
    }
    assert!(sink_with(&hook, "", serde_json::json!({"path": "/a..b/%20%25/..."})).is_ok());
    let error = sink_with(&hook, "", serde_json::json!({"pth": "/x"})).unwrap_err();
    assert!(error.contains("did you mean \"path\""), "{error}");
}
