//! A writer whose output stands still, fails, or tears a line.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use super::*;

/// Long enough for a thread to run on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Takes so many bytes, then what `refuses` says.
#[derive(Clone, Default)]
struct Pipe(Arc<(Mutex<PipeState>, Condvar)>);

#[derive(Default)]
struct PipeState {
    taken: Vec<u8>,
    room: usize,
    refuses: bool,
}

impl Pipe {
    fn give_room(&self, room: usize) {
        self.0.0.lock().room = room;
        self.0.1.notify_all();
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.0.lock().taken.clone()).unwrap()
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.0.lock();
        while state.room == 0 {
            if state.refuses {
                return Err(io::Error::from(io::ErrorKind::StorageFull));
            }
            self.0.1.wait(&mut state);
        }
        let some = bytes.len().min(state.room);
        state.taken.extend_from_slice(&bytes[..some]);
        state.room -= some;
        Ok(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn writer(pipe: &Pipe) -> LineWriter {
    let notice: Notice = Box::new(|lost| Some(format!("lost {lost}\n").into_bytes()));
    LineWriter::start("test-lines", Output::stream(pipe.clone()), notice).unwrap()
}

fn appended(path: &Path) -> Output {
    Output::file(OpenOptions::new().append(true).create(true).open(path).unwrap(), path)
}

#[test]
fn a_reader_that_stands_still_holds_up_nobody_and_what_is_lost_is_counted_and_said_once() {
    let pipe = Pipe::default();
    let writer = writer(&pipe);
    let line = [&[b'x'; 1023][..], b"\n"].concat();
    let taken = (0..10_000).filter(|_| writer.push(line.clone(), Importance::Ordinary)).count();
    let most = ORDINARY_BYTES_MAX / line.len();
    assert!((most..=most + 64).contains(&taken), "{taken}");
    assert_eq!(writer.lost(), 10_000 - taken as u64);
    assert!(writer.stall().is_some_and(|stall| stall.lost == writer.lost() && stall.waiting == taken));
    // What must not be lost has room of its own.
    assert!(writer.push(b"a deed\n".to_vec(), Importance::Kept) && writer.has_room());
    assert_eq!(writer.flush(Duration::ZERO), taken + 1, "nothing is written");
    pipe.give_room(usize::MAX);
    assert_eq!(writer.flush(PATIENCE), 0);
    let text = pipe.text();
    assert!(
        text.contains("a deed\n") && text.ends_with(&format!("lost {}\n", 10_000 - taken)),
        "said once, at the end"
    );
    assert_eq!(text.matches("lost").count(), 1);
}

#[test]
fn lines_that_must_not_be_lost_are_taken_in_any_case_and_the_writer_says_when_no_deed_may_follow() {
    let pipe = Pipe::default();
    let writer = writer(&pipe);
    let line = [&[b'x'; 65_535][..], b"\n"].concat();
    let mut pushed = 0;
    while writer.has_room() {
        assert!(writer.push(line.clone(), Importance::Kept));
        pushed += 1;
    }
    assert!(pushed >= KEPT_BYTES_MAX / line.len());
    assert!(writer.push(line.clone(), Importance::Kept), "whoever asked before is not lost");
    pipe.give_room(usize::MAX);
    assert_eq!(writer.flush(PATIENCE), 0);
    assert_eq!((pipe.text().lines().count(), writer.lost(), writer.has_room()), (pushed + 1, 0, true));
}

#[test]
fn a_line_that_a_full_disk_cut_is_gone_on_with_and_each_line_is_whole() {
    let pipe = Pipe::default();
    pipe.0.0.lock().refuses = true;
    pipe.give_room(10);
    let writer = writer(&pipe);
    writer.push(b"0123456789abcdef\n".to_vec(), Importance::Ordinary);
    writer.push(b"another\n".to_vec(), Importance::Ordinary);
    while writer.stall().is_none_or(|stall| stall.error.is_none()) {
        thread::yield_now();
    }
    pipe.give_room(usize::MAX);
    assert_eq!(writer.flush(PATIENCE), 0);
    assert_eq!(pipe.text(), "0123456789abcdef\nanother\n");
    assert_eq!((writer.lost(), writer.stall()), (0, None));
}

#[test]
fn a_file_that_ends_within_a_line_is_gone_on_with_on_a_line_of_its_own() {
    let folder = std::env::temp_dir().join(format!("duetime-lines-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("torn");
    std::fs::write(&path, "{\"whole\":1}\n{\"to").unwrap();
    let writer = LineWriter::start("test-lines", appended(&path), Box::new(|_| None)).unwrap();
    writer.push(b"{\"next\":2}\n".to_vec(), Importance::Kept);
    assert_eq!(writer.flush(PATIENCE), 0);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"whole\":1}\n{\"to\n{\"next\":2}\n");
    let other = folder.join("other");
    writer.replace(appended(&other));
    writer.push(b"{\"next\":3}\n".to_vec(), Importance::Kept);
    assert_eq!(writer.flush(PATIENCE), 0);
    assert_eq!(std::fs::read_to_string(&other).unwrap(), "{\"next\":3}\n");
    std::fs::remove_dir_all(&folder).unwrap();
}
