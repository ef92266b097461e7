//! Numbers as Redis reads and writes them.

/// An integer in the one form that Redis takes: no sign but a minus, no leading zeros, no
/// blanks.
pub fn parse_integer(text: &[u8]) -> Option<i64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', ..] if digits.len() <= 19 => {}
        _ => return None,
    }
    let mut number: u64 = 0;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return None;
        }
        number = number
            .checked_mul(10)?
            .checked_add(u64::from(digit - b'0'))?;
    }
    match negative {
        true if number <= 1 << 63 => Some((number as i64).wrapping_neg()),
        true => None,
        false => i64::try_from(number).ok(),
    }
}

/// Appends an integer in decimal digits.
pub fn push_integer(out: &mut Vec<u8>, number: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = number.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if number < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// Digits behind the point that Redis writes of a sum of floats.
const FRACTION_DIGITS: i32 = 17;
const SCALE: i128 = 10_i128.pow(FRACTION_DIGITS as u32);
/// Sums that are not larger are exact decimals.
const MOST_EXACT: f64 = 1e20;

/// The sum of two decimal numbers as Redis writes it: 17 digits behind the point, without
/// zeros at their end. Redis adds long doubles. Decimal arithmetic answers the same digits,
/// without the noise of binary fractions; numbers over 1e20 are added as doubles.
pub fn add_decimals(left: &[u8], right: &[u8]) -> Option<Result<String, NotFinite>> {
    let (left_float, right_float) = (parse_float(left)?, parse_float(right)?);
    let sum = left_float + right_float;
    if !sum.is_finite() {
        return Some(Err(NotFinite));
    }
    let exact = [left_float, right_float, sum]
        .iter()
        .all(|number| number.abs() < MOST_EXACT);
    let scaled = match exact {
        true => scaled(left).zip(scaled(right)),
        false => None,
    };
    Some(Ok(match scaled {
        Some((left, right)) => decimal_text(left + right),
        None => trimmed(format!("{sum:.17}")),
    }))
}

/// A sum that is infinite or no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotFinite;

/// A float as Redis reads one: no blanks, not `nan`.
pub fn parse_float(text: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let number: f64 = text.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// The number times 10^17, rounded.
fn scaled(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok()?;
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let negative = mantissa.starts_with('-');
    let mantissa = mantissa.trim_start_matches(['-', '+']);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut number: i128 = 0;
    // The power of ten that the next digit counts.
    let mut power = exponent.checked_add(FRACTION_DIGITS + whole.len() as i32)?;
    let mut rest = None;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let digit = i128::from(digit.checked_sub(b'0').filter(|digit| *digit <= 9)?);
        power -= 1;
        if power >= 0 {
            number = number.checked_mul(10)?.checked_add(digit)?;
        } else if power == -1 {
            rest = Some(digit);
        }
    }
    for _ in 0..power.max(0) {
        number = number.checked_mul(10)?;
    }
    number += i128::from(rest >= Some(5));
    Some(if negative { -number } else { number })
}

fn decimal_text(scaled: i128) -> String {
    let sign = if scaled < 0 { "-" } else { "" };
    let (whole, fraction) = (
        scaled.unsigned_abs() / SCALE as u128,
        scaled.unsigned_abs() % SCALE as u128,
    );
    trimmed(format!("{sign}{whole}.{fraction:017}"))
}

fn trimmed(text: String) -> String {
    if !text.contains('.') {
        return text;
    }
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" {
        "0".to_string()
    } else {
        text.to_string()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a test that cannot go on has failed
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_form() {
        for number in [0, 1, -1, 10, i64::MAX, i64::MIN] {
            let mut text = Vec::new();
            push_integer(&mut text, number);
            assert_eq!(text, number.to_string().as_bytes());
            assert_eq!(parse_integer(&text), Some(number));
        }
        for text in [
            "",
            "-",
            "-0",
            "01",
            "+1",
            " 1",
            "1 ",
            "9223372036854775808",
            "1.0",
            "-9223372036854775809",
            "99999999999999999999",
        ] {
            assert_eq!(parse_integer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn sums_of_decimals_have_no_binary_noise() {
        for (left, right, sum) in [
            ("1", "-1.1", "-0.1"),
            ("3", "1.1", "4.1"),
            ("10.50", "0.1", "10.6"),
            ("5.0e3", "2.0e2", "5200"),
            ("17179869184", "17179869184", "34359738368"),
            ("0.1", "-0.1", "0"),
            ("1e-17", "0", "0.00000000000000001"),
        ] {
            let answer = add_decimals(left.as_bytes(), right.as_bytes());
            assert_eq!(answer, Some(Ok(sum.to_string())), "{left} + {right}");
        }
        assert_eq!(add_decimals(b"1", b"x"), None);
        assert_eq!(add_decimals(b"1", b" 1"), None);
        assert_eq!(add_decimals(b"1e308", b"1e308"), Some(Err(NotFinite)));
        assert_eq!(
            add_decimals(b"1e30", b"1"),
            Some(Ok("1000000000000000019884624838656".to_string()))
        );
    }
}
