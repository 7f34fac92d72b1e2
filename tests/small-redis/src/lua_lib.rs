//! The libraries that scripts find beside those of Lua: `cmsgpack`, `struct` and `bit`, as far as they are used.

use mlua::{Lua, MultiValue, Table, Value, Variadic};

/// Adds them.
pub(crate) fn add(lua: &Lua) -> mlua::Result<()> {
    let globals = lua.globals();
    let cmsgpack = lua.create_table()?;
    cmsgpack.raw_set(
        "pack",
        lua.create_function(|lua, values: Variadic<Value>| {
            let mut out = Vec::new();
            values.iter().try_for_each(|value| pack(value, &mut out))?;
            lua.create_string(&out)
        })?,
    )?;
    cmsgpack.raw_set(
        "unpack",
        lua.create_function(|lua, text: mlua::LuaString| {
            let bytes = text.as_bytes().to_vec();
            let (mut at, mut values) = (0, Vec::new());
            while at < bytes.len() {
                values.push(unpack(lua, &bytes, &mut at)?);
            }
            Ok(MultiValue::from_vec(values))
        })?,
    )?;
    globals.raw_set("cmsgpack", cmsgpack)?;
    let structs = lua.create_table()?;
    structs.raw_set(
        "pack",
        lua.create_function(|lua, (format, values): (mlua::LuaString, Variadic<Value>)| {
            lua.create_string(struct_pack(&format.as_bytes(), &values)?)
        })?,
    )?;
    structs.raw_set(
        "unpack",
        lua.create_function(|lua, (format, text, at): (mlua::LuaString, mlua::LuaString, Option<usize>)| {
            struct_unpack(lua, &format.as_bytes(), &text.as_bytes(), at.unwrap_or(1) - 1)
        })?,
    )?;
    globals.raw_set("struct", structs)?;
    let bit = lua.create_table()?;
    for (name, of) in [("band", (|a, b| a & b) as fn(i32, i32) -> i32), ("bor", |a, b| a | b), ("bxor", |a, b| a ^ b)] {
        bit.raw_set(
            name,
            lua.create_function(move |_, values: Variadic<f64>| {
                let mut words = values.iter().map(|value| wrapped(*value));
                let first = words.next().unwrap_or(0);
                Ok(words.fold(first, of))
            })?,
        )?;
    }
    bit.raw_set("lshift", lua.create_function(|_, (a, n): (f64, u32)| Ok(wrapped(a) << (n & 31)))?)?;
    bit.raw_set("rshift", lua.create_function(|_, (a, n): (f64, u32)| Ok(((wrapped(a) as u32) >> (n & 31)) as i32))?)?;
    globals.raw_set("bit", bit)
}

/// The low 32 bits of a number.
#[expect(clippy::cast_possible_truncation, reason = "that is what the library does")]
fn wrapped(number: f64) -> i32 {
    number as i64 as i32
}

