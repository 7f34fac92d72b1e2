//! Scripts: Lua 5.1 as Redis runs it, with a machine for each thread, for scripts keep nothing between two calls.

use std::cell::RefCell;
use std::collections::HashMap;

use bytes::Bytes;
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};
use sha1::{Digest as _, Sha1};

use crate::commands::Exec;
use crate::lua_lib;
use crate::reply::{Reply, double};

/// A script as it was loaded.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) sha: String,
    /// As its client sent it.
    pub(crate) text: Bytes,
    /// As it runs: without the line of its flags, and with what a test changes.
    code: String,
    /// By which the compiled code is known.
    code_sha: String,
    /// It begins with `#!lua`.
    pub(crate) has_flags: bool,
    pub(crate) allow_oom: bool,
}

/// The SHA-1 of a text, as SCRIPT LOAD answers it.
#[must_use]
pub fn sha1_hex(text: &[u8]) -> String {
    Sha1::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

struct Machine {
    lua: Lua,
    compiled: HashMap<String, Function>,
}

thread_local! {
    static MACHINE: RefCell<Machine> = RefCell::new(Machine::new().expect("a machine for Lua"));
    /// What the script that runs works on.
    static RUNNING: RefCell<Option<(Exec, Limits)>> = const { RefCell::new(None) };
}

/// What commands of a script may do.
#[derive(Clone, Copy, Debug)]
struct Limits {
    allow_oom: bool,
}

impl Script {
    /// # Errors
    ///
    /// Why it cannot be compiled.
    pub(crate) fn load(text: &Bytes, edited: Option<String>) -> Result<Self, String> {
        let whole = String::from_utf8_lossy(text).into_owned();
        let (mut has_flags, mut allow_oom) = (false, false);
        let mut code = edited.unwrap_or(whole);
        if code.starts_with("#!") {
            let (first, rest) = code.split_once('\n').unwrap_or((&code, ""));
            if !first.starts_with("#!lua") {
                return Err(format!("ERR Unexpected engine in script shebang: {first}"));
            }
            has_flags = true;
            allow_oom = first.contains("allow-oom");
            code = format!("\n{rest}");
        }
        let code_sha = sha1_hex(code.as_bytes());
        let script = Self { sha: sha1_hex(text), text: text.clone(), code, code_sha, has_flags, allow_oom };
        MACHINE.with_borrow_mut(|machine| machine.function(&script))?;
        Ok(script)
    }

    /// Runs it on `exec`.
    pub(crate) fn run(&self, exec: &mut Exec, keys: &[Bytes], args: &[Bytes]) -> Reply {
        let limits = Limits { allow_oom: self.allow_oom };
        RUNNING.set(Some((std::mem::take(exec), limits)));
        let reply = MACHINE.with_borrow_mut(|machine| machine.run(self, keys, args));
        *exec = RUNNING.take().expect("it was put there").0;
        reply.unwrap_or_else(Reply::Error)
    }
}

impl Machine {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::STRING | StdLib::TABLE | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::default())?;
        let globals = lua.globals();
        for name in ["dofile", "loadfile", "print"] {
            globals.raw_set(name, Value::Nil)?;
        }
        let redis = lua.create_table()?;
        redis.raw_set("call", lua.create_function(|lua, args| command(lua, args, true))?)?;
        redis.raw_set("pcall", lua.create_function(|lua, args| command(lua, args, false))?)?;
        redis.raw_set(
            "error_reply",
            lua.create_function(|lua, text: mlua::LuaString| {
                let text = text.to_string_lossy();
                let text = text.strip_prefix('-').unwrap_or(&text);
                error_table(lua, &if text.contains(' ') { text.to_owned() } else { format!("ERR {text}") })
            })?,
        )?;
        redis.raw_set(
            "status_reply",
            lua.create_function(|lua, text: mlua::LuaString| {
                let table = lua.create_table()?;
                table.raw_set("ok", text)?;
                Ok(table)
            })?,
        )?;
        redis.raw_set("sha1hex", lua.create_function(|_, text: mlua::LuaString| Ok(sha1_hex(&text.as_bytes())))?)?;
        redis.raw_set("log", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
        globals.raw_set("redis", redis)?;
        lua_lib::add(&lua)?;
        // What a script makes global would be there for the next one.
        let guard = lua.create_table()?;
        guard.raw_set(
            "__index",
            lua.create_function(|_, (_, name): (Value, mlua::LuaString)| {
                let name = name.to_string_lossy();
                Err::<Value, _>(mlua::Error::runtime(format!(
                    "ERR Script attempted to access nonexistent global variable '{name}'"
                )))
            })?,
        )?;
        guard.raw_set(
            "__newindex",
            lua.create_function(|_, _: MultiValue| {
                Err::<Value, _>(mlua::Error::runtime("ERR Attempt to modify a readonly table"))
            })?,
        )?;
        globals.set_metatable(Some(guard))?;
        Ok(Self { lua, compiled: HashMap::new() })
    }

    fn function(&mut self, script: &Script) -> Result<Function, String> {
        if let Some(known) = self.compiled.get(&script.code_sha) {
            return Ok(known.clone());
        }
        let made = self.lua.load(&script.code).set_name("=user_script").into_function();
        let made = made.map_err(|error| format!("ERR Error compiling script (new function): {}", cause(&error)))?;
        self.compiled.insert(script.code_sha.clone(), made.clone());
        Ok(made)
    }

    fn run(&mut self, script: &Script, keys: &[Bytes], args: &[Bytes]) -> Result<Reply, String> {
        let function = self.function(script)?;
        let list = |parts: &[Bytes]| -> mlua::Result<Table> {
            let strings = parts.iter().map(|part| self.lua.create_string(part));
            self.lua.create_sequence_from(strings.collect::<mlua::Result<Vec<_>>>()?)
        };
        let globals = self.lua.globals();
        let ran = (|| {
            globals.raw_set("KEYS", list(keys)?)?;
            globals.raw_set("ARGV", list(args)?)?;
            let answer = function.call::<Value>(())?;
            reply_of(&answer)
        })();
        ran.map_err(|error| format!("{} script: {}, on @user_script:0.", cause(&error), script.sha))
    }
}

