//! DynamoDB's decimal numbers: 38 significant digits, exact, never floats. `value` has their JSON form.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::value::Invalid;

const MAX_DIGITS: u32 = 38;
/// The allowed powers of ten of the leading digit.
const MAGNITUDES: std::ops::RangeInclusive<i64> = -130..=125;

const NOT_A_NUMBER: &str = "The parameter cannot be converted to a numeric value";
const OVERFLOW: &str = "Number overflow. Attempting to store a number with magnitude larger than supported range";
const UNDERFLOW: &str = "Number underflow. Attempting to store a number with magnitude smaller than supported range";
const TOO_PRECISE: &str = "Attempting to store more than 38 significant digits in a Number";

/// A decimal of at most 38 significant digits: zero, or of a magnitude from 1E-130 to 9.99..E+125.
///
/// Its value is `mantissa * 10^exponent`. The mantissa has no trailing zeros, so equal numbers have equal fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Number {
    pub(crate) mantissa: i128,
    pub(crate) exponent: i16,
}

impl Number {
    pub const ZERO: Self = Self { mantissa: 0, exponent: 0 };

    /// The sum. Like DynamoDB, this refuses a result out of range or with more than 38 digits, with the same message for both.
    pub fn checked_add(self, other: Self) -> Result<Self, Invalid> {
        let (high, low) = if self.exponent >= other.exponent { (self, other) } else { (other, self) };
        if low.mantissa == 0 || high.mantissa == 0 {
            return Ok(if low.mantissa == 0 { high } else { low });
        }
        // A normalised mantissa does not end in zero, so anything that overflows 128 bits here has more than 38 digits.
        let shift = u32::from(high.exponent.abs_diff(low.exponent));
        let aligned = 10u128.checked_pow(shift).and_then(|power| high.mantissa.unsigned_abs().checked_mul(power));
        let sum = aligned.and_then(|aligned| {
            let low_magnitude = low.mantissa.unsigned_abs();
            if high.is_negative() == low.is_negative() {
                aligned.checked_add(low_magnitude).map(|sum| (high.is_negative(), sum))
            } else if aligned >= low_magnitude {
                Some((high.is_negative(), aligned - low_magnitude))
            } else {
                Some((low.is_negative(), low_magnitude - aligned))
            }
        });
        sum.and_then(|(negative, magnitude)| Self::normalised(negative, magnitude, i64::from(low.exponent)).ok())
            .ok_or_else(|| Invalid::new(OVERFLOW))
    }

    /// The difference, with the same errors as the sum.
    pub fn checked_sub(self, other: Self) -> Result<Self, Invalid> {
        self.checked_add(Self { mantissa: -other.mantissa, exponent: other.exponent })
    }

    /// The bytes that this number adds to the size of an item: one, one per two significant digits, and one for a sign.
    pub fn size(self) -> usize {
        if self.mantissa == 0 {
            return 1;
        }
        1 + digits(self.mantissa.unsigned_abs()).div_ceil(2) as usize + usize::from(self.is_negative())
    }

    fn is_negative(self) -> bool {
        self.mantissa < 0
    }

    /// Moves trailing zeros into the exponent, and checks that DynamoDB can store the number.
    fn normalised(negative: bool, mut mantissa: u128, mut exponent: i64) -> Result<Self, Invalid> {
        if mantissa == 0 {
            return Ok(Self::ZERO);
        }
        while mantissa.is_multiple_of(10) {
            mantissa /= 10;
            exponent += 1;
        }
        check_range(exponent, digits(mantissa))?;
        let magnitude = i128::try_from(mantissa).expect("38 digits fit into 127 bits");
        let exponent = i16::try_from(exponent).expect("the range was checked, so the exponent lies in -167..=125");
        Ok(Self { mantissa: if negative { -magnitude } else { magnitude }, exponent })
    }
}

/// Refuses a number that DynamoDB cannot store: one with this many significant digits, the last of them at this power of ten.
fn check_range(exponent: i64, digits: u32) -> Result<(), Invalid> {
    let leading = exponent.saturating_add(i64::from(digits) - 1);
    if leading > *MAGNITUDES.end() {
        Err(Invalid::new(OVERFLOW))
    } else if leading < *MAGNITUDES.start() {
        Err(Invalid::new(UNDERFLOW))
    } else if digits > MAX_DIGITS {
        Err(Invalid::new(TOO_PRECISE))
    } else {
        Ok(())
    }
}

/// The number of decimal digits of a positive integer.
fn digits(positive: u128) -> u32 {
    positive.ilog10() + 1
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs.is_ne() || self.mantissa == 0 {
            return signs;
        }
        // Compares the power of ten of the leading digit, then all digits, brought to the same length.
        let rank = |number: &Self| {
            let mantissa = number.mantissa.unsigned_abs();
            let length = digits(mantissa);
            (i64::from(number.exponent) + i64::from(length), mantissa * 10u128.pow(MAX_DIGITS - length))
        };
        let sizes = rank(self).cmp(&rank(other));
        if self.is_negative() { sizes.reverse() } else { sizes }
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<i64> for Number {
    fn from(integer: i64) -> Self {
        Self::normalised(integer < 0, u128::from(integer.unsigned_abs()), 0).expect("an i64 has at most 19 digits")
    }
}

impl FromStr for Number {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        if text.is_empty() {
            return Err(Invalid::new(NOT_A_NUMBER));
        }
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(unsigned) => (true, unsigned),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (decimal, power) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
        let (whole, fraction) = decimal.split_once('.').unwrap_or((decimal, ""));
        let digits = match fraction {
            "" => Cow::Borrowed(whole),
            _ => Cow::Owned([whole, fraction].concat()),
        };
        let power: Option<i64> = power.parse().ok();
        let Some(power) = power.filter(|_| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
        else {
            return Err(Invalid::new(format!("{NOT_A_NUMBER}: {text}")));
        };
        let from_first = digits.trim_start_matches('0');
        let significant = from_first.trim_end_matches('0');
        if significant.is_empty() {
            // Zero is checked with the power of ten with which it is written.
            return check_range(power, 1).map(|()| Self::ZERO);
        }
        let trailing_zeros = (from_first.len() - significant.len()) as u64;
        let exponent = power.saturating_sub_unsigned(fraction.len() as u64).saturating_add_unsigned(trailing_zeros);
        check_range(exponent, u32::try_from(significant.len()).unwrap_or(u32::MAX))?;
        let mantissa = significant.parse().expect("38 digits fit into 127 bits");
        Self::normalised(negative, mantissa, exponent)
    }
}

impl fmt::Display for Number {
    /// Writes all digits without an exponent, as DynamoDB returns numbers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = usize::from(self.exponent.unsigned_abs());
        if self.exponent >= 0 {
            return match i64::try_from(self.mantissa) {
                Ok(short) if places == 0 => write!(f, "{short}"),
                _ => write!(f, "{}{:0<places$}", self.mantissa, ""),
            };
        }
        let sign = if self.is_negative() { "-" } else { "" };
        let magnitude = self.mantissa.unsigned_abs();
        let (whole, fraction) = match 10u128.checked_pow(u32::from(self.exponent.unsigned_abs())) {
            Some(power) => (magnitude / power, magnitude % power),
            None => (0, magnitude),
        };
        write!(f, "{sign}{whole}.{fraction:0>places$}")
    }
}
