//! Reads JSON objects whose fields are known: a typo is refused with the nearest known name.

use duetime_core::suggest;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Deserializer;
use serde_json::error::Category;

use crate::json::bounded_vec::TOO_MANY;
use crate::json::problem::Refusal;

/// Most bytes of an unknown name that are compared with the known ones and repeated in the refusal.
const NAME_BYTES_MAX: usize = 100;

/// The refusal of a field nobody knows.
pub(crate) fn unknown_field(name: &str, known: &[&str]) -> Refusal {
    let name = &name[..name.floor_char_boundary(NAME_BYTES_MAX)];
    Refusal::new("unknown_field", suggest::unknown("field", name, known)).at(name)
}

/// Reads a JSON object as a `T`; an empty body is an empty object.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, Refusal> {
    let bytes = if bytes.is_empty() { b"{}" } else { bytes };
    // A struct is read from an array of its fields too, which nobody means.
    let is_object = bytes.iter().find(|b| !b.is_ascii_whitespace()) == Some(&b'{');
    if !is_object && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() {
        return Err(Refusal::new("invalid_value", "this is no JSON object; send one: {…}"));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let mut refusal = refuse(&error);
        let is_data = error.classify() == Category::Data;
        // A number where a word belongs, or one that is too large, ends the reader as what is no JSON does.
        let is_other = !is_data && serde_json::from_slice::<IgnoredAny>(bytes).is_ok();
        if is_other {
            refusal = Refusal::new("invalid_value", format!("a value of another kind is wanted: {error}"));
        }
        // The reader alone does not say where it was: it is asked once more, for refusals only.
        let unnamed = refusal.field.is_none() && (is_data || is_other);
        let read = unnamed.then(|| serde_path_to_error::deserialize::<_, T>(&mut Deserializer::from_slice(bytes)));
        match read.and_then(Result::err) {
            Some(found) if found.path().iter().len() > 0 => refusal.at(found.path().to_string()),
            _ => refusal,
        }
    })
}

/// What the reader says of types, in the words of JSON.
fn in_words(what: &str) -> String {
    let Some((before, expected)) = what.rsplit_once("expected ") else { return what.to_owned() };
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i64" => "a whole number",
        "f64" => "a number",
        "a boolean" => "true or false",
        other if other.starts_with("struct ") => "a JSON object",
        other => other,
    };
    format!("{before}expected {expected}")
}

/// Puts an error of the JSON reader into words. The reader has nothing but a text for what is wrong with data, so this
/// one place reads it.
pub(crate) fn refuse(error: &serde_json::Error) -> Refusal {
    let text = error.to_string();
    if error.classify() != Category::Data {
        return Refusal::new("malformed_json", format!("the JSON cannot be read: {text}"));
    }
    let what = text.rsplit_once(" at line ").map_or(text.as_str(), |(what, _)| what);
    if what.starts_with("unknown field `") {
        // The reader lists names in backticks: first the unknown one, then all that it knows.
        let names: Vec<&str> = what.split('`').skip(1).step_by(2).collect();
        if let Some((name, known)) = names.split_first() {
            return unknown_field(name, known);
        }
    }
    if what.starts_with(TOO_MANY) {
        return Refusal::new("too_many_items", what.to_owned());
    }
    let named = |start: &str| what.strip_prefix(start).and_then(|rest| rest.split('`').next());
    if let Some(field) = named("duplicate field `") {
        return Refusal::new("invalid_value", format!("{field} is given twice; give it once")).at(field);
    }
    let refusal = Refusal::new("invalid_value", in_words(what));
    match named("missing field `") {
        Some(field) => refusal.at(field),
        None => refusal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[allow(dead_code)]
    struct Ask {
        #[serde(default)]
        visibility_timeout: u32,
        receipts: Vec<String>,
    }

    #[test]
    fn a_typo_is_answered_with_the_nearest_known_name() {
        let typo = read::<Ask>(br#"{"visibility_timout": 1}"#).unwrap_err();
        assert_eq!(typo.code, "unknown_field");
        assert!(typo.detail.contains("did you mean \"visibility_timeout\"?"), "{}", typo.detail);
        let far = read::<Ask>(br#"{"zzz": 1}"#).unwrap_err();
        assert!(far.detail.contains("known here: visibility_timeout, receipts"), "{}", far.detail);
        assert_eq!(read::<Ask>(b"{}").unwrap_err().field.as_deref(), Some("receipts"));
        assert_eq!(read::<Ask>(b"{").unwrap_err().code, "malformed_json");
    }

    #[test]
    fn a_value_of_the_wrong_type_is_answered_with_its_field_and_with_what_is_wanted() {
        for (body, field, said) in [
            (
                &br#"{"visibility_timeout": -1, "receipts": []}"#[..],
                Some("visibility_timeout"),
                "a whole number, 0 or more",
            ),
            (
                br#"{"visibility_timeout": 1.5, "receipts": []}"#,
                Some("visibility_timeout"),
                "a whole number, 0 or more",
            ),
            (br#"{"receipts": ["a", 5]}"#, Some("receipts[1]"), "integer `5`, expected a string"),
            (br#"{"receipts": [], "receipts": []}"#, Some("receipts"), "given twice"),
            (b"null", None, "send one"),
            (br#""text""#, None, "send one"),
            (b"[]", None, "send one"),
        ] {
            let refusal = read::<Ask>(body).unwrap_err();
            assert_eq!((refusal.code, refusal.field.as_deref()), ("invalid_value", field));
            assert!(refusal.detail.contains(said), "{}", refusal.detail);
        }
        assert_eq!(read::<Ask>(b"nonsense").unwrap_err().code, "malformed_json");
    }
}
