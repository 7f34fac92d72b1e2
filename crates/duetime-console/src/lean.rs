//! Our own scripts and styles as they are sent: without what only their readers need.
//!
//! Called once, when the files are read. Calls nothing.

use std::collections::HashMap;

/// What stands between the words of a style sheet for its readers alone, and what does as well.
const STYLE_SPACES: [(&str, &str); 8] =
    [(" { ", "{"), (" {\n", "{"), ("; }", "}"), (" }", "}"), ("} ", "}"), ("; ", ";"), (": ", ":"), (", ", ",")];

/// The file without indentation, comments and spaces that mean nothing; a file of others as it is.
pub(crate) fn lean(path: &str, contents: &[u8]) -> Vec<u8> {
    let Some(text) = std::str::from_utf8(contents).ok().filter(|_| !path.starts_with("vendor/")) else {
        return contents.to_vec();
    };
    let lines = text.lines().map(str::trim_start).filter(|line| !line.is_empty() && !is_comment(line));
    let lines = lines.fold(String::with_capacity(text.len()), |all, line| all + line + "\n");
    if path.ends_with(".css") {
        return STYLE_SPACES.iter().fold(lines, |all, (from, to)| all.replace(from, to)).into_bytes();
    }
    if path.ends_with(".js") {
        LeanScript { short: short_names(&lines), ..LeanScript::default() }.read(lines.as_bytes())
    } else {
        contents.to_vec()
    }
}

/// Constants that no other file knows, and what is long: no property has such a name.
fn short_names(lines: &str) -> HashMap<Vec<u8>, Vec<u8>> {
    let is_loud = |name: &&str| name.len() > 3 && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let names = lines.lines().filter_map(|line| line.strip_prefix("const ")?.split(' ').next()).filter(is_loud);
    let names = names.enumerate().map(|(at, name)| (name.as_bytes().to_vec(), format!("${at}").into_bytes()));
    names.chain([(b"undefined".to_vec(), b"void 0".to_vec())]).collect()
}

/// A line of comment, of a script or of a style sheet.
fn is_comment(line: &str) -> bool {
    line.starts_with("//") || (line.starts_with("/*") && line.trim_end().ends_with("*/"))
}

/// A script, read byte by byte. Strings, regular expressions and the text of templates stay as they are.
#[derive(Default)]
struct LeanScript {
    out: Vec<u8>,
    around: Vec<OpenTemplate>,
    in_template: bool,
    /// What is written for which word of code.
    short: HashMap<Vec<u8>, Vec<u8>>,
}

/// A template that is read, or whose code is.
#[derive(Default)]
struct OpenTemplate {
    /// How many braces are open in its code.
    braces: u32,
    /// Its text is that of a tag, between `<` and `>`.
    in_tag: bool,
}

impl LeanScript {
    fn read(mut self, text: &[u8]) -> Vec<u8> {
        let mut at = 0;
        while at < text.len() {
            let len = if self.in_template { self.template(&text[at..]) } else { self.code(&text[at..]) };
            at += len;
        }
        self.out
    }

    fn last(&self) -> u8 {
        self.out.last().copied().unwrap_or(b'\n')
    }

    /// Whether a slash divides here: no regular expression follows a value.
    fn is_after_a_value(&self) -> bool {
        (is_word(self.last()) && !self.out.ends_with(b"return")) || b")]}\"'`".contains(&self.last())
    }

    /// One step in the text of a template: how many bytes were read.
    fn template(&mut self, rest: &[u8]) -> usize {
        let len = if rest[0] == b'\\' || rest.starts_with(b"${") { 2 } else { 1 };
        let in_tag = self.around.last().is_some_and(|template| template.in_tag);
        match rest[0] {
            b'`' => {
                self.in_template = false;
                self.around.pop();
            }
            b'$' if len == 2 => self.in_template = false,
            b'<' if rest.get(1) == Some(&b'/') => {
                // Whatever is open is closed so.
                let end = rest.iter().position(|byte| *byte == b'>').unwrap_or(1);
                self.out.extend_from_slice(b"<//>");
                return end + 1;
            }
            b'<' | b'>' => {
                let opens =
                    rest[0] == b'<' && rest.get(1).is_some_and(|next| next.is_ascii_alphabetic() || *next == b'$');
                self.around.iter_mut().next_back().into_iter().for_each(|template| template.in_tag = opens);
            }
            b' ' if in_tag && rest.starts_with(b" />") => return 1,
            b'"' if in_tag && self.last() == b'=' => {
                // A value of one word needs no quotes.
                let len = rest[1..].iter().take_while(|byte| is_word(**byte) || **byte == b'-').count();
                if len > 0 && rest.get(len + 1) == Some(&b'"') && !rest[1..=len].contains(&b'$') {
                    self.out.extend_from_slice(&rest[1..=len]);
                    return len + 2;
                }
            }
            // Between two tags or values a line's end is no text.
            b'\n' if b">}".contains(&self.last()) && rest.get(1).is_some_and(|next| b"<$".contains(next)) => return 1,
            _ => {}
        }
        self.out.extend_from_slice(&rest[..len]);
        len
    }

