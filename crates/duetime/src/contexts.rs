//! Contexts: nodes with their tokens under names of the user's own, in a file of the user.

use std::fs::{self, DirBuilder, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use duetime_core::suggest;
use duetime_settings::Secret;
use serde::Deserialize;
use toml::{Table, Value};

/// Tokens may be in it.
const FILE_MODE: u32 = 0o600;
const FOLDER_MODE: u32 = 0o700;
const CONTEXTS: &str = "contexts";
const CURRENT: &str = "current";

/// The contexts of a user.
#[derive(Debug)]
pub struct Contexts {
    file: PathBuf,
    table: Table,
}

/// What a context names.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    node: String,
    token: Option<Secret>,
}

/// Where the contexts of this user are: `duetime/contexts.toml` in the folder that XDG has for configuration.
fn place() -> anyhow::Result<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
    Ok(base
        .context("contexts are kept in the user's folder; set HOME or XDG_CONFIG_HOME")?
        .join("duetime/contexts.toml"))
}

impl Contexts {
    /// Those of this user; none, where there is no file.
    pub fn read() -> anyhow::Result<Self> {
        Self::read_from(place()?)
    }

    fn read_from(file: PathBuf) -> anyhow::Result<Self> {
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(error) => bail!("cannot read the contexts in {}: {error}", file.display()),
        };
        let table = text.parse().map_err(|error: toml::de::Error| {
            anyhow::anyhow!("{} is no file of contexts: {}", file.display(), error.message())
        })?;
        Ok(Self { file, table })
    }

    /// Every context with what is written of it, by name.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Value)> {
        let all = self.table.get(CONTEXTS).and_then(Value::as_table).into_iter().flatten();
        all.map(|(name, context)| (name.as_str(), context))
    }

    /// The one that is used where none is named.
    pub fn current(&self) -> Option<&str> {
        self.table.get(CURRENT)?.as_str()
    }

    /// The address of the node that a context names, and its token, read from where the context says it is.
    pub fn target(&self, name: &str) -> anyhow::Result<(String, Option<Secret>)> {
        let context = self.find(name)?.clone();
        let read: Result<Target, toml::de::Error> = context.try_into();
        match read {
            Ok(Target { node, token }) => Ok((node, token)),
            Err(error) => bail!("context {name:?} in {}: {}", self.file.display(), error.message()),
        }
    }

    fn find(&self, name: &str) -> anyhow::Result<&Value> {
        let found = self.all().find(|(known, _)| *known == name).map(|(_, context)| context);
        let names: Vec<&str> = self.all().map(|(name, _)| name).collect();
        found.with_context(|| format!("{}; see `duetime context list`", suggest::unknown("context", name, &names)))
    }

    /// Adds a context, or gives it another meaning.
    pub fn add(&mut self, name: &str, node: &str, token: Option<Value>) -> anyhow::Result<()> {
        let mut context = Table::from_iter([("node".to_owned(), Value::from(node))]);
        context.extend(token.map(|token| ("token".to_owned(), token)));
        let contexts = self.table.entry(CONTEXTS).or_insert_with(|| Value::Table(Table::new()));
        let contexts = contexts.as_table_mut().context("contexts is no section")?;
        contexts.insert(name.to_owned(), Value::Table(context));
        self.write()
    }

    /// Uses a context where none is named, or none.
    pub fn set_current(&mut self, name: Option<&str>) -> anyhow::Result<()> {
        match name {
            Some(name) => {
                self.find(name)?;
                self.table.insert(CURRENT.to_owned(), Value::from(name));
            }
            None => drop(self.table.remove(CURRENT)),
        }
        self.write()
    }

    /// Forgets a context.
    pub fn remove(&mut self, name: &str) -> anyhow::Result<()> {
        self.find(name)?;
        if self.current() == Some(name) {
            self.table.remove(CURRENT);
        }
        self.table.get_mut(CONTEXTS).and_then(Value::as_table_mut).and_then(|contexts| contexts.remove(name));
        self.write()
    }

    /// Another process finds the old file or the new one, never half of one.
    fn write(&self) -> anyhow::Result<()> {
        let write = || -> anyhow::Result<()> {
            let folder = self.file.parent().unwrap_or_else(|| Path::new("."));
            DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(folder)?;
            let mut new = tempfile::NamedTempFile::new_in(folder)?;
            new.as_file().set_permissions(Permissions::from_mode(FILE_MODE))?;
            new.write_all(toml::to_string(&self.table)?.as_bytes())?;
            new.persist(&self.file)?;
            Ok(())
        };
        write().with_context(|| format!("cannot write the contexts in {}", self.file.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_kept_used_and_forgotten_and_its_token_is_read_when_it_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let (file, token) = (folder.path().join("a/contexts.toml"), folder.path().join("token"));
        fs::write(&token, "secret-of-the-shop\n").unwrap();
        let mut contexts = Contexts::read_from(file.clone()).unwrap();
        let by_file = |path: &str| Some(Value::Table(Table::from_iter([("file".to_owned(), Value::from(path))])));
        contexts.add("shop", "https://a:1", by_file(token.to_str().unwrap())).unwrap();
        contexts.add("gone", "https://b:1", by_file("/no/file")).unwrap();
        contexts.set_current(Some("shop")).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, FILE_MODE);
        assert!(!fs::read_to_string(&file).unwrap().contains("secret-of-the-shop"));
        let mut contexts = Contexts::read_from(file).unwrap();
        assert_eq!(contexts.current(), Some("shop"));
        let (node, token) = contexts.target("shop").unwrap();
        assert_eq!((node.as_str(), token.unwrap().expose()), ("https://a:1", "secret-of-the-shop"));
        assert!(contexts.target("gone").unwrap_err().to_string().contains("/no/file"));
        let unknown = contexts.target("shp").unwrap_err().to_string();
        assert!(unknown.contains("did you mean \"shop\"?"), "{unknown}");
        assert!(contexts.set_current(Some("nope")).is_err());
        contexts.remove("shop").unwrap();
        assert_eq!((contexts.current(), contexts.all().count()), (None, 1));
    }
}
