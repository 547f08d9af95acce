//! Small outcome bodies in memory, by the slot of their key.
//!
//! A line holds one body of up to [`SMALL_BYTES_MAX`] bytes, all of it atomics under a version of its
//! own (a sequence lock): a reader takes no lock, counts no reference and writes nothing, so readers
//! do not get in each other's way. What a row holds never changes and no row is used twice, so a
//! line is right for as long as its row is the one that the index names. A line decides nothing.

use std::sync::OnceLock;

use crate::engine::state::Form;
use crate::engine::sync::Mutex;
use crate::engine::sync::atomic::{AtomicU64, Ordering, fence};
use crate::outcome::{Few, Kind, Outcome, SMALL_BYTES_MAX};

/// The lines, in sets of [`WAYS`], in groups that are made with their first body. A place is a
/// number that is known before the record is read: both are then fetched at once.
pub(crate) struct Lines {
    groups: Box<[OnceLock<Group>]>,
}

struct Group {
    lines: Box<[Line]>,
    writer: Mutex<()>,
}

/// A head, the row, the bytes.
#[repr(align(128))]
struct Line([AtomicU64; LINE_WORDS]);

const BODY_WORDS: usize = SMALL_BYTES_MAX / 8;
const LINE_WORDS: usize = 2 + BODY_WORDS;
const LINE_BYTES: usize = LINE_WORDS * 8;

/// A line is two lines of the processor's cache.
const _: () = assert!(cfg!(onceledger_shuttle) || size_of::<Line>() == LINE_BYTES);

/// How many lines a body may be in.
const WAYS: usize = 4;
/// Lines of a group.
const GROUP_LINES: usize = if cfg!(onceledger_shuttle) { WAYS } else { 256 };

/// No body has row 0.
const NO_ROW: u64 = 0;

/// A head is the version, the form and the length; odd versions are being written.
const VERSION: u64 = 1 << 16;

