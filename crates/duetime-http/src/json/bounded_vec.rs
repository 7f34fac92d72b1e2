//! Arrays of JSON with a bound on their items: reading ends at the first one too many.

use std::ops::Deref;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Most messages, ids or receipts in one array.
pub(crate) const ARRAY_ITEMS_MAX: usize = 65_536;

/// What the error of an array over the bound begins with.
pub(crate) const TOO_MANY: &str = "too many items";

/// An array of at most [`ARRAY_ITEMS_MAX`] items.
pub(crate) struct BoundedVec<T>(pub Vec<T>);

impl<T> Deref for BoundedVec<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BoundedVec<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct ItemsAtMost<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for ItemsAtMost<T> {
            type Value = Vec<T>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
                let mut read = Vec::new();
                while let Some(item) = items.next_element()? {
                    if read.len() == ARRAY_ITEMS_MAX {
                        return Err(A::Error::custom(format!(
                            "{TOO_MANY}: the array has more than {ARRAY_ITEMS_MAX}; send several requests (nothing of \
                             this one was done), or stream NDJSON to enqueue any number"
                        )));
                    }
                    read.push(item);
                }
                Ok(read)
            }
        }
        from.deserialize_seq(ItemsAtMost(std::marker::PhantomData)).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_item_more_than_the_bound_is_too_many() {
        let array = |count: usize| format!("[{}]", vec!["0"; count].join(","));
        assert_eq!(serde_json::from_str::<BoundedVec<u8>>(&array(ARRAY_ITEMS_MAX)).unwrap().len(), ARRAY_ITEMS_MAX);
        let error = serde_json::from_str::<BoundedVec<u8>>(&array(ARRAY_ITEMS_MAX + 1)).err().unwrap();
        assert!(error.to_string().starts_with(TOO_MANY), "{error}");
        assert!(serde_json::from_str::<BoundedVec<u8>>("{}").err().unwrap().to_string().contains("expected an array"));
    }
}
