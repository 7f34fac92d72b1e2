//! Fuzz targets of webhooks; see [`crate::fuzz`].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use duetime_core::{Delivery, Timestamp, TopicName};
use hyper::Uri;
use serde_json::json;
use url::Url;

use super::config::{HttpConfig, HttpSettings};
use super::guard::Guard;
use super::request::RequestTemplate;
use super::target::address;
use super::verdict::{self, RETRY_AFTER_MAX};

/// Noon of a day in 2025.
const NOON: Timestamp = Timestamp::from_millis(1_763_726_400_000);

/// `Retry-After` is absent or a wait within bounds.
pub fn retry_after(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(wait) = verdict::retry_after(&text, NOON) {
        assert!(wait <= RETRY_AFTER_MAX, "{wait:?}");
    }
}

/// Addresses that no packet of a webhook may reach, by another reckoning than the guard's.
fn is_inside(address: IpAddr) -> bool {
    let four = |a: Ipv4Addr| {
        a.is_private()
            || a.is_loopback()
            || a.is_link_local()
            || a.is_unspecified()
            || a.is_broadcast()
            || a.is_multicast()
            || a.is_documentation()
            || a.octets()[0] == 0
            || a.octets()[0] >= 240
            || (a.octets()[0] == 100 && a.octets()[1] & 0b1100_0000 == 64)
    };
    match address {
        IpAddr::V4(address) => four(address),
        IpAddr::V6(address) => {
            let segments = address.segments();
            let low = || Ipv4Addr::from(u128::from(address) as u32);
            let carries = segments[..5] == [0; 5] && segments[5] == 0xffff
                || segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0]
                || segments[..4] == [0; 4] && segments[4..6] == [0xffff, 0];
            address.is_loopback()
                || address.is_unspecified()
                || address.is_multicast()
                || address.is_unique_local()
                || address.is_unicast_link_local()
                || carries && four(low())
                || segments[0] == 0x2002 && four(Ipv4Addr::from((u128::from(address) >> 80) as u32))
        }
    }
}

/// No address of a webhook leads inside where that is refused, however it is written; and what a topic sets
/// leads to no other host.
pub fn addresses(data: &[u8]) {
    for address in [
        data.first_chunk().map(|bytes: &[u8; 4]| IpAddr::from(*bytes)),
        data.first_chunk().map(|bytes: &[u8; 16]| IpAddr::from(*bytes)),
        data.first_chunk().map(|b: &[u8; 4]| IpAddr::from(Ipv4Addr::from(*b).to_ipv6_mapped())),
        data.first_chunk()
            .map(|b: &[u8; 4]| IpAddr::from(Ipv6Addr::from((0x64_ff9b << 96) | u128::from(u32::from_be_bytes(*b))))),
    ]
    .into_iter()
    .flatten()
    {
        let let_through = Guard::default().check("hooks.example", address).is_ok();
        assert!(!(let_through && is_inside(address)), "{address} is let through");
    }
    let text = String::from_utf8_lossy(data);
    let (url, path) = text.split_once('\n').unwrap_or((&text, "/in"));
    let Ok(config) = serde_json::from_value::<HttpConfig>(json!({ "url": url })) else { return };
    let Ok(written) = address(&config, &Guard::default()) else { return };
    let host = written.host_str().unwrap_or_default().trim_matches(['[', ']']).parse();
    assert!(!host.is_ok_and(is_inside), "{url} leads to {written}");
    let template = RequestTemplate::new(&config, written.clone()).expect("only the address is not the default");
    let topic = TopicName::new("orders").expect("a plain name");
    let settings = HttpSettings { path: Some(path.to_owned()), ..HttpSettings::default() };
    if let Ok(reached) = template.for_topic(&topic, &settings) {
        assert_eq!(reached.url.origin(), written.origin(), "{path}");
        let begin = written.path().trim_end_matches('/');
        assert!(reached.url.path().starts_with(begin), "{path} leads to {}", reached.url);
    }
}

/// Where `message`, whose header `x` is anything, goes by templates of a topic: below `/hooks/` of a host that is
/// allowed, as another parser reads it too, and without climbing where the path is decoded once more.
pub(crate) fn message_url(message: &Delivery) {
    let targets = ["https://*.shop.example/hooks/*"];
    let config = json!({ "url": "https://hooks.example/", "targets": targets });
    let config: HttpConfig = serde_json::from_value(config).expect("settings of a webhook");
    let main: Url = config.url.expose().parse().expect("a URL");
    let template = RequestTemplate::new(&config, main).expect("a webhook");
    for (url, host) in [
        ("{header.x}", None),
        ("https://{header.x}/hooks/{header.x}", None),
        ("https://{header.x}.shop.example/hooks/{header.x}", None),
        ("https://a.shop.example/hooks/{header.x}", Some("a.shop.example")),
        ("https://a.shop.example/hooks/x?y={header.x}", Some("a.shop.example")),
    ] {
        let settings = HttpSettings { url: Some(url.to_owned()), ..HttpSettings::default() };
        let template = template.for_topic(&message.topic, &settings).expect("it is allowed as far as it is known");
        let Ok(called) = template.url_of(message) else { continue };
        // What the client does not take is called by nobody.
        let Ok(read) = called.as_str().parse::<Uri>() else { continue };
        let authority = read.authority().expect("a host").as_str();
        assert!(authority.ends_with(".shop.example") && !authority.contains(['@', ':']), "{called}");
        assert!(host.is_none_or(|host| host == authority), "{called} is not at {host:?}");
        assert_eq!((read.scheme_str(), read.host()), (Some("https"), called.host_str()), "{called}");
        let decoded = percent_encoding::percent_decode_str(called.path()).decode_utf8_lossy();
        let climbs = decoded.split(['/', '\\']).any(|part| matches!(part, "." | ".."));
        assert!(read.path().starts_with("/hooks/") && !climbs, "{called} climbs");
        if host.is_some() {
            assert!(!called.path()["/hooks/".len()..].contains('/'), "{called} has another part");
        }
    }
}
