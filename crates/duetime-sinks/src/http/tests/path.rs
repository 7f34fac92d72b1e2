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
    // Some take overlong UTF-8 and `%u002e` for what they are short for.
    for odd in ["/%c0%ae%c0%ae/x", "/a/%25c0%25ae./x", "/%e0%80%ae./x", "/%E4/x", "/%u002e%u002E/x", "/a/%25U002f/x"] {
        let error = sink_with(&hook, "", serde_json::json!({"path": odd})).unwrap_err();
        assert!(error.contains("as UTF-8"), "{odd}: {error}");
    }
    for plain in ["/a..b/%20%25/...", "/%C3%A4/%E2%82%AC", "/100%25use"] {
        assert!(sink_with(&hook, "", serde_json::json!({"path": plain})).is_ok(), "{plain}");
    }
    let error = sink_with(&hook, "", serde_json::json!({"pth": "/x"})).unwrap_err();
    assert!(error.contains("did you mean \"path\""), "{error}");
}
