//! Sizes and times as people write them: `64M`, `1.5 GiB`, `2026-11-20 12:03:44`.

use core::time::Duration;

/// Longest time that is taken, in milliseconds.
const TIME_MAX: u64 = 24 * 3_600_000;

const UNITS: [(&str, u32); 5] = [("T", 40), ("G", 30), ("M", 20), ("K", 10), ("", 0)];

/// Reads a number of bytes: digits, and K, M, G or T for powers of 1024 (`KiB`, `MB` and the like
/// are taken as the same).
///
/// # Errors
/// What is wrong with it, for people.
pub(crate) fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = text[digits.len()..].to_ascii_uppercase();
    let unit = unit.trim_end_matches('B').trim_end_matches('I');
    let shift = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, shift)| *shift);
    let (Ok(number), Some(shift)) = (digits.trim().parse::<u64>(), shift) else {
        return Err(format!("`{text}` is no size: write bytes, or a number with K, M, G or T"));
    };
    match number.checked_mul(1 << shift) {
        Some(bytes) => Ok(bytes),
        None => Err(format!("`{text}` is more than a file can have")),
    }
}

/// Reads a time: a number with ms, s or min; seconds where nothing is said.
///
/// # Errors
/// What is wrong with it, for people.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &text[digits.len()..] {
        "ms" => 1,
        "s" | "" => 1000,
        "min" => 60_000,
        _ => 0,
    };
    match digits.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit)) {
        Some(millis @ 1..=TIME_MAX) => Ok(Duration::from_millis(millis)),
        _ => Err(format!("`{text}` is no time: write a number with ms, s or min, up to a day")),
    }
}

/// A number of bytes for people.
pub(crate) fn show(bytes: u64) -> String {
    match UNITS.iter().find(|(_, shift)| bytes >= 1 << shift && *shift > 0) {
        Some((name, shift)) if bytes.is_multiple_of(1 << shift) => {
            format!("{} {name}iB", bytes >> shift)
        }
        Some((name, shift)) => {
            format!("{:.1} {name}iB", bytes as f64 / (1_u64 << shift) as f64)
        }
        None => format!("{bytes} B"),
    }
}

/// A duration in nanoseconds for people.
pub(crate) fn show_nanos(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} us", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", nanos as f64 / 1e6),
        _ => format!("{:.2} s", nanos as f64 / 1e9),
    }
}

/// Nanoseconds since 1970 as a moment in UTC.
pub(crate) fn show_time(nanos: u64) -> String {
    let seconds = nanos / 1_000_000_000;
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{:03}",
        rest / 3600,
        rest / 60 % 60,
        rest % 60,
        nanos / 1_000_000 % 1000
    )
}

/// The date of a day counted from 1970-01-01. Counts in eras of 400 years that start in March, so
/// that the leap day is the last of a year.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * march + 2) / 5 + 1;
    let month = if march < 10 { march + 3 } else { march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("64K", 65536), ("64M", 64 << 20), ("1GiB", 1 << 30)]
        {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "-1", "1.5G", "12Q", "99999999999T", "1 2"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert_eq!(show(1 << 30), "1 GiB");
        assert_eq!(show(1500), "1.5 KiB");
        assert_eq!(show(17), "17 B");
    }

    #[test]
    fn times_are_read() {
        for (text, millis) in [("2", 2000), ("2s", 2000), ("50ms", 50), ("3min", 180_000)] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "0", "0s", "s", "-1s", "1.5s", "2h", "99999999999999999999s", "25000min"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn moments_are_dates() {
        assert_eq!(show_time(0), "1970-01-01 00:00:00.000");
        assert_eq!(show_time(951_827_696_789_000_000), "2000-02-29 12:34:56.789");
        assert_eq!(show_time(1_795_176_000_000_000_000), "2026-11-20 12:00:00.000");
    }
}