    /// One step in code: how many bytes were read.
    fn code(&mut self, rest: &[u8]) -> usize {
        let (last, next) = (self.last(), rest.get(1).copied().unwrap_or(b'\n'));
        let is_property = last == b'.' && !self.out.ends_with(b"...");
        if is_word(rest[0]) && !is_word(last) && !is_property {
            let len = rest.iter().take_while(|byte| is_word(**byte)).count();
            self.out.extend_from_slice(self.short.get(&rest[..len]).map_or(&rest[..len], Vec::as_slice));
            return len;
        }
        let len = match rest[0] {
            b' ' if !(is_word(last) && is_word(next) || last == next && b"+-".contains(&last)) => return 1,
            b'\n' if b",;{([\n".contains(&last) || b"})]".contains(&next) => return 1,
            b'/' if next == b'/' => return rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len()),
            b'/' if !self.is_after_a_value() => expression(rest),
            quote @ (b'"' | b'\'') => string(rest, quote),
            _ => 1,
        };
        match rest[0] {
            b'`' => {
                self.in_template = true;
                self.around.push(OpenTemplate::default());
            }
            b'{' => self.around.iter_mut().next_back().into_iter().for_each(|template| template.braces += 1),
            b'}' => match self.around.last_mut() {
                Some(OpenTemplate { braces: 0, .. }) => self.in_template = true,
                Some(template) => template.braces -= 1,
                None => {}
            },
            _ => {}
        }
        self.out.extend_from_slice(&rest[..len]);
        len
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_$".contains(&byte) || byte >= 0x80
}

/// How long the string is that begins here.
fn string(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

/// How long the regular expression is that begins here.
fn expression(rest: &[u8]) -> usize {
    let (mut at, mut in_class) = (1, false);
    while at < rest.len() && (in_class || rest[at] != b'/') {
        in_class = if in_class { rest[at] != b']' } else { rest[at] == b'[' };
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at + 1
}

#[cfg(test)]
mod tests {
    use super::lean;

    #[test]
    fn what_means_something_in_a_script_stays() {
        let lean = |text: &str| String::from_utf8(lean("a.js", text.as_bytes())).unwrap();
        for (text, wanted) in [
            ("const a = { b: \"c : d\" };\n", "const a={b:\"c : d\"};"),
            ("// only a comment\n  return  x + +y; // and why\n}", "return x+ +y;}\n"),
            ("x = y / z ? /[/ ]a b/ : \"\\\" = \";\n", "x=y/z?/[/ ]a b/:\"\\\" = \";"),
            ("t = `a = ${ { b: `c : ${d + 1} ` }.b } { e`;\n", "t=`a = ${{b:`c : ${d+1} `}.b} { e`;"),
            ("html`<p>one\n  two ${x}</p>\n  <b />\n  ${y}`;\n", "html`<p>one\ntwo ${x}<//><b/>${y}`;"),
            (
                "html`<a class=\"big-b\" id=\"${a}\" x=\"y z\">say=\"it\"</a>${html`<i a=\"b\" />`}<b c=${d} e=\"f\">`;\n",
                "html`<a class=big-b id=\"${a}\" x=\"y z\">say=\"it\"<//>${html`<i a=b/>`}<b c=${d} e=f>`;",
            ),
            ("f = (a) => /x { y/.test(a) || 4 / 2 / (a) / b;\n", "f=(a)=>/x { y/.test(a)||4/2/(a)/b;"),
            ("return /a  =  b/;\n", "return/a  =  b/;"),
            (
                "const EVERY_MS = 5;\nexport const SEEN_MS = 6;\nf = (a) => [a.EVERY_MS + EVERY_MS ?? undefined, ...EVERY_MS];\nt = `EVERY_MS ${EVERY_MS}`;\n",
                "const $0=5;export const SEEN_MS=6;f=(a)=>[a.EVERY_MS+$0??void 0,...$0];t=`EVERY_MS ${$0}`;",
            ),
            ("let a\nlet b = 'é = '\n", "let a\nlet b='é = '\n"),
        ] {
            assert_eq!(lean(text), wanted);
        }
    }
}
