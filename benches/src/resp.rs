//! Just enough of the Redis protocol to send recorded commands and to read what a claim answers.

/// One answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// `:`
    Int(i64),
    /// `$` and `+`; `None` is the null of both.
    Text(Option<Vec<u8>>),
    /// `*`
    List(Vec<Reply>),
    /// `-`
    Error(String),
}

impl Reply {
    /// The number, or 0.
    #[must_use]
    pub fn int(&self) -> i64 {
        if let Self::Int(int) = self { *int } else { 0 }
    }

    /// The list, or nothing.
    #[must_use]
    pub fn list(&self) -> &[Self] {
        if let Self::List(list) = self { list } else { &[] }
    }

    /// The bytes, or nothing.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        if let Self::Text(Some(text)) = self { text } else { &[] }
    }
}

/// Writes a command.
#[must_use]
pub fn command<T: AsRef<[u8]>>(args: &[T]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len()).into_bytes();
    for arg in args {
        out.extend_from_slice(format!("${}\r\n", arg.as_ref().len()).as_bytes());
        out.extend_from_slice(arg.as_ref());
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some((&bytes[..end], end + 2))
}

fn number(bytes: &[u8]) -> i64 {
    std::str::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).unwrap_or(-1)
}

/// The length of the first whole answer in `bytes`, without reading it; `None`: it is not all there.
#[must_use]
pub fn length(bytes: &[u8]) -> Option<usize> {
    let (head, mut at) = line(bytes)?;
    match head.first()? {
        b'$' => {
            let length = number(&head[1..]);
            let end = if length < 0 { at } else { at + usize::try_from(length).ok()? + 2 };
            (end <= bytes.len()).then_some(end)
        }
        b'*' => {
            for _ in 0..number(&head[1..]).max(0) {
                at += length(&bytes[at..])?;
            }
            Some(at)
        }
        _ => Some(at),
    }
}

/// Reads the first whole answer in `bytes`. `length` must have found it.
#[must_use]
pub fn reply(bytes: &[u8]) -> (Reply, usize) {
    let (head, at) = line(bytes).expect("a whole answer has a first line");
    let (kind, rest) = (head[0], &head[1..]);
    match kind {
        b':' => (Reply::Int(number(rest)), at),
        b'-' => (Reply::Error(String::from_utf8_lossy(rest).into_owned()), at),
        b'$' if number(rest) < 0 => (Reply::Text(None), at),
        b'$' => {
            let end = at + usize::try_from(number(rest)).expect("checked");
            (Reply::Text(Some(bytes[at..end].to_vec())), end + 2)
        }
        b'*' => {
            let (mut list, mut at) = (Vec::new(), at);
            for _ in 0..number(rest).max(0) {
                let (one, length) = reply(&bytes[at..]);
                list.push(one);
                at += length;
            }
            (Reply::List(list), at)
        }
        _ => (Reply::Text(Some(rest.to_vec())), at),
    }
}

/// Cuts a recorded stream into its whole commands.
#[must_use]
pub fn commands(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let Some(end) = length(bytes) {
        let (one, rest) = bytes.split_at(end);
        all.push(one);
        bytes = rest;
    }
    all
}

/// The arguments of a recorded command.
#[must_use]
pub fn arguments(command: &[u8]) -> Vec<Vec<u8>> {
    reply(command).0.list().iter().map(|arg| arg.bytes().to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_half_an_answer_is_waited_for() {
        let written = command(&["EVALSHA", "", "a\r\nb"]);
        assert_eq!(arguments(&written), [b"EVALSHA".to_vec(), b"".to_vec(), b"a\r\nb".to_vec()]);
        for cut in 0..written.len() {
            assert_eq!(length(&written[..cut]), None);
        }
        let twice = [written.clone(), written.clone()].concat();
        assert_eq!(commands(&twice), [&written[..], &written[..]]);
        let (answer, length) = reply(b"*3\r\n:7\r\n$-1\r\n+OK\r\n");
        assert_eq!((answer.list()[0].int(), answer.list()[2].bytes(), length), (7, &b"OK"[..], 18));
    }
}
