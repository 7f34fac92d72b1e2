//! The files of the repository, read once per rule.

use std::fs;
use std::path::{Path, PathBuf};

/// What no rule looks into: made by tools, or data of a run.
const NOT_OURS: [&str; 5] = [".git", "target", "duetime-data", "__pycache__", "corpus"];

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the repository").to_path_buf()
}

/// One text file: its path from the root, with `/`, and what is in it.
pub struct File {
    pub path: String,
    pub text: String,
}

/// Every text file of the repository whose path passes `wanted`, in order of path.
pub fn files(wanted: impl Fn(&str) -> bool) -> Vec<File> {
    let mut found = Vec::new();
    walk(&root(), &root(), &wanted, &mut found);
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn walk(root: &Path, folder: &Path, wanted: &impl Fn(&str) -> bool, found: &mut Vec<File>) {
    for entry in fs::read_dir(folder).expect("a folder of the repository can be read") {
        let path = entry.expect("a folder of the repository can be read").path();
        let name = path.file_name().expect("an entry has a name").to_string_lossy().into_owned();
        if NOT_OURS.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, wanted, found);
            continue;
        }
        let short = path.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
        if wanted(&short)
            && let Ok(text) = fs::read_to_string(&path)
        {
            found.push(File { path: short, text });
        }
    }
}

/// Whether a path ends in `.ext`.
pub fn is(path: &str, ext: &str) -> bool {
    Path::new(path).extension().is_some_and(|e| e == ext)
}

/// Fails with every broken place, one a line.
pub fn none(rule: &str, broken: Vec<String>) {
    assert!(broken.is_empty(), "{rule}\n  {}\n", broken.join("\n  "));
}
