//! Bytes as text: hex both ways, base64url and UUID one way. Inputs are 16 or 32 bytes.

const HEX: &[u8; 16] = b"0123456789abcdef";
const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        // Both indexes are below 16.
        out.push(char::from(HEX[usize::from(byte >> 4)]));
        out.push(char::from(HEX[usize::from(byte & 15)]));
    }
    out
}

/// N bytes from exactly 2 N hex digits of either case.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        let &[high, low] = pair else { return None };
        *byte = (nibble(high)? << 4) | nibble(low)?;
    }
    Some(bytes)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// RFC 4648 section 5, without padding.
pub(crate) fn base64url(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for place in 0..=chunk.len() {
            // Six bits are below 64.
            let six = (bits >> (18 - 6 * place)) & 63;
            out.push(char::from(BASE64URL[six as usize]));
        }
    }
    out
}

/// The text of the UUID (RFC 9562) of version 8 made from 16 bytes: version and variant replace
/// six of their bits.
pub(crate) fn uuid8(mut bytes: [u8; 16]) -> String {
    bytes[6] = (bytes[6] & 0x0F) | 0x80;
    bytes[8] = (bytes[8] & 0x3F) | 0x80;
    let mut out = hex(&bytes);
    // Hex is 32 ASCII characters; inserting from the end keeps the earlier places right.
    for place in [20, 16, 12, 8] {
        out.insert(place, '-');
    }
    out
}

/// A time in milliseconds since 1970 as RFC 3339 writes it, to the second, in UTC.
pub(crate) fn rfc3339(ms: u64) -> String {
    let (days, second) = (ms / 86_400_000, ms / 1000 % 86_400);
    // Years are counted from March, so that the leap day is the last of its year; eras are of 400
    // years, and 1970-01-01 is day 719,468 of them.
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{of_month:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_agrees_with_the_examples_of_rfc_4648() {
        let cases = [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("fooba", "Zm9vYmE")];
        for (bytes, text) in cases {
            assert_eq!(base64url(bytes.as_bytes()), text);
        }
        assert_eq!(base64url(&[0xFB, 0xFF, 0xFE]), "-__-");
        assert_eq!(base64url(&[0; 32]).len(), 43);
    }

    #[test]
    fn hex_goes_there_and_back_and_takes_nothing_else() {
        let bytes: [u8; 32] = std::array::from_fn(|at| (at * 37) as u8);
        assert_eq!(from_hex(&hex(&bytes)), Some(bytes));
        assert_eq!(from_hex(&hex(&bytes).to_uppercase()), Some(bytes));
        let long = "0".repeat(65);
        let sign = format!("+{}", "0".repeat(63));
        for bad in ["", "00", &long, &sign, &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(from_hex::<32>(bad), None, "{bad}");
        }
    }

    #[test]
    fn uuid_has_its_version_and_variant_whatever_the_bytes_are() {
        assert_eq!(uuid8([0; 16]), "00000000-0000-8000-8000-000000000000");
        assert_eq!(uuid8([0xFF; 16]), "ffffffff-ffff-8fff-bfff-ffffffffffff");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_795_968_889_573, "2026-11-29T16:14:49Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ];
        for (ms, text) in cases {
            assert_eq!(rfc3339(ms), text);
        }
        assert!(rfc3339(u64::MAX).ends_with('Z'));
    }
}
