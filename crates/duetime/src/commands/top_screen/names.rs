//! Names in a column that is narrower than some of them: cut so that no two look alike. The screen calls it.

use std::collections::{BTreeMap, BTreeSet};

/// What stands where something is left out.
const LEFT_OUT: &str = "…";

/// A name that is cut to so many characters, at one of several places, the best first: in the middle, then with a
/// longer beginning or a longer end, then with a piece from between. None where it cannot be cut so.
fn cut(name: &[char], room: usize, place: usize) -> Option<String> {
    let joined = |parts: &[&[char]]| {
        let parts: Vec<String> = parts.iter().map(|part| part.iter().collect()).collect();
        Some(parts.join(LEFT_OUT))
    };
    let kept = room.checked_sub(1)?;
    let (middle, moved) = (kept.div_ceil(2), place.div_ceil(2));
    if moved < middle {
        let head = if place % 2 == 1 { middle + moved } else { middle - moved };
        let tail = kept.checked_sub(head).filter(|tail| *tail > 0)?;
        return joined(&[&name[..head], &name[name.len() - tail..]]);
    }
    let piece = kept.saturating_sub(1) / 3;
    if piece == 0 {
        return None;
    }
    let ends = kept - 1 - piece;
    let (head, tail) = (ends.div_ceil(2), ends / 2);
    // After the places of one cut, a place further right for each.
    let from = head + 1 + place - (2 * middle - 1);
    let until = from + piece;
    if until + tail >= name.len() {
        return None;
    }
    joined(&[&name[..head], &name[from..until], &name[name.len() - tail..]])
}

/// Names, each in as many characters as it has room for: what is longer is cut in the middle, and elsewhere where it
/// would then look like another.
pub fn apart(names: &[(&str, usize)]) -> Vec<String> {
    let chars: Vec<Vec<char>> = names.iter().map(|(name, _)| name.chars().collect()).collect();
    let cut_at = |at: usize, place: usize| cut(&chars[at], names[at].1, place);
    let long: Vec<usize> = (0..names.len()).filter(|&at| chars[at].len() > names[at].1).collect();
    let mut shown: Vec<String> = names.iter().map(|(name, _)| (*name).to_owned()).collect();
    for &at in &long {
        shown[at] = cut_at(at, 0).unwrap_or_default();
    }
    let mut alike = long.clone();
    let mut taken = BTreeSet::new();
    let places = long.iter().map(|&at| chars[at].len() + names[at].1).max().unwrap_or(0);
    for place in 0..places {
        if alike.is_empty() {
            break;
        }
        let mut times: BTreeMap<String, usize> = BTreeMap::new();
        for text in long.iter().filter_map(|&at| cut_at(at, place)) {
            *times.entry(text).or_default() += 1;
        }
        alike.retain(|&at| {
            let Some(text) = cut_at(at, place).filter(|text| times[text] == 1) else { return true };
            let is_new = taken.insert(text.clone());
            if is_new {
                shown[at] = text;
            }
            !is_new
        });
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_too_long_is_cut_in_its_middle() {
        assert_eq!(apart(&[("orders-of-the-shop-in-europe", 11), ("pings", 5)]), ["order…urope", "pings"]);
    }

    #[test]
    fn names_that_would_look_alike_are_cut_elsewhere() {
        let names = [("tenant-17-of-the-orders", 15), ("tenant-18-of-the-orders", 15), ("tenant-of-orders", 15)];
        assert_eq!(apart(&names), ["tenant-17…rders", "tenant-18…rders", "tenant-o…orders"]);
    }

    #[test]
    fn names_that_differ_far_from_both_ends_show_a_piece_from_between() {
        let names = [
            "orders-of-everybody-in-tenant-17-in-production-eu-west",
            "orders-of-everybody-in-tenant-18-in-production-eu-west",
        ];
        assert_eq!(apart(&names.map(|name| (name, 12))), ["orde…-17…est", "orde…-18…est"]);
    }

    #[test]
    fn where_there_is_no_room_to_differ_names_look_alike() {
        assert_eq!(apart(&[("tenant-17-of-orders", 3), ("tenant-18-of-orders", 3), ("pings", 0)]), ["t…s", "t…s", ""]);
    }
}
