//! The dumb pipelines: threads that write prepared bytes and count answers.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;

use crate::resp::{self, Reply};

/// One connection with a buffer of what was read and not used.
struct Line {
    stream: TcpStream,
    read: Vec<u8>,
    used: usize,
}

impl Line {
    fn to(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the server listens");
        stream.set_nodelay(true).expect("an option of every socket");
        Self { stream, read: Vec::new(), used: 0 }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// The bytes of the next whole answer.
    fn next(&mut self) -> &[u8] {
        loop {
            if let Some(length) = resp::length(&self.read[self.used..]) {
                let begin = self.used;
                self.used += length;
                return &self.read[begin..begin + length];
            }
            self.read.drain(..self.used);
            self.used = 0;
            let (old, mut chunk) = (self.read.len(), 64 << 10);
            self.read.resize(old + chunk, 0);
            chunk = self.stream.read(&mut self.read[old..]).expect("the server answers");
            assert!(chunk > 0, "the server hung up");
            self.read.truncate(old + chunk);
        }
    }
}

/// Sends `commands` again, over one connection for each entry of the outer list, `window` of them
/// unanswered at any time.
pub fn replay(port: u16, commands: &[Vec<&[u8]>], window: usize) {
    thread::scope(|scope| {
        for share in commands {
            scope.spawn(move || {
                let mut line = Line::to(port);
                for (at, command) in share.iter().enumerate() {
                    if at >= window {
                        fine(line.next());
                    }
                    line.send(command);
                }
                for _ in 0..share.len().min(window) {
                    fine(line.next());
                }
            });
        }
    });
}

fn fine(answer: &[u8]) {
    assert!(!answer.starts_with(b"-"), "{}", String::from_utf8_lossy(answer));
}

/// How the claim and the ack of one shard look, taken from recorded ones.
#[derive(Debug, Clone)]
pub struct Shape {
    /// All arguments of a claim.
    pub claim: Vec<Vec<u8>>,
    /// The arguments of an ack up to the shard's epoch.
    pub ack: Vec<Vec<u8>>,
}

/// Where ARGV begins: behind EVALSHA, the digest, the number of keys and five keys.
pub const ARGV: usize = 8;

impl Shape {
    fn claim(&self, now_ms: i64, request: u64) -> Vec<u8> {
        let (mut args, now) = (self.claim.clone(), now_ms.to_string().into_bytes());
        // The caller's present, and since when it asks.
        let present = args[ARGV].len() - now.len();
        args[ARGV][present..].copy_from_slice(&now);
        args[ARGV + 1] = now;
        args[ARGV + 6] = request.to_be_bytes().to_vec();
        resp::command(&args)
    }

    /// The ack of what a claim answered; `None`: it brought nothing.
    fn ack(&self, claimed: &Reply) -> Option<Vec<u8>> {
        let [_, _, _, _, _, _, base, attempts, ids, _, _] = claimed.list() else { panic!("not a claim: {claimed:?}") };
        let mut ids: Vec<&[u8]> = ids.list().iter().map(Reply::bytes).collect();
        if ids.is_empty() {
            return None;
        }
        ids.sort_unstable();
        let score = (base.int() + attempts.int()).to_string();
        let mut args: Vec<&[u8]> = self.ack.iter().map(Vec::as_slice).collect();
        let count = ids.len().to_string();
        args.extend([b"0".as_slice(), b"1", score.as_bytes(), count.as_bytes()]);
        args.extend(ids);
        Some(resp::command(&args))
    }
}

/// Claims and acks until every shard is empty: one connection for each shard, `window` claims
/// unanswered at any time; how many messages that was.
pub fn drain(port: u16, shapes: &[Shape], window: usize, now_ms: impl Fn() -> i64 + Sync) -> u64 {
    let now_ms = &now_ms;
    thread::scope(|scope| {
        let shard = |at: usize, shape: &'_ Shape| {
            let (mut line, mut request, mut drained) = (Line::to(port), (at as u64) << 32, 0);
            let mut claim = || {
                request += 1;
                shape.claim(now_ms(), request)
            };
            let mut waiting = std::collections::VecDeque::new();
            for _ in 0..window {
                line.send(&claim());
                waiting.push_back(true);
            }
            while let Some(is_claim) = waiting.pop_front() {
                let answer = line.next();
                fine(answer);
                if !is_claim {
                    continue;
                }
                let claimed = resp::reply(answer).0;
                if let Some(mut bytes) = shape.ack(&claimed) {
                    drained += claimed.list()[8].list().len() as u64;
                    bytes.extend(claim());
                    line.send(&bytes);
                    waiting.extend([false, true]);
                }
            }
            drained
        };
        let workers: Vec<_> =
            shapes.iter().enumerate().map(|(at, shape)| scope.spawn(move || shard(at, shape))).collect();
        workers.into_iter().map(|worker| worker.join().expect("a pipeline does not panic")).sum()
    })
}