impl Lines {
    /// As many lines as fit into so many bytes, in whole groups.
    pub fn new(bytes: usize) -> Self {
        let groups = bytes / (GROUP_LINES * LINE_BYTES);
        let groups = groups.checked_ilog2().map_or(0, |bits| 1_usize << bits);
        Lines { groups: (0..groups).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    fn group(&self, place: u32) -> Option<&OnceLock<Group>> {
        self.groups.get((place as usize / GROUP_LINES) & self.groups.len().wrapping_sub(1))
    }

    /// Asks the processor for the line of a place, and waits for nothing.
    #[inline(always)]
    pub fn touch(&self, place: u32) -> u64 {
        let line = || self.group(place)?.get()?.lines.get(place as usize & (GROUP_LINES - 1));
        line().map_or(0, |line| line.0[0].load(Ordering::Relaxed) ^ line.0[LINE_WORDS - 1].load(Ordering::Relaxed))
    }

    /// The body of a row, where it is here.
    #[inline(always)]
    pub fn get(&self, place: u32, row: u64) -> Option<Outcome> {
        let group = self.group(place)?.get()?;
        let line = group.set(place).find(|line| line.row() == row)?;
        line.read(row)
    }

    /// Keeps a small body, in place of the oldest of its set where that is full.
    pub fn put(&self, place: u32, row: u64, body: &Outcome) {
        let Some(group) = self.group(place) else { return };
        let group = group.get_or_init(Group::new);
        let _writer = group.writer.lock();
        if group.set(place).all(|line| line.row() != row)
            && let Some(line) = group.set(place).min_by_key(|line| line.row())
        {
            line.write(row, body);
        }
    }

    /// Overwrites a body, where it is here.
    pub fn remove(&self, place: u32, row: u64) {
        let Some(group) = self.group(place).and_then(OnceLock::get) else { return };
        let _writer = group.writer.lock();
        if let Some(line) = group.set(place).find(|line| line.row() == row) {
            line.write(NO_ROW, &Outcome::new(Kind::Json, false, &[]));
        }
    }
}

impl Group {
    fn new() -> Self {
        let line = |_| Line(std::array::from_fn(|_| AtomicU64::new(0)));
        Group { lines: (0..GROUP_LINES).map(line).collect(), writer: Mutex::new(()) }
    }

    /// The lines that a body may be in, the one of its own place first.
    #[inline]
    fn set(&self, place: u32) -> impl Iterator<Item = &Line> {
        let own = place as usize & (GROUP_LINES - 1);
        (0..WAYS).filter_map(move |way| self.lines.get(own ^ way))
    }
}

impl Line {
    #[inline]
    fn row(&self) -> u64 {
        self.0[1].load(Ordering::Relaxed)
    }

    /// The body, where it is this row's and nobody writes to the line meanwhile.
    #[inline(always)]
    fn read(&self, row: u64) -> Option<Outcome> {
        let [head, _, words @ ..] = &self.0;
        let before = head.load(Ordering::Acquire);
        if self.row() != row || before & VERSION != 0 {
            return None;
        }
        let mut bytes = Few([0; SMALL_BYTES_MAX]);
        for (bytes, word) in bytes.0.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.load(Ordering::Relaxed).to_le_bytes();
        }
        fence(Ordering::Acquire);
        let [len, form, ..] = before.to_le_bytes();
        let unchanged = head.load(Ordering::Relaxed) == before;
        unchanged.then(|| Outcome::small(Form::from_code(form).kind(), Form::from_code(form).is_error(), len, bytes))
    }

    /// Only with the group's lock.
    fn write(&self, row: u64, body: &Outcome) {
        let Some((len, bytes)) = body.as_small() else { return };
        let [head, place, words @ ..] = &self.0;
        let version = head.load(Ordering::Relaxed) & !(VERSION - 1);
        head.store(version.wrapping_add(VERSION), Ordering::Relaxed);
        fence(Ordering::Release);
        place.store(row, Ordering::Relaxed);
        for (word, bytes) in words.iter().zip(bytes.0.as_chunks::<8>().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
        let form = Form::new(body.kind(), body.is_error()).code();
        let written = version.wrapping_add(2 * VERSION) | u64::from(form) << 8 | u64::from(len);
        head.store(written, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A body that says whose it is, of any small length.
    fn body(row: u64) -> Outcome {
        let text = row.to_string().repeat(SMALL_BYTES_MAX);
        let kind = [Kind::Json, Kind::Text, Kind::Binary][row as usize % 3];
        Outcome::new(kind, row.is_multiple_of(2), &text.as_bytes()[..row as usize % (SMALL_BYTES_MAX + 1)])
    }

    #[test]
    fn a_line_gives_the_body_of_its_row_or_nothing() {
        let lines = Lines::new(2 * GROUP_LINES * LINE_BYTES);
        let (mut newest, mut found) = (BTreeMap::new(), 0);
        let mut random = 7_u64;
        for row in 1..30_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let place = (random >> 33) as u32 % 2000;
            lines.put(place, row, &body(row));
            assert_eq!(lines.get(place, row), Some(body(row)), "row {row}");
            if let Some(old) = newest.insert(place, row) {
                assert!(lines.get(place, old).is_none_or(|seen| seen == body(old)), "row {old}");
                lines.remove(place, old);
                assert_eq!(lines.get(place, old), None, "row {old} was taken out");
            }
            assert_eq!(lines.get(place, row + 1), None, "a row that nobody put");
            found += u64::from(newest.first_key_value().is_some_and(|(place, row)| lines.get(*place, *row).is_some()));
        }
        assert!(found > 0);
    }

    #[test]
    fn a_full_set_gives_up_its_oldest_row() {
        let lines = Lines::new(GROUP_LINES * LINE_BYTES);
        for row in 1..=WAYS as u64 + 1 {
            lines.put(0, row, &body(row));
        }
        let kept: Vec<_> = (1..=WAYS as u64 + 1).map(|row| lines.get(0, row).is_some()).collect();
        assert_eq!(kept, [false, true, true, true, true]);
    }

    #[test]
    fn without_bytes_nothing_is_kept() {
        for bytes in [0, 1, GROUP_LINES * LINE_BYTES - 1] {
            let lines = Lines::new(bytes);
            lines.put(0, 1, &body(1));
            lines.remove(0, 1);
            assert_eq!(lines.get(0, 1), None);
        }
    }

    #[test]
    fn a_body_over_the_limit_is_not_cut() {
        let lines = Lines::new(GROUP_LINES * LINE_BYTES);
        lines.put(0, 1, &Outcome::new(Kind::Text, false, &[b'x'; SMALL_BYTES_MAX + 1]));
        assert_eq!(lines.get(0, 1), None);
    }

    #[test]
    fn a_reader_never_gets_a_body_of_another_row_while_lines_are_replaced() {
        const ROWS: u64 = 60_000;
        let (lines, done) = (&Lines::new(GROUP_LINES * LINE_BYTES), &AtomicBool::new(false));
        let newest = &AtomicU64::new(1);
        std::thread::scope(|scope| {
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(move || {
                        let mut seen = 0_u64;
                        while !done.load(Ordering::Relaxed) {
                            let newest = newest.load(Ordering::Relaxed);
                            for row in newest.saturating_sub(6).max(1)..=newest {
                                if let Some(found) = lines.get(row as u32 % 3, row) {
                                    assert_eq!(found, body(row), "row {row}");
                                    seen += 1;
                                }
                            }
                        }
                        seen
                    })
                })
                .collect();
            for row in 1..ROWS {
                lines.put(row as u32 % 3, row, &body(row));
                newest.store(row, Ordering::Relaxed);
            }
            done.store(true, Ordering::Relaxed);
            let seen: u64 = readers.into_iter().map(|reader| reader.join().unwrap()).sum();
            println!("{seen} bodies seen while they were replaced");
            assert!(seen > 0);
        });
    }
}
