//! The other side: the first process of the guest. It makes the machine fit for a scene, starts
//! that, says how it ended, and turns the machine off.

pub(crate) mod blocklog;

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::mount::{MountFlags, mount};

use crate::scenes::Place;

/// How long devices may take to come: under emulation, on a machine that does other things.
const FOR_DEVICES: Duration = Duration::from_secs(30);

/// Where the archive has the scene's program, what is to be started, and the modules.
pub(crate) const PROGRAM: &str = "/scene-program";
pub(crate) const SCENE: &str = "/scene";
pub(crate) const MODULES: &str = "/modules";
/// Where it says which folder of the host's is to be that of the scene.
pub(crate) const FOLDER: &str = "/folder";

/// What is said before the scene's program is started.
pub(crate) const STARTS: &str = "lab: starts";

/// Where a scene's program may write to: what the host reads along, or a port that it keeps as it
/// is, if the machine has one. Anything else is the path of a file.
pub(crate) const CONSOLE: &str = "console";
pub(crate) const PORT: &str = "vport";

/// What is said at the end, before the exit code.
pub(crate) const ENDED: &str = "lab: ended";

/// The first process. The kernel stops the machine if it ends; so it does not.
pub(crate) fn main() -> ! {
    let code = match prepare().and_then(|()| play()) {
        Ok(code) => code,
        Err(error) => {
            println!("lab: {error:#}");
            8
        }
    };
    println!("{ENDED} {code}");
    rustix::fs::sync();
    loop {
        // With the emulator's -no-reboot, the machine is off then.
        let _ = rustix::system::reboot(rustix::system::RebootCommand::Restart);
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}

/// Mounts what a process expects, and the persistent memory.
fn prepare() -> Result<()> {
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        mount_at(kind, kind, place, "")?;
    }
    for place in ["/dev/shm", "/tmp", "/run"] {
        mount_at("tmpfs", "tmpfs", place, "mode=1777")?;
    }
    let mut modules: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(MODULES).context("the archive has no modules")? {
        modules.push(entry?.path());
    }
    modules.sort();
    for module in &modules {
        load(module).with_context(|| format!("module {} cannot be loaded", module.display()))?;
    }
    persistent_memory()?;
    disk()?;
    blocklog::logged_disk()
}

fn mount_at(what: &str, kind: &str, place: &str, data: &str) -> Result<()> {
    fs::create_dir_all(place).with_context(|| format!("cannot make {place}"))?;
    let data = CString::new(data).context("a zero byte in what is to be mounted")?;
    mount(what, place, kind, MountFlags::empty(), Some(data.as_c_str()))
        .with_context(|| format!("cannot mount {kind} at {place}"))
}

fn load(module: &Path) -> Result<()> {
    let file = fs::File::open(module)?;
    Ok(rustix::system::finit_module(&file, c"", 0)?)
}

/// Waits until a device is there: the kernel looks for them beside what loads its modules.
fn come(device: &str) -> bool {
    let begun = Instant::now();
    while !Path::new(device).exists() {
        if begun.elapsed() > FOR_DEVICES {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// A name space with pages that can be mapped, a file system on it, mounted for direct access.
fn persistent_memory() -> Result<()> {
    let device = "/dev/pmem0";
    // With labels from an earlier start it is there already, and so is its file system.
    let size = "/sys/bus/nd/devices/namespace0.0/size";
    if !come(device) || !come(size) {
        bail!("no persistent memory in this machine");
    }
    let mode = fs::read_to_string("/sys/bus/nd/devices/namespace0.0/mode").unwrap_or_default();
    if mode.trim() != "memory" {
        let words = ["create-namespace", "-f", "-e", "namespace0.0", "-m", "fsdax", "-M", "mem"];
        run("ndctl", &words)?;
        run("mkfs.ext4", &["-q", "-F", "-b", "4096", device])?;
    }
    mount_at(device, "ext4", Place::Dax.folder(), "dax=always")
}

/// A file system on the disk; made at the first start.
fn disk() -> Result<()> {
    let (device, folder) = ("/dev/vda", Place::Disk.folder());
    ensure!(come(device), "no disk in this machine");
    if mount_at(device, "ext4", folder, "").is_err() {
        run("mkfs.ext4", &["-q", "-F", "-b", "4096", device])?;
        mount_at(device, "ext4", folder, "")?;
    }
    Ok(())
}

/// Runs a command that must succeed.
fn run(tool: &str, words: &[&str]) -> Result<()> {
    let output = Command::new(Path::new("/bin").join(tool)).args(words).output();
    let output = output.with_context(|| format!("{tool} cannot be started"))?;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{tool} failed: {}", error.trim());
    Ok(())
}

/// Starts the scene; its exit code.
fn play() -> Result<i32> {
    let scene = fs::read_to_string(SCENE).context("the archive has no scene")?;
    let mut words = scene.lines();
    let place = words.next().context("the scene has no place")?;
    let output = words.next().context("the scene has no output")?;
    if let Ok(folder) = fs::read_to_string(FOLDER)
        && let Some(above) = Path::new(&folder).parent()
    {
        fs::create_dir_all(above).with_context(|| format!("cannot make {}", above.display()))?;
        std::os::unix::fs::symlink(place, &folder).with_context(|| folder.clone())?;
    }
    let opened = speak(output)?;
    let mut program = Command::new(PROGRAM);
    program.args(words).current_dir(place).env("TMPDIR", place).stdout(opened);
    println!("{STARTS}");
    let status = program.status().context("the scene cannot be started")?;
    println!("lab: the scene ended: {status}");
    Ok(status.code().unwrap_or(4))
}

/// Bytes of a file that a scene speaks to.
const SAID: usize = 16 << 20;

/// Where a scene's program writes to: the console, a port, or a file on persistent memory.
///
/// Each byte written to that file is there when the write comes back, whatever becomes of the
/// machine then: it has its length and its storage beforehand, and no page cache. A port would not
/// do where the machine is ended: what is written to one waits in a queue of the guest.
fn speak(output: &str) -> Result<fs::File> {
    let path = match output {
        CONSOLE => PathBuf::from("/dev/console"),
        PORT => {
            // The kernel makes up the numbers behind the name.
            let mut devices = fs::read_dir("/dev").context("no devices")?.flatten();
            let device =
                devices.find(|entry| entry.file_name().to_string_lossy().starts_with(PORT));
            device.context("this machine has no port")?.path()
        }
        file => {
            let made = fs::write(file, vec![0; SAID]);
            let synced = made.and_then(|()| fs::File::open(file)?.sync_all());
            synced.with_context(|| format!("{file} cannot be made"))?;
            PathBuf::from(file)
        }
    };
    let opened = fs::File::options().write(true).open(&path);
    opened.with_context(|| format!("{} cannot be opened", path.display()))
}