fn number_of(value: &Value) -> mlua::Result<f64> {
    match value {
        Value::Integer(number) => Ok(*number as f64),
        Value::Number(number) => Ok(*number),
        Value::String(text) => {
            let text = text.to_string_lossy();
            text.trim().parse().map_err(|_| mlua::Error::runtime("ERR a number was expected"))
        }
        _ => Err(mlua::Error::runtime("ERR a number was expected")),
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the ranges are looked at first")]
fn pack(value: &Value, out: &mut Vec<u8>) -> mlua::Result<()> {
    match value {
        Value::Boolean(is) => out.push(if *is { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => pack_integer(*number, out),
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 9.2e18 => pack_integer(*number as i64, out),
        Value::Number(number) => {
            if f64::from(*number as f32) == *number {
                out.push(0xca);
                out.extend_from_slice(&(*number as f32).to_be_bytes());
            } else {
                out.push(0xcb);
                out.extend_from_slice(&number.to_be_bytes());
            }
        }
        Value::String(text) => {
            let bytes = text.as_bytes();
            match bytes.len() {
                length @ 0..=31 => out.push(0xa0 | length as u8),
                length @ 32..=255 => out.extend_from_slice(&[0xd9, length as u8]),
                length @ 256..=65_535 => {
                    out.push(0xda);
                    out.extend_from_slice(&(length as u16).to_be_bytes());
                }
                length => {
                    out.push(0xdb);
                    out.extend_from_slice(&(length as u32).to_be_bytes());
                }
            }
            out.extend_from_slice(&bytes);
        }
        Value::Table(table) => pack_list(table, out)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the ranges are looked at first")]
fn pack_integer(number: i64, out: &mut Vec<u8>) {
    match number {
        0..=127 => out.push(number as u8),
        128..=255 => out.extend_from_slice(&[0xcc, number as u8]),
        256..=65_535 => {
            out.push(0xcd);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        65_536..=4_294_967_295 => {
            out.push(0xce);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        4_294_967_296.. => {
            out.push(0xcf);
            out.extend_from_slice(&number.to_be_bytes());
        }
        -32..=-1 => out.push(number as i8 as u8),
        -128..=-33 => out.extend_from_slice(&[0xd0, number as i8 as u8]),
        -32_768..=-129 => {
            out.push(0xd1);
            out.extend_from_slice(&(number as i16).to_be_bytes());
        }
        -2_147_483_648..=-32_769 => {
            out.push(0xd2);
            out.extend_from_slice(&(number as i32).to_be_bytes());
        }
        _ => {
            out.push(0xd3);
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

/// A list; scripts pack no tables with names.
#[expect(clippy::cast_possible_truncation, reason = "the ranges are looked at first")]
fn pack_list(table: &Table, out: &mut Vec<u8>) -> mlua::Result<()> {
    let length = table.raw_len();
    let named = table.pairs::<Value, Value>().count() > length;
    if named {
        return Err(mlua::Error::runtime("ERR cmsgpack of a table with names is not known here"));
    }
    match length {
        0..=15 => out.push(0x90 | length as u8),
        16..=65_535 => {
            out.push(0xdc);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        _ => {
            out.push(0xdd);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
    (1..=length).try_for_each(|at| pack(&table.raw_get::<Value>(at)?, out))
}

fn take<const N: usize>(bytes: &[u8], at: &mut usize) -> mlua::Result<[u8; N]> {
    let taken = bytes.get(*at..*at + N).and_then(|part| part.try_into().ok());
    *at += N;
    taken.ok_or_else(|| mlua::Error::runtime("ERR Missing bytes in input."))
}

fn unpack(lua: &Lua, bytes: &[u8], at: &mut usize) -> mlua::Result<Value> {
    let [kind] = take(bytes, at)?;
    let text = |length: usize, at: &mut usize| {
        let part = bytes.get(*at..*at + length).ok_or_else(|| mlua::Error::runtime("ERR Missing bytes in input."))?;
        *at += length;
        Ok(Value::String(lua.create_string(part)?))
    };
    let list = |length: usize, at: &mut usize| {
        let table = lua.create_table_with_capacity(length, 0)?;
        for n in 1..=length {
            table.raw_set(n, unpack(lua, bytes, at)?)?;
        }
        Ok(Value::Table(table))
    };
    let number = |number: i64| Ok(Value::Number(number as f64));
    match kind {
        0..=0x7f => number(i64::from(kind)),
        0xe0..=0xff => number(i64::from(kind.cast_signed())),
        0xc0 => Ok(Value::Nil),
        0xc2 => Ok(Value::Boolean(false)),
        0xc3 => Ok(Value::Boolean(true)),
        0xca => Ok(Value::Number(f64::from(f32::from_be_bytes(take(bytes, at)?)))),
        0xcb => Ok(Value::Number(f64::from_be_bytes(take(bytes, at)?))),
        0xcc => number(i64::from(take::<1>(bytes, at)?[0])),
        0xcd => number(i64::from(u16::from_be_bytes(take(bytes, at)?))),
        0xce => number(i64::from(u32::from_be_bytes(take(bytes, at)?))),
        0xcf | 0xd3 => number(i64::from_be_bytes(take(bytes, at)?)),
        0xd0 => number(i64::from(take::<1>(bytes, at)?[0].cast_signed())),
        0xd1 => number(i64::from(i16::from_be_bytes(take(bytes, at)?))),
        0xd2 => number(i64::from(i32::from_be_bytes(take(bytes, at)?))),
        0xa0..=0xbf => text(usize::from(kind & 0x1f), at),
        0xd9 => text(usize::from(take::<1>(bytes, at)?[0]), at),
        0xda => text(usize::from(u16::from_be_bytes(take(bytes, at)?)), at),
        0xdb => text(u32::from_be_bytes(take(bytes, at)?) as usize, at),
        0x90..=0x9f => list(usize::from(kind & 0x0f), at),
        0xdc => list(usize::from(u16::from_be_bytes(take(bytes, at)?)), at),
        0xdd => list(u32::from_be_bytes(take(bytes, at)?) as usize, at),
        _ => Err(mlua::Error::runtime("ERR Bad data format in input.")),
    }
}

/// One item of a format of `struct`: its letter and its size; or a change of the order of bytes.
fn items(format: &[u8]) -> mlua::Result<Vec<(u8, usize)>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < format.len() {
        let letter = format[at];
        at += 1;
        let digits = format[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let size = std::str::from_utf8(&format[at..at + digits]).expect("digits").parse().ok();
        at += digits;
        match letter {
            b' ' => {}
            b'>' | b'<' => found.push((letter, 0)),
            b'b' | b'B' | b'x' => found.push((letter, 1)),
            b'h' | b'H' => found.push((letter, 2)),
            b'l' | b'L' => found.push((letter, 8)),
            b'i' | b'I' => found.push((letter, size.unwrap_or(4))),
            b'c' => found.push((letter, size.unwrap_or(1))),
            _ => return Err(mlua::Error::runtime(format!("ERR invalid format option '{}'", char::from(letter)))),
        }
    }
    Ok(found)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "as the library has it")]
fn struct_pack(format: &[u8], values: &[Value]) -> mlua::Result<Vec<u8>> {
    let (mut out, mut big, mut values) = (Vec::new(), false, values.iter());
    for (letter, size) in items(format)? {
        match letter {
            b'>' | b'<' => big = letter == b'>',
            b'x' => out.push(0),
            b'c' => {
                let Some(Value::String(text)) = values.next() else {
                    return Err(mlua::Error::runtime("ERR a string was expected"));
                };
                let bytes = text.as_bytes();
                let size = if size == 0 { bytes.len() } else { size };
                out.extend_from_slice(bytes.get(..size).ok_or_else(|| mlua::Error::runtime("ERR string too short"))?);
            }
            _ => {
                let number = number_of(values.next().unwrap_or(&Value::Nil))?;
                let word = if number < 0.0 { (number as i64).cast_unsigned() } else { number as u64 };
                let bytes = word.to_be_bytes();
                let part = &bytes[8 - size.min(8)..];
                if big { out.extend_from_slice(part) } else { out.extend(part.iter().rev()) }
            }
        }
    }
    Ok(out)
}

fn struct_unpack(lua: &Lua, format: &[u8], text: &[u8], from: usize) -> mlua::Result<MultiValue> {
    let (mut found, mut big, mut at) = (Vec::new(), false, from);
    for (letter, size) in items(format)? {
        if matches!(letter, b'>' | b'<') {
            big = letter == b'>';
            continue;
        }
        let part = text.get(at..at + size).ok_or_else(|| mlua::Error::runtime("ERR data string too short"))?;
        at += size;
        match letter {
            b'x' => {}
            b'c' => found.push(Value::String(lua.create_string(part)?)),
            _ => {
                let fold = |word: u64, byte: &u8| word << 8 | u64::from(*byte);
                let word = if big { part.iter().fold(0, fold) } else { part.iter().rev().fold(0, fold) };
                let signed = letter.is_ascii_lowercase();
                let shift = 64 - 8 * u32::try_from(size).expect("small");
                let number = if signed { ((word << shift).cast_signed() >> shift) as f64 } else { word as f64 };
                found.push(Value::Number(number));
            }
        }
    }
    found.push(Value::Number((at + 1) as f64));
    Ok(MultiValue::from_vec(found))
}
