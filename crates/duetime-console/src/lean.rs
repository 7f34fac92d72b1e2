//! Our own scripts and styles as they are sent: without what only their readers need.
//!
//! Called once, when the files are read. Calls nothing.

/// What stands between the words of a style sheet for its readers alone, and what does as well.
const STYLE_SPACES: [(&str, &str); 6] =
    [(" { ", "{"), ("; }", "}"), (" }", "}"), ("; ", ";"), (": ", ":"), (", ", ",")];

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
    if path.ends_with(".js") { LeanScript::default().read(lines.as_bytes()) } else { contents.to_vec() }
}

/// A line of comment, of a script or of a style sheet.
fn is_comment(line: &str) -> bool {
    line.starts_with("//") || (line.starts_with("/*") && line.trim_end().ends_with("*/"))
}

/// A script, read byte by byte. Strings, regular expressions and the text of templates stay as they are.
#[derive(Default)]
struct LeanScript {
    out: Vec<u8>,
    /// For each template around, how many braces are open in its code.
    braces: Vec<u32>,
    in_template: bool,
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
        match rest[0] {
            b'`' => {
                self.in_template = false;
                self.braces.pop();
            }
            b'$' if len == 2 => self.in_template = false,
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
                self.braces.push(0);
            }
            b'{' => self.braces.iter_mut().next_back().into_iter().for_each(|open| *open += 1),
            b'}' => match self.braces.last_mut() {
                Some(0) => self.in_template = true,
                Some(open) => *open -= 1,
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
            ("html`<p>one\n  two ${x}</p>\n  <b />\n  ${y}`;\n", "html`<p>one\ntwo ${x}</p><b />${y}`;"),
            ("f = (a) => /x { y/.test(a) || 4 / 2 / (a) / b;\n", "f=(a)=>/x { y/.test(a)||4/2/(a)/b;"),
            ("return /a  =  b/;\n", "return/a  =  b/;"),
            ("let a\nlet b = 'é = '\n", "let a\nlet b='é = '\n"),
        ] {
            assert_eq!(lean(text), wanted);
        }
    }
}
