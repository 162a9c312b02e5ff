//! Pairs as lines of JSON, without loss: text as strings, other bytes in base 64.

use core::fmt;

use holdfast::collections::KEY_MAX;
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::out::unhex;

/// A key and its value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// A pair as an object.
pub(crate) fn to_json((key, value): &Pair) -> Value {
    let mut object = Map::new();
    for (name, bytes) in [("key", key), ("value", value)] {
        match core::str::from_utf8(bytes) {
            Ok(text) => object.insert(name.to_owned(), text.into()),
            Err(_) => object.insert(format!("{name}_b64"), base64(bytes).into()),
        };
    }
    object.into()
}

/// The pair of a line.
///
/// # Errors
/// What is wrong with it, for people.
pub(crate) fn from_line(line: &str) -> Result<Pair, String> {
    let Once(value) = serde_json::from_str(line).map_err(|error| {
        // Which line it is, is said by who reads them.
        let text = error.to_string().replace(" at line 1 column ", " at byte ");
        if error.is_data() { text } else { format!("no JSON: {text}") }
    })?;
    let Value::Object(mut object) = value else {
        return Err("no object with a key and a value".to_owned());
    };
    // What `--json` puts in front of every object.
    object.remove("schema");
    object.remove("command");
    let pair = (take(&mut object, "key")?, take(&mut object, "value")?);
    if let Some(name) = object.keys().next() {
        return Err(format!("a field `{name}` that nobody knows"));
    }
    if pair.0.len() > KEY_MAX {
        return Err(format!("a key of {} bytes, longer than {KEY_MAX}", pair.0.len()));
    }
    Ok(pair)
}

/// A value in whose objects each field is there once: one of two would be dropped without a word.
struct Once(Value);

impl<'de> Deserialize<'de> for Once {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(OnceVisitor)
    }
}

struct OnceVisitor;

