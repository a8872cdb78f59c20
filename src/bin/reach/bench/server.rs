//! What the hub's process costs: CPU, memory, disk.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Linux counts CPU time in hundredths of a second (`USER_HZ`).
const TICKS_A_SECOND: f64 = 100.0;

/// CPU seconds that a process has used, user and system; `None` if there is no such process.
pub(crate) fn cpu_seconds(pid: u32) -> Option<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    cpu_of(&stat)
}

/// The program's name may hold spaces and brackets: fields are counted after its last bracket.
fn cpu_of(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some((user + system) as f64 / TICKS_A_SECOND)
}

/// Resident memory of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

/// Bytes that a folder takes on the disk, preallocated ones included. A file that goes away meanwhile counts nothing.
pub(crate) fn disk_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
            Ok(metadata) => metadata.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_any_program_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 100 1000 200";
        assert_eq!(cpu_of(stat), Some(3.0));
        assert_eq!(cpu_of("nonsense"), None);
    }

    #[test]
    fn this_process_has_memory_and_time() {
        assert!(resident_bytes(std::process::id()).is_some_and(|bytes| bytes > 1 << 20));
        assert!(cpu_seconds(std::process::id()).is_some());
    }
}
