//! The shortest decimal of a float, as ECMAScript and RFC 8785 choose it.
//!
//! The standard library's is the same but in one case: where two decimals of that length are
//! equally near, RFC 8785 (section 3.2.2.3) wants the even one, and the library does not promise
//! it (`1424953923781206.25_f64` gives `..6.3`). Here the even one is taken.

/// The shortest decimal of a finite `float`, as `d.ddde-x`.
pub(super) fn shortest_f64(float: f64) -> String {
    let shortest = format!("{float:e}");
    even_of_two(float, &shortest, |text| text.parse() == Ok(float)).unwrap_or(shortest)
}

/// The same for the width of `f32`: `0.1_f32` is `1e-1`.
pub(super) fn shortest_f32(float: f32) -> String {
    let shortest = format!("{float:e}");
    even_of_two(f64::from(float), &shortest, |text| text.parse() == Ok(float)).unwrap_or(shortest)
}

/// The even decimal of two equally near ones, where `shortest` is the odd one of them.
fn even_of_two(float: f64, shortest: &str, reads_back: impl Fn(&str) -> bool) -> Option<String> {
    let (mantissa, exponent) = shortest.split_once('e')?;
    let places = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    let last_place = exponent.parse::<i32>().ok()? - i32::try_from(places).ok()?;
    // Halfway is an odd number times 5 * 10^(last_place - 1), so its lowest bit has this weight.
    // Nearly every float stops here.
    if lowest_bit(float) != last_place - 1 {
        return None;
    }
    // Every digit: no f64 has more than 767. Such a bit makes one digit more than the shortest has, a 5.
    let exact = format!("{float:.800e}");
    let below = exact.split_once('e')?.0.trim_end_matches('0').strip_suffix('5')?;
    let last = mantissa.bytes().next_back()?;
    let is_below = below.strip_suffix('.').unwrap_or(below) == mantissa;
    let even = match last {
        b'1' | b'3' | b'5' | b'7' if is_below => last + 1,
        b'3' | b'5' | b'7' | b'9' if !is_below => last - 1,
        // Already even; or the other ends in a zero, is shorter, and does not read back.
        _ => return None,
    };
    let kept = mantissa.get(..mantissa.len() - 1)?;
    let other = format!("{kept}{}e{exponent}", char::from(even));
    reads_back(&other).then_some(other)
}

/// The power of two of the lowest bit that is set in a float.
fn lowest_bit(float: f64) -> i32 {
    let bits = float.to_bits();
    let biased = (bits >> 52) as i32 & 0x7FF;
    let fraction = bits & ((1 << 52) - 1);
    let mantissa = if biased == 0 { fraction } else { fraction | (1 << 52) };
    biased.max(1) - 1075 + mantissa.trailing_zeros() as i32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1424953923781206.25, with all its digits.
    const QUARTER: f64 = 1_424_953_923_781_206.0 + 0.25;
    /// 1424953923781206.75.
    const THREE_QUARTERS: f64 = 1_424_953_923_781_206.0 + 0.75;

    /// What is taken in place of a decimal of `float`, whichever of two equally near ones the library chose.
    fn taken(float: f64, shortest: &str) -> Option<String> {
        even_of_two(float, shortest, |text| text.parse() == Ok(float))
    }

    #[test]
    fn of_two_equally_near_decimals_the_even_one_is_taken() {
        // .25 is halfway between .2 and .3, .75 between .7 and .8.
        let even = |last| Some(format!("1.424953923781206{last}e15"));
        assert_eq!(taken(QUARTER, "1.4249539237812063e15"), even(2));
        assert_eq!(taken(THREE_QUARTERS, "1.4249539237812067e15"), even(8));
        // Even already.
        assert_eq!(taken(QUARTER, "1.4249539237812062e15"), None);
        assert_eq!(taken(THREE_QUARTERS, "1.4249539237812068e15"), None);
        // The other ends in a zero: it would be shorter.
        assert_eq!(taken(1_424_953_923_781_209.5, "1.424953923781209e15"), None);
        // Not halfway between any two.
        assert_eq!(taken(1_424_953_923_781_206.5, "1.4249539237812065e15"), None);
        assert_eq!(taken(0.1, "1e-1"), None);
    }

    #[test]
    fn an_even_decimal_that_reads_back_as_another_float_is_not_taken() {
        assert_eq!(even_of_two(QUARTER, "1.4249539237812063e15", |_| false), None);
    }

    #[test]
    fn the_lowest_bit_is_found_in_floats_of_all_sizes() {
        let table = [(1.0, 0), (0.75, -2), (6.0, 1), (f64::MIN_POSITIVE, -1022), (f64::from_bits(1), -1074)];
        for (float, power) in table {
            assert_eq!(lowest_bit(float), power, "{float:e}");
            assert_eq!(lowest_bit(-float), power, "-{float:e}");
        }
    }
}
