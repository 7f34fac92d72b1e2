//! The scripts read a body as the envelope is written: the same vectors as beside `envelope.rs`.

use duetime_core::envelope;
use duetime_core::limits::REDRIVES_MAX;
use duetime_testkit::servers::RedisServer;

use crate::redis_faults::server::connection;

const VECTORS: &str = include_str!("../../../crates/duetime-core/src/envelope.golden");
const LAYOUT: &str = include_str!("../../../crates/duetime-store-redis/lua/layout.lua");
const REDRIVEN: &str = include_str!("../../../crates/duetime-store-redis/lua/redriven.lua");
const BODY: &str = include_str!("../../../crates/duetime-store-redis/lua/body.lua");
/// Due time, headers and payload as `open` gives them, nonce, the body with another due time, the count of redrives, and
/// the body with one more, or nothing.
const READ: &str = "
local due, headers, payload = open(ARGV[1])
local given = sub(ARGV[1], NONCE_AT, NONCE_END)
local moved = struct.pack(HEAD, VERSION, 5) .. sub(ARGV[1], NONCE_AT)
local _, _, redrives = counts(ARGV[1])
return { string.format('%.0f', due), headers, payload, given, (open(moved)), redrives, redriven(ARGV[1]) or '' }";

fn bytes_of(hex: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    if hex == "-" { Vec::new() } else { (0..hex.len()).step_by(2).map(byte).collect() }
}

/// Due time, headers, payload, nonce, where the body begins, redrives, and the body with one redrive more.
type Told = (String, Vec<Vec<u8>>, Vec<u8>, Vec<u8>, i64, u16, Vec<u8>);

#[tokio::test]
async fn scripts_read_every_body_that_the_envelope_writes() {
    let server = RedisServer::start().await;
    let mut connection = connection(&server).await.unwrap();
    let names =
        "local byte, sub = string.byte, string.sub\nlocal function int(x) return string.format('%.0f', x) end\n";
    let code = format!("{names}{LAYOUT}{BODY}{REDRIVEN}{READ}");
    for line in VECTORS.lines().skip(1) {
        let words: Vec<&str> = line.split(' ').collect();
        let [due, nonce, headers, payload, body, redrives] = words[..] else { panic!("{line}") };
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap();
            [name.as_bytes().to_vec(), bytes_of(value)]
        };
        let headers: Vec<Vec<u8>> =
            if headers == "-" { Vec::new() } else { headers.split(',').flat_map(pair).collect() };
        let mut eval = redis::cmd("EVAL");
        eval.arg(&code).arg(0).arg(bytes_of(body));
        let told: Told = eval.query_async(&mut connection).await.unwrap();
        let nonce: u64 = nonce.parse().unwrap();
        assert_eq!((told.0.as_str(), &told.1, &told.2), (due, &headers, &bytes_of(payload)), "{line}");
        assert_eq!((told.3, told.4), (nonce.to_be_bytes().to_vec(), 5), "{line}");
        assert_eq!(told.5.to_string(), redrives, "{line}");
        let counted = envelope::redriven(&bytes_of(body)).unwrap_or_default();
        assert_eq!(told.6, counted, "{line}");
        assert_eq!(counted.is_empty(), told.5 == REDRIVES_MAX, "{line}");
    }
}