/// What went wrong, as the first line of an error.
fn cause(error: &mlua::Error) -> String {
    match error {
        mlua::Error::CallbackError { cause: inner, .. } => match &**inner {
            mlua::Error::RuntimeError(text) => text.clone(),
            other => cause(other),
        },
        mlua::Error::WithContext { cause: inner, .. } => cause(inner),
        other => {
            let text = other.to_string();
            format!("ERR {}", text.lines().next().unwrap_or("").trim_start_matches("runtime error: "))
        }
    }
}

fn error_table(lua: &Lua, text: &str) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", text)?;
    Ok(table)
}

/// `redis.call` and `redis.pcall`.
fn command(lua: &Lua, args: MultiValue, raises: bool) -> mlua::Result<Value> {
    let mut words = Vec::with_capacity(args.len());
    for arg in args {
        words.push(match arg {
            Value::String(text) => Bytes::copy_from_slice(&text.as_bytes()),
            Value::Integer(number) if number.unsigned_abs() < 100_000_000_000_000_000 => number.to_string().into(),
            Value::Integer(number) => double(number as f64).into(),
            Value::Number(number) => double(number).into(),
            _ => {
                let text = "ERR Lua redis lib command arguments must be strings or integers";
                return if raises {
                    Err(mlua::Error::runtime(text))
                } else {
                    Ok(Value::Table(error_table(lua, text)?))
                };
            }
        });
    }
    let reply = RUNNING.with_borrow_mut(|running| {
        let (exec, limits) = running.as_mut().expect("a script runs");
        let full = exec.full;
        exec.full = full && !limits.allow_oom;
        let reply = exec.run(&words);
        exec.full = full;
        reply
    });
    match reply.unwrap_or_else(|| Reply::error("ERR Unknown Redis command called from script")) {
        Reply::Error(text) if raises => Err(mlua::Error::runtime(text)),
        reply => value_of(lua, &reply),
    }
}

fn value_of(lua: &Lua, reply: &Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Int(number) => Value::Number(*number as f64),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Nil => Value::Boolean(false),
        Reply::Status(text) => {
            let table = lua.create_table()?;
            table.raw_set("ok", text.as_str())?;
            Value::Table(table)
        }
        Reply::Error(text) => Value::Table(error_table(lua, text)?),
        Reply::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for (at, item) in items.iter().enumerate() {
                table.raw_set(at + 1, value_of(lua, item)?)?;
            }
            Value::Table(table)
        }
    })
}

#[expect(clippy::cast_possible_truncation, reason = "as Redis does: a number loses what is behind the point")]
fn reply_of(value: &Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(*number as i64),
        Value::String(text) => Reply::bulk(&text.as_bytes()),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => {
            if let Value::String(text) = table.raw_get("err")? {
                return Ok(Reply::Error(text.to_string_lossy()));
            }
            if let Value::String(text) = table.raw_get("ok")? {
                return Ok(Reply::Status(text.to_string_lossy()));
            }
            let mut items = Vec::with_capacity(table.raw_len());
            for at in 1.. {
                match table.raw_get::<Value>(at)? {
                    Value::Nil => break,
                    item => items.push(reply_of(&item)?),
                }
            }
            Reply::Array(items)
        }
        _ => Reply::Nil,
    })
}
