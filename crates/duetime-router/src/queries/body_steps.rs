//! How many messages of a page are read at once where their bodies come along.

use duetime_core::TopicConfig;

/// A page ends when its bodies have so many bytes.
const PAGE_BYTES_MAX: usize = 4 << 20;
/// Messages of one step.
const STEP_MAX: usize = 64;
/// Bytes of one step where each body is as large as its topic allows.
const STEP_BYTES_MAX: usize = 16 << 20;

/// The steps of one page: each is as large as the bodies of the one before let it be, and the first as large as bodies
/// may be in the topic.
#[derive(Debug)]
pub struct BodySteps {
    payload_max: usize,
    /// The largest body of the last step.
    largest: usize,
    bytes: usize,
}

impl BodySteps {
    /// For a page of messages of a topic that is set so.
    #[must_use]
    pub fn new(config: &TopicConfig) -> Self {
        let payload_max = usize::try_from(config.max_payload).unwrap_or(usize::MAX).max(1);
        Self { payload_max, largest: payload_max, bytes: 0 }
    }

    /// Messages of the next step; 0: the page is full.
    #[must_use]
    pub fn next_step(&self) -> usize {
        let left = PAGE_BYTES_MAX.saturating_sub(self.bytes);
        if left == 0 {
            return 0;
        }
        (left / self.largest.max(1)).min(STEP_BYTES_MAX / self.payload_max).clamp(1, STEP_MAX)
    }

    /// What a step brought: the sizes of its bodies.
    pub fn took(&mut self, sizes: impl IntoIterator<Item = usize>) {
        let mut largest = None;
        for size in sizes {
            largest = largest.max(Some(size));
            self.bytes += size;
        }
        self.largest = largest.unwrap_or(self.largest);
    }

    /// Bytes of all bodies of the page so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(max_payload: u64) -> BodySteps {
        BodySteps::new(&TopicConfig { max_payload, ..TopicConfig::default() })
    }

    #[test]
    fn a_step_brings_no_more_bytes_than_a_page_may_have_or_one_body() {
        assert_eq!(steps(16 << 20).next_step(), 1);
        assert_eq!(steps(256 << 10).next_step(), 16);
        assert_eq!(steps(100).next_step(), STEP_MAX);
    }

    #[test]
    fn small_bodies_make_the_next_step_larger_up_to_what_one_large_body_after_another_would_take() {
        for (max_payload, next) in [(256 << 10, STEP_MAX), (1 << 20, 16), (16 << 20, 1)] {
            let mut page = steps(max_payload);
            page.took([100, 50]);
            assert_eq!((page.next_step(), page.bytes()), (next, 150), "{max_payload}");
        }
    }

    #[test]
    fn a_page_is_full_when_its_bodies_have_the_bytes_and_a_step_of_none_changes_nothing() {
        let mut page = steps(256 << 10);
        page.took([]);
        assert_eq!(page.next_step(), 16);
        page.took([PAGE_BYTES_MAX - 1]);
        assert_eq!(page.next_step(), 1);
        page.took([1]);
        assert_eq!(page.next_step(), 0);
    }
}
