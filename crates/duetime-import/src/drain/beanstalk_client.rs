//! The protocol of beanstalkd, as far as a drain needs it: lines with bounds, bodies with bounds, an end to each wait.

use std::collections::HashMap;
use std::time::Duration;

use duetime_core::limits::PAYLOAD_BYTES_MAX;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::options::SourceError;

/// Longest wait to connect, and for one answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest line of an answer, in bytes; the protocol's longest has a word and two numbers, an answer to `use` a name of 200.
const LINE_MAX: u64 = 512;
const PORT: u16 = 11300;

/// One answer: its words, and the body that follows.
#[derive(Debug)]
pub(super) struct Reply {
    line: String,
    /// `None`: it has more than [`PAYLOAD_BYTES_MAX`], which no message has, and was passed over.
    pub body: Option<Vec<u8>>,
}

impl Reply {
    pub fn word(&self) -> &str {
        self.line.split(' ').next().unwrap_or_default()
    }

    /// The number that a job is called by, where there is one.
    pub fn job(&self) -> Option<u64> {
        let mut words = self.line.split(' ');
        (matches!(words.next(), Some("FOUND" | "RESERVED"))).then(|| words.next()?.parse().ok())?
    }

    /// The fields of an answer in YAML; `None`: there is no such job or tube.
    pub fn fields(&self) -> Result<Option<HashMap<&str, &str>>, SourceError> {
        match (self.word(), &self.body) {
            ("NOT_FOUND", _) => Ok(None),
            ("OK", Some(body)) => {
                let text = std::str::from_utf8(body).map_err(|_| odd("statistics that are no text"))?;
                Ok(Some(text.lines().filter_map(|line| line.split_once(": ")).collect()))
            }
            _ => Err(self.odd()),
        }
    }

    pub fn odd(&self) -> SourceError {
        odd(&self.line)
    }
}

fn odd(what: &str) -> SourceError {
    SourceError::Peer(format!("beanstalkd answered {what:?}, which was not asked for; see the URL"))
}

/// A number among fields.
pub(super) fn number(fields: &HashMap<&str, &str>, name: &str) -> Result<u64, SourceError> {
    fields.get(name).and_then(|value| value.parse().ok()).ok_or_else(|| odd(&format!("no {name}")))
}

/// A connection, on which several commands may be sent before the first is answered.
pub(super) struct Client {
    stream: BufReader<TcpStream>,
}

async fn in_time<T>(waited: impl Future<Output = std::io::Result<T>>) -> Result<T, SourceError> {
    match tokio::time::timeout(ANSWER_MAX, waited).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(error)) => Err(SourceError::Peer(format!("the connection to beanstalkd ended: {error}"))),
        Err(_) => Err(SourceError::Peer(format!("beanstalkd did not answer within {} s", ANSWER_MAX.as_secs()))),
    }
}

impl Client {
    /// Connects to `beanstalkd://host:port`.
    pub async fn connect(url: &str) -> Result<Self, SourceError> {
        let place = url.strip_prefix("beanstalkd://").map(|place| place.trim_end_matches('/'));
        let place = place.filter(|place| !place.is_empty() && !place.contains(['/', '@', '?']));
        let place = place.ok_or_else(|| SourceError::Option("write the URL as beanstalkd://host:11300".to_owned()))?;
        let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let place = if has_port { place.to_owned() } else { format!("{place}:{PORT}") };
        let stream = in_time(TcpStream::connect(&place)).await.map_err(|error| match error {
            SourceError::Peer(why) => SourceError::Peer(format!("{place}: {why}")),
            other => other,
        })?;
        Ok(Self { stream: BufReader::new(stream) })
    }

    /// Sends commands; each has one answer, in their order. All of them must fit what a socket takes without a reader.
    pub async fn send(&mut self, commands: &[String]) -> Result<(), SourceError> {
        let text = commands.iter().fold(String::new(), |text, command| text + command + "\r\n");
        in_time(self.stream.write_all(text.as_bytes())).await
    }

    /// The next answer.
    pub async fn reply(&mut self) -> Result<Reply, SourceError> {
        in_time(self.read()).await?
    }

    async fn read(&mut self) -> std::io::Result<Result<Reply, SourceError>> {
        let mut line = Vec::new();
        (&mut self.stream).take(LINE_MAX).read_until(b'\n', &mut line).await?;
        let Some(text) = line.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok()) else {
            if line.is_empty() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            return Ok(Err(odd("a line without an end")));
        };
        let mut reply = Reply { line: text.to_owned(), body: Some(Vec::new()) };
        if matches!(reply.word(), "OK" | "FOUND" | "RESERVED") {
            let Some(length) = text.rsplit(' ').next().and_then(|length| length.parse::<u64>().ok()) else {
                return Ok(Err(reply.odd()));
            };
            if length <= PAYLOAD_BYTES_MAX {
                let mut body = Vec::new();
                (&mut self.stream).take(length).read_to_end(&mut body).await?;
                reply.body = Some(body);
            } else {
                tokio::io::copy(&mut (&mut self.stream).take(length), &mut tokio::io::sink()).await?;
                reply.body = None;
            }
            let mut end = [0; 2];
            self.stream.read_exact(&mut end).await?;
            if end != *b"\r\n" {
                return Ok(Err(odd("a body without an end")));
            }
        }
        Ok(Ok(reply))
    }

    /// One command and its answer.
    pub async fn ask(&mut self, command: String) -> Result<Reply, SourceError> {
        self.send(&[command]).await?;
        self.reply().await
    }

    /// Commands and their answers, which have no large bodies.
    pub async fn ask_all(&mut self, commands: &[String]) -> Result<Vec<Reply>, SourceError> {
        self.send(commands).await?;
        let mut replies = Vec::with_capacity(commands.len());
        for _ in commands {
            replies.push(self.reply().await?);
        }
        Ok(replies)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// What the first answer of a server is that says this.
    async fn answer_of(says: &'static [u8]) -> Result<Reply, SourceError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("beanstalkd://{}/", listener.local_addr().unwrap());
        let mut client = Client::connect(&url).await.unwrap();
        listener.accept().await.unwrap().0.write_all(says).await.unwrap();
        client.reply().await
    }

    #[tokio::test]
    async fn answers_are_read_with_their_bodies_and_what_is_none_is_named() {
        let reply = answer_of(b"FOUND 7 5\r\na\r\nbc\r\n").await.unwrap();
        assert_eq!((reply.job(), reply.body.as_deref()), (Some(7), Some(&b"a\r\nbc"[..])));
        let reply = answer_of(b"OK 21\r\n---\nage: 5\nname: a: b\r\n").await.unwrap();
        let fields = reply.fields().unwrap().unwrap();
        assert_eq!((number(&fields, "age").unwrap(), fields["name"]), (5, "a: b"));
        assert!(number(&fields, "name").is_err() && number(&fields, "pri").is_err());
        assert!(answer_of(b"NOT_FOUND\r\n").await.unwrap().fields().unwrap().is_none());
        for odd in [&b"no end"[..], b"", b"FOUND 1 x\r\n", b"FOUND 1 2\r\nabcdef", &[b'x'; 600], b"HTTP\xff\r\n"] {
            let said = answer_of(odd).await.map(|_| ()).unwrap_err().to_string();
            assert!(said.contains("beanstalkd"), "{said}");
        }
        assert!(Client::connect("beanstalkd://").await.is_err() && Client::connect("beanstalkd://u@h").await.is_err());
    }
}
