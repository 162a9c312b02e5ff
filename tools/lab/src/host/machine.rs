//! The emulated machine: one start of it, until it is off, or takes too long.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// Bytes of the persistent memory, a multiple of 16 MiB, and of its labels behind it.
const MEMORY: u64 = 256 << 20;
const LABELS: u64 = 128 << 10;

/// Bytes of the disk, of which only what is written takes room here.
const DISK: u64 = 2 << 30;

/// How long the last lines of a machine that was switched off are waited for.
const REST: Duration = Duration::from_secs(10);

/// What a start of the machine takes.
#[derive(Debug)]
pub(crate) struct Start<'a> {
    pub(crate) image: &'a Path,
    pub(crate) archive: &'a Path,
    /// The persistent memory; made if it is not there.
    pub(crate) memory: &'a Path,
    /// The disk; made if it is not there.
    pub(crate) disk: &'a Path,
    pub(crate) patience: Duration,
    /// What else the emulator is told.
    pub(crate) more: &'a [String],
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The lines of its console.
    pub(crate) said: Vec<String>,
    /// It was switched off: it took too long, or as long as was wished.
    pub(crate) late: bool,
}

/// A machine that is running; off when it is dropped.
struct Machine(Child);

impl Machine {
    /// Processor time that it has taken. What has ended still says it, until it is waited for.
    fn busy(&self) -> Result<Duration> {
        let file = format!("/proc/{}/stat", self.0.id());
        let stat = std::fs::read_to_string(&file).with_context(|| format!("cannot read {file}"))?;
        let ticks = ticks(&stat).with_context(|| format!("{file}: {stat}"))?;
        let hertz = rustix::param::clock_ticks_per_second().max(1);
        Ok(Duration::from_millis(ticks.saturating_mul(1000) / hertz))
    }
}

/// Ticks of a processor in what the system says of a process: the words 11 and 12 behind its name,
/// which may have blanks in it.
fn ticks(stat: &str) -> Result<u64> {
    let words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: Vec<u64> = words.skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    ensure!(ticks.len() == 2, "too few words");
    Ok(ticks.iter().sum())
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Is shown each line as it comes; says in how long the machine is to be switched off, if so.
pub(crate) type See<'a> = &'a mut dyn FnMut(&str) -> Option<Duration>;

/// Runs the machine until it is off; what came of it, and the processor time of the emulator.
pub(crate) fn run(emulator: &Path, start: &Start<'_>, see: See<'_>) -> Result<(Ran, Duration)> {
    let size = MEMORY + LABELS;
    room(start.memory, size)?;
    room(start.disk, DISK)?;
    let backing = format!(
        "memory-backend-file,id=m1,share=on,mem-path={},size={size}",
        start.memory.display()
    );
    let child = Command::new(emulator)
        .args(["-accel", "tcg,thread=single", "-cpu", "max", "-nographic", "-no-reboot"])
        .args(["-m", "1G,slots=2,maxmem=4G", "-net", "none"])
        .args(["-machine", "q35,nvdimm=on,nvdimm-persistence=cpu"])
        .args(["-object", &backing])
        .args(["-device", &format!("nvdimm,id=n1,memdev=m1,label-size={LABELS}")])
        .args(["-drive", &format!("file={},format=raw,if=virtio", start.disk.display())])
        .args(start.more)
        .arg("-kernel")
        .arg(start.image)
        .arg("-initrd")
        .arg(start.archive)
        // On a busy machine the emulated timer may be too late for a kernel that looks whether it
        // works, and panics.
        .args(["-append", "console=ttyS0 panic=-1 quiet no_timer_check rdinit=/lab"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot start the emulator")?;
    let mut machine = Machine(child);
    let ran = read_along(&mut machine, start.patience, see)?;
    Ok((ran, machine.busy()?))
}

/// A file of this length, if there is none yet.
fn room(path: &Path, len: u64) -> Result<()> {
    let cannot = || format!("cannot make {} of {len} bytes", path.display());
    let mut options = std::fs::OpenOptions::new();
    let file = options.write(true).create(true).truncate(false).open(path);
    file.and_then(|file| file.set_len(len)).with_context(cannot)
}

/// Reads what the machine says until it is off.
fn read_along(machine: &mut Machine, patience: Duration, see: See<'_>) -> Result<Ran> {
    let (send, lines) = channel();
    let output = machine.0.stdout.take().context("the emulator has no output")?;
    let errors = machine.0.stderr.take().context("the emulator has no output")?;
    for stream in [Box::new(output) as Box<dyn std::io::Read + Send>, Box::new(errors)] {
        let send = send.clone();
        std::thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|read| read != 0) {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                line.clear();
                if send.send(text).is_err() {
                    return;
                }
            }
        });
    }
    drop(send);
    let mut end = Instant::now() + patience;
    let mut ran = Ran { said: Vec::new(), late: false };
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                if let Some(after) = see(&line) {
                    end = end.min(Instant::now() + after);
                }
                ran.said.push(line);
            }
            Err(RecvTimeoutError::Disconnected) => return Ok(ran),
            Err(RecvTimeoutError::Timeout) if ran.late => return Ok(ran),
            Err(RecvTimeoutError::Timeout) => {
                ran.late = true;
                machine.0.kill().context("cannot switch the emulator off")?;
                // What it said until then is on its way.
                end = Instant::now() + REST;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn shell(script: &str, patience: Duration) -> Ran {
        read_along(&mut Machine(child(script)), patience, &mut |_| None).unwrap()
    }

    #[test]
    fn what_it_says_is_read_until_it_is_off() {
        let ran = shell("echo one; echo two", Duration::from_secs(60));
        assert_eq!((ran.said, ran.late), (vec!["one".to_owned(), "two".to_owned()], false));
    }

    #[test]
    fn a_machine_that_stands_still_is_switched_off() {
        let ran = shell("echo one; exec sleep 600", Duration::from_secs(5));
        assert_eq!((ran.said, ran.late), (vec!["one".to_owned()], true));
    }

    #[test]
    fn it_is_switched_off_when_that_is_wished_and_heard_to_the_end() {
        let child = child("echo go; exec sleep 600");
        let mut see = |line: &str| (line == "go").then_some(Duration::from_millis(50));
        let started = Instant::now();
        let ran = read_along(&mut Machine(child), Duration::from_secs(600), &mut see).unwrap();
        assert!(ran.late && started.elapsed() < Duration::from_secs(60));
        assert_eq!(ran.said, ["go"]);
    }

    #[test]
    fn its_processor_time_is_told_also_of_one_that_is_off() {
        let count = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        let child = child(count);
        let mut machine = Machine(child);
        let ran = read_along(&mut machine, Duration::from_secs(600), &mut |_| None).unwrap();
        assert!(!ran.late && machine.busy().unwrap() > Duration::ZERO);
        assert_eq!(ticks("7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 30 12 1 1 20").unwrap(), 42);
        assert!(ticks("7 (cut").is_err());
    }
}