impl<'de> Visitor<'de> for OnceVisitor {
    type Value = Once;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Once, E> {
        Ok(Once(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Once, E> {
        Ok(Once(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Once, E> {
        Ok(Once(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Once, E> {
        Ok(Once(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Once, E> {
        Ok(Once(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Once, E> {
        Ok(Once(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Once, E> {
        Ok(Once(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Once, A::Error> {
        let mut all = Vec::new();
        while let Some(Once(value)) = seq.next_element()? {
            all.push(value);
        }
        Ok(Once(Value::Array(all)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Once, A::Error> {
        let mut all = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            if all.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the field `{name}` twice")));
            }
            let Once(value) = map.next_value()?;
            all.insert(name, value);
        }
        Ok(Once(Value::Object(all)))
    }
}

/// Takes bytes out of an object, in whichever form they are there.
fn take(object: &mut Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    let coded = format!("{name}_b64");
    match (object.remove(name), object.remove(&coded)) {
        (Some(Value::String(text)), None) => Ok(text.into_bytes()),
        // As `map scan --json` writes them.
        (Some(Value::Object(form)), None) if form.len() == 1 => form
            .get("hex")
            .and_then(Value::as_str)
            .and_then(unhex)
            .ok_or_else(|| format!("`{name}` is an object without hexadecimal digits")),
        (None, Some(Value::String(text))) => {
            unbase64(&text).ok_or_else(|| format!("`{coded}` is no base 64"))
        }
        (None, None) => Err(format!("neither `{name}` nor `{coded}`")),
        (Some(_), Some(_)) => Err(format!("both `{name}` and `{coded}`")),
        (Some(_), None) => Err(format!("`{name}` is no string")),
        (None, Some(_)) => Err(format!("`{coded}` is no string")),
    }
}

const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes in base 64, filled up with `=`.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for part in bytes.chunks(3) {
        let byte = |at: usize| u32::from(part.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for sign in 0..4 {
            let index = (word >> (18 - 6 * sign)) as usize & 63;
            text.push(if sign <= part.len() { char::from(SIGNS[index]) } else { '=' });
        }
    }
    text
}

/// The bytes of base 64: the one way of writing them only.
fn unbase64(text: &str) -> Option<Vec<u8>> {
    let (parts, rest) = text.as_bytes().as_chunks::<4>();
    let mut bytes = Vec::with_capacity(parts.len() * 3);
    for (number, part) in parts.iter().enumerate() {
        let filled = part.iter().rev().take_while(|sign| **sign == b'=').count();
        if filled > 2 || filled > 0 && number + 1 < parts.len() {
            return None;
        }
        let mut word = 0_u32;
        for sign in &part[..4 - filled] {
            let six = SIGNS.iter().position(|known| known == sign)?;
            word = word << 6 | six as u32;
        }
        word <<= 6 * filled;
        let all = [16, 8, 0].map(|shift| (word >> shift) as u8);
        // Bits that no byte takes are zero.
        if all[3 - filled..].iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(&all[..3 - filled]);
    }
    rest.is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_64_is_that_of_everybody() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg=="),
            (b"fo", "Zm8="),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg=="),
            (b"fooba", "Zm9vYmE="),
            (b"foobar", "Zm9vYmFy"),
            (&[0xff, 0xfe, 0xfd], "//79"),
        ] {
            assert_eq!(base64(bytes), text);
            assert_eq!(unbase64(text).as_deref(), Some(bytes));
        }
        for text in ["Z", "Zg", "Zg=", "Zg===", "Zg==Zg==", "====", "Zh==", "Zm9=", "Zg=g", "Z g="]
        {
            assert_eq!(unbase64(text), None, "{text}");
        }
    }

    #[test]
    fn pairs_come_back() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in [&b""[..], b"text", b"\0\x1b\"\\\n\x7f", "\u{9b}\u{2028}".as_bytes(), &all] {
            let pair = (bytes.to_vec(), bytes.iter().rev().copied().collect());
            let line = crate::out::plain(&to_json(&pair));
            assert!(!line.contains(char::is_control), "{line}");
            assert_eq!(from_line(&line), Ok(pair));
        }
    }

    #[test]
    fn lines_that_are_no_pairs_are_told_apart() {
        for (line, text) in [
            ("", "no JSON"),
            ("{", "no JSON"),
            ("[1]", "no object"),
            ("{}", "neither `key` nor `key_b64`"),
            (r#"{"key":"k"}"#, "neither `value`"),
            (r#"{"key":1,"value":"v"}"#, "`key` is no string"),
            (r#"{"key":"k","key_b64":"aw==","value":"v"}"#, "both `key`"),
            (r#"{"key_b64":"a","value":"v"}"#, "no base 64"),
            (r#"{"key":{"hex":"zz"},"value":"v"}"#, "hexadecimal"),
            (r#"{"key":"k","value":"v","other":1}"#, "`other`"),
            (r#"{"key":"\ud800","value":"v"}"#, "no JSON"),
            (r#"{"key":"k","value":"v","key":"k"}"#, "the field `key` twice at byte 28"),
            (r#"{"key":{"hex":"00","hex":"01"},"value":"v"}"#, "the field `hex` twice"),
            (r#"{"key":"k","value":[{"a":1,"a":2.5}]}"#, "the field `a` twice"),
            (r#"{"key":"k","value":[null,true,-1,1e300]}"#, "`value` is no string"),
        ] {
            let found = from_line(line).expect_err(line);
            assert!(found.contains(text), "{line}: {found}");
        }
        let long = format!("{{\"key\":\"{}\",\"value\":\"\"}}", "k".repeat(KEY_MAX + 1));
        assert!(from_line(&long).is_err_and(|text| text.contains("longer than")));
        // Deeper than anybody needs.
        assert!(from_line(&"[".repeat(100_000)).is_err_and(|text| text.contains("no JSON")));
        let scanned = r#"{"schema":1,"command":"map scan","key":{"hex":"ff"},"value":"v"}"#;
        assert_eq!(from_line(scanned), Ok((vec![0xff], b"v".to_vec())));
    }
}
