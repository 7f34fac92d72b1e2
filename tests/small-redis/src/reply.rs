//! What commands answer, and how it is written (RESP2), and how commands are read.

use bytes::{Buf, Bytes, BytesMut};

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `+OK`.
    Status(String),
    /// `-CODE text`.
    Error(String),
    /// `:1`.
    Int(i64),
    /// A string.
    Bulk(Bytes),
    /// No string.
    Nil,
    /// A list.
    Array(Vec<Reply>),
}

impl Reply {
    /// `+OK`.
    #[must_use]
    pub fn ok() -> Self {
        Self::Status("OK".to_owned())
    }

    /// An error.
    pub fn error(text: impl Into<String>) -> Self {
        Self::Error(text.into())
    }

    /// A string.
    #[must_use]
    pub fn bulk(bytes: &[u8]) -> Self {
        Self::Bulk(Bytes::copy_from_slice(bytes))
    }

    /// A count.
    #[must_use]
    pub fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Writes it as RESP2 has it.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => line(out, b'+', text.as_bytes()),
            Self::Error(text) => line(out, b'-', text.as_bytes()),
            Self::Int(number) => line(out, b':', number.to_string().as_bytes()),
            Self::Nil => line(out, b'$', b"-1"),
            Self::Bulk(bytes) => {
                line(out, b'$', bytes.len().to_string().as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Array(items) => {
                line(out, b'*', items.len().to_string().as_bytes());
                items.iter().for_each(|item| item.write(out));
            }
        }
    }
}

fn line(out: &mut Vec<u8>, kind: u8, text: &[u8]) {
    out.push(kind);
    // A line ends where its text does.
    out.extend(text.iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte }));
    out.extend_from_slice(b"\r\n");
}

/// A double as Redis prints it: `%.17g`.
#[must_use]
pub fn double(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number == 0.0 {
        return if number.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{number:.16e}");
    let (digits, exponent) = scientific.split_once('e').expect("an exponent is always written");
    let exponent: i32 = exponent.parse().expect("a number");
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..17).contains(&exponent) {
        return trimmed(&format!("{number:.*}", usize::try_from(16 - exponent).expect("not negative")));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(digits), exponent.abs())
}

/// Takes the next whole command out of `buffer`.
///
/// # Errors
///
/// What is not RESP.
pub fn read_command(buffer: &mut BytesMut) -> Result<Option<Vec<Bytes>>, String> {
    let mut at = 0;
    let Some(count) = header(buffer, &mut at, b'*')? else { return Ok(None) };
    let mut spans = Vec::with_capacity(count);
    for _ in 0..count {
        let Some(length) = header(buffer, &mut at, b'$')? else { return Ok(None) };
        if buffer.len() < at + length + 2 {
            return Ok(None);
        }
        spans.push((at, length));
        at += length + 2;
    }
    let args = spans.into_iter().map(|(from, length)| Bytes::copy_from_slice(&buffer[from..from + length])).collect();
    buffer.advance(at);
    Ok(Some(args))
}

fn header(buffer: &[u8], at: &mut usize, kind: u8) -> Result<Option<usize>, String> {
    let Some(end) = buffer[*at..].windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
    let text = &buffer[*at..*at + end];
    let number = text.strip_prefix(&[kind]).and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
    *at += end + 2;
    number.map(Some).ok_or_else(|| format!("ERR Protocol error: expected '{}'", char::from(kind)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_double_is_printed_as_c_does() {
        for (number, text) in [
            (1_763_700_000_123_107.0, "1763700000123107"),
            (0.1, "0.10000000000000001"),
            (1.5, "1.5"),
            (-3.0, "-3"),
            (1e17, "1e+17"),
            (1e-5, "1.0000000000000001e-05"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(double(number), text);
        }
    }

    #[test]
    fn a_command_is_read_once_it_is_whole() {
        let whole = b"*2\r\n$4\r\nPING\r\n$1\r\nx\r\n*1\r\n";
        let mut buffer = BytesMut::from(&whole[..9]);
        assert_eq!(read_command(&mut buffer), Ok(None));
        buffer.extend_from_slice(&whole[9..]);
        assert_eq!(read_command(&mut buffer), Ok(Some(vec![Bytes::from("PING"), Bytes::from("x")])));
        assert_eq!(read_command(&mut buffer), Ok(None));
        assert!(read_command(&mut BytesMut::from("PING\r\n")).is_err());
    }
}
