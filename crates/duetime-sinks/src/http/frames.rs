//! How many frames of HTTP/2 a target may send: so many for each that it was sent.
//!
//! Interim answers (1xx), PING, SETTINGS and the like are paced by no window, each costs the thread about as much as an
//! answer, and those of a request that has ended are read all the same. hyper reports none of them, so they are counted
//! where the bytes pass. Pure.

/// Frames that a target may send for each HEADERS and each DATA that it was sent: the answer, interim answers before
/// it, and what opens windows.
const FRAMES_PER_SENT: usize = 64;
/// Of a request are sent HEADERS and DATA at least.
const SENT_PER_REQUEST: usize = 2;
/// Frames that a target may send beside those.
const FRAMES_AHEAD: usize = 1024;
/// A DATA frame of so many bytes costs little for what it brings, and is paced by a window.
const PAID_BYTES: usize = 256;
/// What a client sends before its first frame (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
const FRAME_HEAD_BYTES: usize = 9;
/// Types of frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// Finds the frames in the bytes of one direction.
struct FrameHeads {
    head: [u8; FRAME_HEAD_BYTES],
    /// Bytes of `head` that have come.
    got: usize,
    /// Bytes that come before the next head.
    skip: usize,
}

impl FrameHeads {
    fn after(skip: usize) -> Self {
        Self { head: [0; FRAME_HEAD_BYTES], got: 0, skip }
    }

    /// Calls `each` with type and length of each frame that begins in `bytes`.
    fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(u8, usize)) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            let taken = (FRAME_HEAD_BYTES - self.got).min(bytes.len() - skipped);
            self.head[self.got..self.got + taken].copy_from_slice(&bytes[skipped..skipped + taken]);
            self.got += taken;
            bytes = &bytes[skipped + taken..];
            if self.got == FRAME_HEAD_BYTES {
                let [a, b, c, kind, ..] = self.head;
                (self.got, self.skip) = (0, u32::from_be_bytes([0, a, b, c]) as usize);
                each(kind, self.skip);
            }
        }
    }
}

/// What a target may send on one connection.
pub(super) struct FrameBudget {
    sent: FrameHeads,
    received: FrameHeads,
    left: usize,
    most: usize,
}

impl FrameBudget {
    /// Of a connection with so many requests in flight at most.
    pub(super) fn new(requests_max: usize) -> Self {
        let most = FRAMES_AHEAD + SENT_PER_REQUEST * FRAMES_PER_SENT * requests_max;
        Self { sent: FrameHeads::after(PREFACE_BYTES), received: FrameHeads::after(0), left: FRAMES_AHEAD, most }
    }

    /// These bytes were sent to the target.
    pub(super) fn sent(&mut self, bytes: &[u8]) {
        let (left, most) = (&mut self.left, self.most);
        self.sent.feed(bytes, |kind, _| {
            if matches!(kind, DATA | HEADERS) {
                *left = most.min(*left + FRAMES_PER_SENT);
            }
        });
    }

    /// These bytes came from the target; false: more frames than it may send.
    pub(super) fn received(&mut self, bytes: &[u8]) -> bool {
        let mut cost = 0;
        self.received.feed(bytes, |kind, len| cost += usize::from(kind != DATA || len < PAID_BYTES));
        let within = cost <= self.left;
        self.left = self.left.saturating_sub(cost);
        within
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, len: u8) -> Vec<u8> {
        [&[0, 0, len, kind, 4, 0, 0, 0, 1][..], &vec![HEADERS; usize::from(len)]].concat()
    }

    #[test]
    fn frames_are_found_however_the_bytes_are_cut() {
        let bytes = [vec![9; PREFACE_BYTES], frame(4, 0), frame(HEADERS, 30), frame(DATA, 255), frame(8, 4)].concat();
        for piece in [1, 2, 8, 9, 10, 31, bytes.len()] {
            let (mut heads, mut found) = (FrameHeads::after(PREFACE_BYTES), Vec::new());
            bytes.chunks(piece).for_each(|piece| heads.feed(piece, |kind, len| found.push((kind, len))));
            assert_eq!(found, [(4, 0), (HEADERS, 30), (DATA, 255), (8, 4)], "{piece}");
        }
    }

    #[test]
    fn a_target_may_send_so_many_frames_for_each_that_it_was_sent_and_no_more() {
        let mut budget = FrameBudget::new(2);
        let takes = |budget: &mut FrameBudget, kind: u8| (0..).take_while(|_| budget.received(&frame(kind, 5))).count();
        assert_eq!(takes(&mut budget, HEADERS), FRAMES_AHEAD);
        // Neither SETTINGS nor what answers a PING makes room for more of them.
        let mut budget = FrameBudget::new(2);
        budget.sent(&[&[0; PREFACE_BYTES][..], &frame(4, 0), &frame(6, 8), &frame(HEADERS, 9)].concat());
        assert_eq!(takes(&mut budget, 6), FRAMES_AHEAD + FRAMES_PER_SENT);
        (0..1000).for_each(|_| budget.sent(&frame(DATA, 9)));
        assert_eq!(takes(&mut budget, DATA), FRAMES_AHEAD + 4 * FRAMES_PER_SENT, "what was saved up has a bound");
    }

    #[test]
    fn a_long_body_costs_nothing() {
        let mut budget = FrameBudget::new(1);
        let long = [&[0, 1, 0, DATA, 0, 0, 0, 0, 1][..], &[0; PAID_BYTES]].concat();
        assert!((0..10 * FRAMES_AHEAD).all(|_| budget.received(&long)));
        assert_eq!(budget.left, FRAMES_AHEAD);
    }
}
