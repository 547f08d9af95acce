//! What the operating system knows: CPU time, memory, the kind of a disk.

use std::path::Path;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::Result;

const TMPFS_MAGIC: i128 = 0x0102_1994;
const RAMFS_MAGIC: i128 = 0x8584_58f6;

/// CPU time of the calling thread.
pub fn thread_cpu() -> Duration {
    cpu(ClockId::ThreadCPUTime)
}

/// CPU time of all threads of this process.
pub fn process_cpu() -> Duration {
    cpu(ClockId::ProcessCPUTime)
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// A line of `/proc/self/status` in bytes, for example `VmRSS` or `VmHWM`.
pub fn memory(line: &str) -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let kib = status
        .lines()
        .find_map(|l| l.strip_prefix(line)?.strip_prefix(':')?.trim().strip_suffix(" kB"))
        .ok_or_else(|| format!("no {line} in /proc/self/status"))?;
    Ok(kib.trim().parse::<u64>()? * 1_024)
}

/// Refuses a directory kept in memory: a sync there costs nothing and every ratio would be of something else.
pub fn refuse_memory_disk(dir: &Path) -> Result<()> {
    let kind = rustix::fs::statfs(dir)?.f_type as i128;
    if kind == TMPFS_MAGIC || kind == RAMFS_MAGIC {
        return Err(format!("{} is in memory; give --dir a directory on a disk", dir.display()).into());
    }
    Ok(())
}

/// Cores and CPU, as far as the machine says.
pub fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    format!("{cores} cores, {}", model.unwrap_or("unknown CPU"))
}
