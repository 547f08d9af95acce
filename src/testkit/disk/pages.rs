//! The bytes of one file, in shared pages: a copy of a file costs a pointer a page, so that a
//! hundred thousand crash images of one ledger fit in memory.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Bytes in a page of the cache.
pub(super) const PAGE: usize = 4096;
/// A file cannot be longer than this, in bytes.
pub(super) const LEN_MAX: u64 = 16 << 30;

pub(super) type Page = Arc<[u8; PAGE]>;

/// Invariants: there are exactly as many slots as `len` needs; an empty slot is a hole and reads
/// as zeros; bytes of the last page past `len` are zero.
#[derive(Clone, Default)]
pub(super) struct Pages {
    len: u64,
    slots: Vec<Option<Page>>,
}

impl fmt::Debug for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

/// The pages a range of bytes touches.
pub(super) fn pages_of(offset: u64, len: u64) -> Range<u64> {
    if len == 0 {
        return 0..0;
    }
    offset / PAGE as u64..(offset + len).div_ceil(PAGE as u64)
}

impl Pages {
    pub(super) fn from_bytes(bytes: &[u8]) -> Self {
        let mut pages = Pages::default();
        pages.write(0, bytes);
        pages
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(self.len).unwrap_or(0)];
        self.read(0, &mut bytes);
        bytes
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Whether the page has bytes of its own; false for a hole and past the end.
    pub(super) fn is_allocated(&self, page: u64) -> bool {
        self.page(page).is_some()
    }

    pub(super) fn page(&self, page: u64) -> Option<&Page> {
        self.slots.get(usize::try_from(page).ok()?)?.as_ref()
    }

    /// Puts a whole page (or a hole) in place; past the end it does nothing.
    pub(super) fn put_page(&mut self, page: u64, bytes: Option<Page>) {
        let slot = usize::try_from(page).ok().and_then(|page| self.slots.get_mut(page));
        if let Some(slot) = slot {
            *slot = bytes;
        }
        self.zero_tail();
    }

    pub(super) fn resize(&mut self, len: u64) {
        assert!(len <= LEN_MAX, "a file of {len} bytes is more than the faulty disk holds");
        self.len = len;
        self.slots.resize(len.div_ceil(PAGE as u64) as usize, None);
        self.zero_tail();
    }

    fn zero_tail(&mut self) {
        let used = (self.len % PAGE as u64) as usize;
        if used == 0 {
            return;
        }
        if let Some(Some(page)) = self.slots.last_mut()
            && page.iter().skip(used).any(|byte| *byte != 0)
        {
            Arc::make_mut(page).iter_mut().skip(used).for_each(|byte| *byte = 0);
        }
    }

    /// Writes, growing the file where the bytes end past it.
    pub(super) fn write(&mut self, offset: u64, mut data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let end = offset + data.len() as u64;
        if end > self.len {
            self.resize(end);
        }
        let mut inside = (offset % PAGE as u64) as usize;
        for slot in self.slots.iter_mut().skip((offset / PAGE as u64) as usize) {
            let (now, later) = data.split_at(data.len().min(PAGE - inside));
            let page = Arc::make_mut(slot.get_or_insert_with(|| Arc::new([0; PAGE])));
            for (to, from) in page.iter_mut().skip(inside).zip(now) {
                *to = *from;
            }
            if later.is_empty() {
                break;
            }
            data = later;
            inside = 0;
        }
    }

    /// Fills `out` with what is there; bytes past the end are left alone. Returns how many bytes
    /// there were.
    pub(super) fn read(&self, offset: u64, out: &mut [u8]) -> usize {
        let there = self.len.saturating_sub(offset).min(out.len() as u64) as usize;
        let (mut out, _) = out.split_at_mut(there);
        let mut inside = (offset % PAGE as u64) as usize;
        for slot in self.slots.iter().skip((offset / PAGE as u64) as usize) {
            if out.is_empty() {
                break;
            }
            let count = out.len().min(PAGE - inside);
            let (now, later) = out.split_at_mut(count);
            match slot {
                Some(page) => {
                    let (_, bytes) = page.split_at(inside);
                    now.copy_from_slice(bytes.split_at(count).0);
                }
                None => now.fill(0),
            }
            out = later;
            inside = 0;
        }
        there
    }
}
