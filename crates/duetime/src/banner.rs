//! What `duetime serve` prints when it is up: where it listens, and three lines to try.

use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;

use crate::version;

/// Prints it to standard output, with the addresses of the node and of its console, if there is one: whole on a terminal and where there is no topic yet, else its first line. A closed output is no reason
/// not to serve.
pub fn print(
    addresses: (SocketAddr, Option<SocketAddr>),
    store: &str,
    with_token: bool,
    with_tls: bool,
    has_topics: bool,
) {
    let text = text(addresses, store, with_token, with_tls);
    let first = text.split_inclusive('\n').next().unwrap_or_default();
    let shown = if std::io::stdout().is_terminal() || !has_topics { &text } else { first };
    let _ = std::io::stdout().write_all(shown.as_bytes());
    let _ = std::io::stdout().flush();
}

/// How to reach what listens at an address from this machine.
fn url_of(address: SocketAddr, with_tls: bool) -> String {
    let (host, port) = match address {
        _ if address.ip().is_unspecified() => ("127.0.0.1".to_owned(), address.port()),
        SocketAddr::V4(v4) => (v4.ip().to_string(), v4.port()),
        SocketAddr::V6(v6) => (format!("[{}]", v6.ip()), v6.port()),
    };
    format!("{}://{host}:{port}", if with_tls { "https" } else { "http" })
}

fn text((address, console): (SocketAddr, Option<SocketAddr>), store: &str, with_token: bool, with_tls: bool) -> String {
    let url = url_of(address, with_tls);
    let page = console.map(|address| format!("{}/ or ", url_of(address, with_tls))).unwrap_or_default();
    let token = if with_token { " -H \"authorization: Bearer $DUETIME_TOKEN\"" } else { "" };
    let json = "-H 'content-type: application/json'";
    format!(
        "duetime {version} listens on {url} (store {store})

An order timeout, to try: a topic, a message that falls due in 30 minutes, and its cancel when the order is paid.
  curl -X PUT{token} {url}/v1/topics/timeouts
  curl -X POST{token} {url}/v1/topics/timeouts/messages {json} -d '{{\"id\":\"order-42\",\"delay\":\"30m\",\"payload\":\"close order 42\"}}'
  curl -X DELETE{token} {url}/v1/topics/timeouts/messages/order-42

Look at it: {page}`duetime top`. Stop it: Ctrl-C.
",
        version = version::VERSION,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_lines_to_try_name_an_address_that_can_be_reached() {
        let at = |address: &str| address.parse().unwrap();
        let text = text((at("0.0.0.0:3830"), Some(at("127.0.0.1:3831"))), "embedded:./duetime-data", true, false);
        let lines: Vec<&str> = text.lines().filter(|line| line.trim_start().starts_with("curl")).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines.iter().all(|line| line.contains("http://127.0.0.1:3830/v1/topics/timeouts")));
        assert!(text.contains("Look at it: http://127.0.0.1:3831/ or"), "{text}");
        assert!(lines.iter().all(|line| line.contains("Bearer $DUETIME_TOKEN")));
        let text = super::text((at("127.0.0.1:3830"), None), "embedded:./duetime-data", false, false);
        assert!(text.contains("Look at it: `duetime top`"), "{text}");
    }
}
