//! One line that names one crash: what was run, where it stopped, which units had arrived.

use core::fmt;
use core::str::FromStr;

use holdfast_faultmem::{CrashPoint, Image, Mode, Pick};

/// The environment variable that [`run`](crate::Explorer::run) obeys.
pub const REPLAY: &str = "HOLDFAST_REPLAY";

/// One crash: at which instant, and what had arrived of the stores on their way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// Number of the instant: barriers and acknowledgements of the last operation, or barriers of
    /// a recovery and its end, from 0 on.
    pub instant: usize,
    /// The units that had arrived, each with its state.
    pub arrived: Vec<(u64, u32)>,
    /// Of the innermost crash: the units that had to be missing for the failure, each with the
    /// state it should have come to. `None` if nobody says: then all that had not arrived.
    pub missing: Option<Vec<(u64, u32)>>,
}

/// Names one run and the crashes in it, each in the recovery of the one before.
///
/// Shown as `NAME;mode=words;seq=0,2;crash=3:64.1,72.1;crash=0:/8.1`, where 64.1 says that the unit
/// at byte 64 was in its state 1, and 8.1, behind the stroke, that the state 1 of the one at byte 8
/// was missing. `off=PLACE` before the crashes says what was switched off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Name of the explorer.
    pub name: String,
    /// How finely the crash tears.
    pub mode: Mode,
    /// Numbers of the operations, in the order they were given to the explorer.
    pub sequence: Vec<usize>,
    /// What [`elisions`](crate::Explorer::elisions) had switched off.
    pub off: Option<String>,
    /// The crashes, outermost first; empty if the run fails without one.
    pub crashes: Vec<Crash>,
}

impl Crash {
    /// The picks that build its image.
    pub(crate) fn picks(&self) -> Vec<Pick> {
        picks_of(&self.arrived)
    }

    /// Its image at this instant; `None` if it names a unit, or a state of one, that there is not.
    pub(crate) fn image_at(&self, point: &CrashPoint) -> Option<Image> {
        point.image_of(&picks_of(self.missing.as_deref().unwrap_or_default()))?;
        point.image_of(&self.picks())
    }
}

fn picks_of(units: &[(u64, u32)]) -> Vec<Pick> {
    units.iter().map(|&(at, state)| Pick { at, state, of: 0 }).collect()
}

fn write_units(f: &mut fmt::Formatter<'_>, units: &[(u64, u32)]) -> fmt::Result {
    let units: Vec<String> = units.iter().map(|(at, state)| format!("{at}.{state}")).collect();
    f.write_str(&units.join(","))
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sequence: Vec<String> = self.sequence.iter().map(ToString::to_string).collect();
        write!(f, "{};mode={};seq={}", self.name, mode_name(self.mode), sequence.join(","))?;
        if let Some(off) = &self.off {
            write!(f, ";off={off}")?;
        }
        for crash in &self.crashes {
            write!(f, ";crash={}:", crash.instant)?;
            write_units(f, &crash.arrived)?;
            if let Some(missing) = &crash.missing {
                f.write_str("/")?;
                write_units(f, missing)?;
            }
        }
        Ok(())
    }
}

/// A line that is no replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoReplay(String);

impl fmt::Display for NoReplay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no replay line: {}; copy it whole from the report", self.0)
    }
}

impl std::error::Error for NoReplay {}

impl FromStr for Replay {
    type Err = NoReplay;

    fn from_str(line: &str) -> Result<Self, NoReplay> {
        let mut parts = line.trim().split(';');
        let name = parts.next().filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| NoReplay("it begins with no name".to_owned()))?.to_owned();
        let (mode, off) = (Mode::Words, None);
        let mut replay = Self { name, mode, sequence: Vec::new(), off, crashes: Vec::new() };
        for part in parts {
            let (key, value) = part.split_once('=').ok_or_else(|| NoReplay(part.to_owned()))?;
            match key {
                "mode" => replay.mode = mode_of(value)?,
                "seq" => replay.sequence = list(value, number)?,
                "off" => replay.off = Some(value.to_owned()),
                "crash" => replay.crashes.push(crash_of(value)?),
                _ => return Err(NoReplay(part.to_owned())),
            }
        }
        Ok(replay)
    }
}

fn crash_of(value: &str) -> Result<Crash, NoReplay> {
    let (instant, units) = value.split_once(':').ok_or_else(|| NoReplay(value.to_owned()))?;
    let (arrived, missing) = match units.split_once('/') {
        Some((arrived, missing)) => (arrived, Some(missing)),
        None => (units, None),
    };
    let pick = |item: &str| {
        let (at, state) = item.split_once('.').ok_or_else(|| NoReplay(item.to_owned()))?;
        Ok((number(at)?, number(state)?))
    };
    let missing = missing.map(|missing| list(missing, pick)).transpose()?;
    Ok(Crash { instant: number(instant)?, arrived: list(arrived, pick)?, missing })
}

fn list<T>(text: &str, item: impl Fn(&str) -> Result<T, NoReplay>) -> Result<Vec<T>, NoReplay> {
    text.split(',').filter(|text| !text.is_empty()).map(item).collect()
}

fn number<T: FromStr>(text: &str) -> Result<T, NoReplay> {
    text.parse().map_err(|_| NoReplay(format!("{text} is no number")))
}

/// The name of a mode.
pub(crate) const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Words => "words",
        Mode::Lines => "lines",
        Mode::Sectors => "sectors",
    }
}

fn mode_of(name: &str) -> Result<Mode, NoReplay> {
    let modes = [Mode::Words, Mode::Lines, Mode::Sectors];
    let found = modes.into_iter().find(|mode| mode_name(*mode) == name);
    found.ok_or_else(|| NoReplay(format!("{name} is no mode")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_back() {
        let ends = [(None, ""), (Some(vec![]), "/"), (Some(vec![(8, 1), (16, 3)]), "/8.1,16.3")];
        for (missing, end) in ends {
            let outer = Crash { instant: 3, arrived: vec![(64, 1), (72, 2)], missing: None };
            let inner = Crash { instant: 0, arrived: Vec::new(), missing };
            let replay = Replay {
                name: "queue".to_owned(),
                mode: Mode::Lines,
                sequence: vec![0, 2],
                off: None,
                crashes: vec![outer, inner],
            };
            let line = replay.to_string();
            assert_eq!(line, format!("queue;mode=lines;seq=0,2;crash=3:64.1,72.2;crash=0:{end}"));
            assert_eq!(line.parse().as_ref(), Ok(&replay));
            let without = Replay { off: Some("a.rs:3:9:flush@a.rs:3:9".to_owned()), ..replay };
            assert_eq!(without.to_string().parse(), Ok(without));
        }
    }

    #[test]
    fn what_is_no_line_is_refused() {
        let crashes = ["q;crash=1", "q;crash=1:2", "q;crash=1:/2"];
        for bad in ["", "q;mode=bits", "q;seq=a", "q;what=1", "q;x"].iter().chain(&crashes) {
            assert!(bad.parse::<Replay>().is_err(), "{bad}");
        }
    }
}
