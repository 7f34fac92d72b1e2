//! Dead letters by reason, as a node answers them.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// Dead letters of one reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadGroup {
    /// The reason without numbers and names.
    pub reason: String,
    /// One of them as it is.
    pub example: String,
    /// How many were read.
    pub count: u64,
    /// How many of these were redriven before.
    #[serde(default)]
    pub redriven_before: u64,
    /// How many of these died within the last 24 hours.
    #[serde(default)]
    pub last_day: u64,
    /// When the first of them died, milliseconds since the Unix epoch.
    pub first: i64,
    /// When the last of them died.
    pub last: i64,
    /// Some of their ids.
    pub ids: Vec<String>,
}

/// Dead letters by reason.
#[skip_serializing_none]
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DeadGroups {
    /// The largest first.
    pub groups: Vec<DeadGroup>,
    /// Dead letters that were read.
    pub scanned: u64,
    /// True if these are all dead letters there are.
    pub complete: bool,
    /// Where to read on; `None`: these were the last.
    pub next: Option<String>,
}

impl DeadGroups {
    /// Adds what was read further on, up to `samples` ids of each group.
    pub fn add(&mut self, further: Self, samples: usize) {
        for group in further.groups {
            let Some(known) = self.groups.iter_mut().find(|known| known.reason == group.reason) else {
                self.groups.push(group);
                continue;
            };
            known.count += group.count;
            known.redriven_before += group.redriven_before;
            known.last_day += group.last_day;
            (known.first, known.last) = (known.first.min(group.first), known.last.max(group.last));
            known.ids.extend(group.ids);
            known.ids.truncate(samples);
        }
        self.groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
        self.scanned += further.scanned;
        self.complete = further.next.is_none();
        self.next = further.next;
    }
}
