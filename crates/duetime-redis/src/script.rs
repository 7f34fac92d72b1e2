//! A Lua script as both old and new servers take it.

/// Opens a script whose last argument is [`Sending::not_after_ms`], and which is not carried out after that.
pub const NOT_AFTER: &str = include_str!("../lua/not_after.lua");

/// What one sending of a call has to say of itself.
#[derive(Debug, Clone, Copy)]
pub struct Sending {
    /// An earlier sending of this call may have taken effect.
    pub repeated: bool,
    /// The time of the server, in milliseconds since the Unix epoch, after which it must not carry the call out.
    pub not_after_ms: i64,
    /// The time of the server, at least, when it is sent.
    pub since_ms: i64,
}

/// A script with its SHA-1.
#[derive(Debug, Clone)]
pub struct Script {
    name: &'static str,
    modern: redis::Script,
    legacy: redis::Script,
    modern_code: String,
    legacy_code: String,
}

impl Script {
    /// Puts a script together from its parts. `allow_oom`: it works on a server at `maxmemory`
    /// too; servers before 7.0 know no such mark.
    #[must_use]
    pub fn new(name: &'static str, allow_oom: bool, parts: &[&str]) -> Self {
        let legacy_code = parts.concat();
        let shebang = if allow_oom { "#!lua flags=allow-oom\n" } else { "#!lua\n" };
        let modern_code = format!("{shebang}{legacy_code}");
        Self {
            name,
            modern: redis::Script::new(&modern_code),
            legacy: redis::Script::new(&legacy_code),
            modern_code,
            legacy_code,
        }
    }

    /// For metrics and logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its name on the server; `legacy`: before 7.0.
    #[must_use]
    pub fn sha(&self, legacy: bool) -> &str {
        if legacy { self.legacy.get_hash() } else { self.modern.get_hash() }
    }

    /// What the server loads.
    #[must_use]
    pub fn code(&self, legacy: bool) -> &str {
        if legacy { &self.legacy_code } else { &self.modern_code }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_spared_the_flags() {
        let script = Script::new("x", true, &["return ", "1"]);
        assert_eq!(script.code(true), "return 1");
        assert_eq!(script.code(false), "#!lua flags=allow-oom\nreturn 1");
        // SHA-1 of `return 1`, as SCRIPT LOAD answers it.
        assert_eq!(script.sha(true), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        assert_ne!(script.sha(true), script.sha(false));
    }
}
