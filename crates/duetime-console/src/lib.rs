//! The web console: static files, served from the program.
//!
//! Plain ES modules without a build step. The page has no state of its own and asks the HTTP API only; everything it
//! shows has a command and a request beside it. Upstream: the program's HTTP router. Downstream: nothing.

use std::collections::HashMap;
use std::io::Write as _;
use std::sync::{Arc, LazyLock};

use axum::Router;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use flate2::Compression;
use flate2::write::GzEncoder;
use include_dir::{Dir, include_dir};
use sha2::{Digest as _, Sha256};

/// Nothing but the node's own files runs, and nothing but the node is asked. Trusted types: no text becomes markup.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
/// A name with the hash of all files in it never means anything else.
const FOREVER: &str = "public, max-age=31536000, immutable";
/// Characters of the hash in a name.
const HASH_CHARS: usize = 16;
/// The screen that opens first.
const FIRST_SCREEN: &str = "screens/now.js";
/// Where the files are.
const FOLDER: &str = "/console";

static ASSETS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/assets");

/// A debug build reads the files from the folder of this variable, so that a page is changed without compiling.
#[cfg(debug_assertions)]
const FOLDER_VARIABLE: &str = "DUETIME_CONSOLE_ASSETS";

/// What the page lets people do. What a token may do is decided by the API alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Everything.
    #[default]
    Full,
    /// Look, and change nothing.
    ReadOnly,
    /// There is no page.
    Off,
}

/// By what people tell the pages of several clusters from each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// The name of the cluster; "": none.
    pub name: String,
    /// A word that `style.css` knows as `data-colour`; "": none.
    pub colour: &'static str,
}

/// What the pages are like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// What they let people do.
    pub mode: Mode,
    /// By what people know whose they are.
    pub label: Label,
    /// There is none to enqueue and to claim by hand.
    pub without_try: bool,
}

/// A text within an attribute.
fn escaped(text: &str) -> String {
    let parts = text.chars().map(|c| match c {
        '&' => "&amp;".to_owned(),
        '"' => "&quot;".to_owned(),
        '<' => "&lt;".to_owned(),
        // What fills a part of the page comes after.
        '{' => "&#123;".to_owned(),
        c => c.to_string(),
    });
    parts.collect()
}

struct File {
    kind: &'static str,
    plain: Vec<u8>,
    packed: Vec<u8>,
}

struct Built {
    hash: String,
    /// Links to what a first visit needs, so that a browser asks for it at once and not for one after the other, and for
    /// what the first frame needs before that. Screens are loaded when they are opened.
    modules: String,
    files: HashMap<String, File>,
}

static BUILT: LazyLock<Built> = LazyLock::new(Built::new);

impl Built {
    fn new() -> Self {
        let mut found = contents();
        found.sort();
        let mut hash = Sha256::new();
        let mut files = HashMap::new();
        for (name, plain) in found {
            hash.update((name.len() as u64).to_be_bytes());
            hash.update(&name);
            hash.update((plain.len() as u64).to_be_bytes());
            hash.update(&plain);
            let packed = gzip(&plain);
            files.insert(name.clone(), File { kind: kind_of(&name), plain, packed });
        }
        let hash = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let mut modules: Vec<_> = files.keys().filter(|name| is_of_first_visit(name)).collect();
        modules.sort();
        let link = |name: &String| {
            format!("<link rel=\"modulepreload\" fetchpriority=\"low\" href=\"console/{{hash}}/{name}\">")
        };
        let modules = modules.into_iter().map(link).collect::<Vec<_>>().join("\n");
        Self { hash: hash[..HASH_CHARS].to_owned(), modules, files }
    }
}

/// Whether it is a module that is loaded before anything is pressed.
fn is_of_first_visit(name: &str) -> bool {
    name.ends_with(".js") && (!name.starts_with("screens/") || name == FIRST_SCREEN)
}

/// All files with their paths, as they are sent.
fn contents() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    #[cfg(debug_assertions)]
    if let Some(folder) = std::env::var_os(FOLDER_VARIABLE) {
        files_on_disk(folder.as_ref(), "", &mut found).expect("the folder of the console's files can be read");
        return found;
    }
    files_of(&ASSETS, &mut found);
    found
}

#[cfg(debug_assertions)]
fn files_on_disk(folder: &std::path::Path, below: &str, found: &mut Vec<(String, Vec<u8>)>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let path = format!("{below}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            files_on_disk(&entry.path(), &format!("{path}/"), found)?;
        } else {
            found.push((path, std::fs::read(entry.path())?));
        }
    }
    Ok(())
}

/// All files below a folder, with their paths.
fn files_of(folder: &Dir<'_>, found: &mut Vec<(String, Vec<u8>)>) {
    let path = |file: &include_dir::File<'_>| file.path().to_string_lossy().replace('\\', "/");
    found.extend(folder.files().map(|file| (path(file), file.contents().to_vec())));
    folder.dirs().for_each(|folder| files_of(folder, found));
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).expect("memory can be written");
    encoder.finish().expect("memory can be written")
}

fn kind_of(name: &str) -> &'static str {
    match name.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    }
}

/// The page at `/` and its files below `/console/`.
pub fn routes<S: Clone + Send + Sync + 'static>(pages: &Pages) -> Router<S> {
    if pages.mode == Mode::Off {
        return Router::new();
    }
    let page = Arc::new(ConsolePage::new(pages));
    let page = move |headers: HeaderMap| async move { page.answer(&headers) };
    Router::new().route("/", get(page)).route(&format!("{FOLDER}/{{hash}}/{{*path}}"), get(file))
}

/// The page itself, which names the files of this version.
struct ConsolePage {
    file: File,
    /// What a browser gives back to learn that it has this page already.
    tag: HeaderValue,
}

