//! Where lines go: a file, or anything else that takes bytes.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom, Write};
use std::path::Path;

/// Where lines go.
pub struct Output(OutputKind);

enum OutputKind {
    /// Appended. `torn`: it ends within a line.
    File { file: File, torn: bool },
    /// A pipe or a terminal.
    Stream(Box<dyn Write + Send>),
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self.0, OutputKind::File { .. }) { "Output(file)" } else { "Output(stream)" })
    }
}

/// Whether the file ends within a line, as a process that was killed, or a full disk, leaves it.
fn ends_within_a_line(path: &Path) -> io::Result<bool> {
    let is_file = std::fs::metadata(path)?;
    if !is_file.is_file() || is_file.len() == 0 {
        return Ok(false);
    }
    let (mut file, mut last) = (File::open(path)?, [0]);
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

impl Output {
    /// To `file`, which was opened to append to `path`. What stands there without an end is ended first.
    #[must_use]
    pub fn file(file: File, path: &Path) -> Self {
        // What cannot be read is taken to be whole: a line too many is worse than none only for its reader.
        Self(OutputKind::File { file, torn: ends_within_a_line(path).unwrap_or(false) })
    }

    /// To a pipe, a terminal, or whatever else takes bytes.
    #[must_use]
    pub fn stream(stream: impl Write + Send + 'static) -> Self {
        Self(OutputKind::Stream(Box::new(stream)))
    }

    /// How many bytes there are, where that can be known.
    pub(crate) fn length(&self) -> Option<u64> {
        let OutputKind::File { file, .. } = &self.0 else { return None };
        file.metadata().ok().filter(std::fs::Metadata::is_file).map(|is| is.len())
    }

    /// Begins the next line on a line of its own.
    pub(crate) fn end_line(&mut self) -> io::Result<()> {
        match &mut self.0 {
            OutputKind::File { torn, .. } => *torn = true,
            OutputKind::Stream(stream) => stream.write_all(b"\n")?,
        }
        Ok(())
    }

    /// Writes some of `bytes`, which begin a line or go on with one.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            OutputKind::File { file, torn } => {
                if *torn {
                    file.write_all(b"\n")?;
                    *torn = false;
                }
                file.write(bytes)
            }
            OutputKind::Stream(stream) => {
                let written = stream.write(bytes)?;
                stream.flush()?;
                Ok(written)
            }
        }
    }
}
