//! Durations as people write them: `90s`, `1h30m`, `500ms`, `7d`.

use std::time::Duration;

use onceledger::Keep;

/// No duration of the command line is longer: 100 years of 365 days.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

const UNITS: [(&str, u64); 5] = [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];

/// One or more numbers with their units, largest sense left to the reader: `1h30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let wrong =
        || format!("{text:?} is not a duration; write a number and a unit (ms, s, m, h, d), such as 90s or 1h30m");
    let over = || format!("{text:?} is over the limit of 100 years; write a shorter one");
    let mut total_ms = 0_u64;
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        if number.is_empty() {
            return Err(wrong());
        }
        let (_, unit_ms) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        // Digits only: what does not parse is too large.
        let number = number.parse::<u64>().map_err(|_| over())?;
        let part_ms = number.checked_mul(*unit_ms).ok_or_else(over)?;
        total_ms = total_ms.checked_add(part_ms).ok_or_else(over)?;
        rest = tail;
    }
    let total = Duration::from_millis(total_ms);
    if total > LONGEST { Err(over()) } else { Ok(total) }
}

/// A duration that is not zero.
pub fn positive(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => {
            Err("a duration of zero would be over at once; leave the option out, or give it some time".to_owned())
        }
        some => Ok(some),
    }
}

/// How long something is kept: a duration, or `forever`.
pub fn keep(text: &str) -> Result<Keep, String> {
    if text == "forever" { Ok(Keep::Forever) } else { duration(text).map(Keep::For) }
}

/// How long a key is remembered: not for no time at all.
pub fn remember(text: &str) -> Result<Keep, String> {
    if text == "forever" { Ok(Keep::Forever) } else { positive(text).map(Keep::For) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_refused() {
        for (text, ms) in [("0s", 0), ("500ms", 500), ("90s", 90_000), ("1h30m", 5_400_000), ("7d", 604_800_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        let huge = format!("{}9s", u64::MAX);
        for text in ["", "5", "s", "-1s", "1.5s", "1 s", "1w", "1H", "36501d", "99999999999999999999d", &huge] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert_eq!(duration("36500d"), Ok(LONGEST));
        assert!(positive("0ms").is_err());
        assert_eq!(keep("forever"), Ok(Keep::Forever));
    }
}