impl ConsolePage {
    fn new(Pages { mode, label, without_try }: &Pages) -> Self {
        let word = if *mode == Mode::ReadOnly { "read-only" } else { "full" };
        let html = std::str::from_utf8(&BUILT.files["index.html"].plain).expect("our own file is text");
        let html = html.replace("{cluster}", &escaped(&label.name)).replace("{colour}", label.colour);
        let html = html.replace("{try}", if *without_try { "off" } else { "on" });
        let html = html.replace("{modules}", &BUILT.modules).replace("{hash}", &BUILT.hash).replace("{mode}", word);
        let plain = html.into_bytes();
        let hash: String =
            Sha256::digest(&plain).iter().take(HASH_CHARS / 2).map(|byte| format!("{byte:02x}")).collect();
        let tag = HeaderValue::from_str(&format!("W/\"{hash}\"")).expect("digits");
        Self { file: File { kind: "text/html; charset=utf-8", packed: gzip(&plain), plain }, tag }
    }

    fn answer(&self, headers: &HeaderMap) -> Response {
        let known = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).unwrap_or_default();
        let is_known = self.tag.to_str().is_ok_and(|tag| known.split(',').any(|one| one.trim() == tag));
        let packed = takes_gzip(headers);
        let mut page = if is_known {
            let mut unchanged = answer(self.file.kind, &[], false, "no-cache");
            *unchanged.status_mut() = StatusCode::NOT_MODIFIED;
            unchanged
        } else {
            answer(self.file.kind, if packed { &self.file.packed } else { &self.file.plain }, packed, "no-cache")
        };
        page.headers_mut().insert(header::ETAG, self.tag.clone());
        page
    }
}

async fn file(Path((hash, path)): Path<(String, String)>, headers: HeaderMap) -> Response {
    let Some(file) = BUILT.files.get(&path).filter(|_| path != "index.html") else {
        return (StatusCode::NOT_FOUND, "there is no such file").into_response();
    };
    // A page of another version still gets its files, but nobody keeps them under that name.
    let cache = if hash == BUILT.hash { FOREVER } else { "no-store" };
    let packed = takes_gzip(&headers);
    answer(file.kind, if packed { &file.packed } else { &file.plain }, packed, cache)
}

fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted
        .split(',')
        .any(|one| one.split(';').next().is_some_and(|name| name.trim() == "gzip") && !one.contains("q=0"))
}

fn answer(kind: &'static str, body: &[u8], packed: bool, cache: &'static str) -> Response {
    let mut answer = body.to_vec().into_response();
    let mut set = |name, value| answer.headers_mut().insert(name, HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, kind);
    set(header::CACHE_CONTROL, cache);
    set(header::VARY, "accept-encoding");
    set(header::CONTENT_SECURITY_POLICY, POLICY);
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(header::REFERRER_POLICY, "no-referrer");
    set(header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin");
    set(header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin");
    if packed {
        set(header::CONTENT_ENCODING, "gzip");
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a first visit loads, as it is sent to a browser, which takes it packed.
    const FIRST_VISIT_BYTES_MAX: usize = 50_000;

    #[test]
    fn a_first_visit_loads_little() {
        let is_loaded = |name: &str| is_of_first_visit(name) || !(name.ends_with(".js") || name.ends_with(".txt"));
        let loaded = BUILT.files.iter().filter(|(name, _)| is_loaded(name));
        let bytes: usize = loaded.map(|(_, file)| file.packed.len()).sum();
        assert!(bytes <= FIRST_VISIT_BYTES_MAX, "{bytes} bytes; a first visit may load {FIRST_VISIT_BYTES_MAX}");
    }

    #[test]
    fn each_module_imports_files_that_are_there_and_nothing_from_elsewhere() {
        for (name, file) in BUILT.files.iter().filter(|(name, _)| name.ends_with(".js") && !name.starts_with("vendor/"))
        {
            let text = std::str::from_utf8(&file.plain).unwrap();
            for statement in
                text.split(';').filter(|statement| statement.lines().any(|line| line.starts_with("import ")))
            {
                let from = statement.rsplit('"').nth(1).unwrap();
                let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
                let path = match from.strip_prefix("../") {
                    Some(rest) => rest.to_owned(),
                    None if folder.is_empty() => from.trim_start_matches("./").to_owned(),
                    None => format!("{folder}/{}", from.trim_start_matches("./")),
                };
                assert!(BUILT.files.contains_key(&path), "{name} imports {from}");
            }
            for path in text.split("import(\"./").skip(1).filter_map(|rest| rest.split('"').next()) {
                assert!(BUILT.files.contains_key(path), "{name} imports {path} later");
            }
            assert!(!text.contains("innerHTML") && !text.contains("eval("), "{name} makes markup or code from text");
        }
    }

    #[test]
    fn the_name_of_a_cluster_is_a_text_in_the_page_and_another_name_is_another_page() {
        let page = |name: &str| {
            let label = Label { name: name.to_owned(), colour: "red" };
            let page = ConsolePage::new(&Pages { label, ..Pages::default() });
            (String::from_utf8(page.file.plain).unwrap(), page.tag)
        };
        let (html, tag) = page("a\"><script>{hash}&");
        assert!(html.contains(r#"data-cluster="a&quot;>&lt;script>&#123;hash}&amp;" data-colour="red""#), "{html}");
        assert_ne!(tag, page("b").1);
    }

    #[test]
    fn parts_of_others_are_those_that_were_looked_at() {
        let looked_at = [("vendor/preact.js", "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7")];
        for (name, hash) in looked_at {
            let found: String =
                Sha256::digest(&BUILT.files[name].plain).iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(found, hash, "{name}");
        }
        assert!(BUILT.files.contains_key("vendor/LICENSES.txt"));
    }
}
