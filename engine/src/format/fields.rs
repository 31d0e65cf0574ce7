//! Little-endian fields, one after the other: written into a slice or a vector, read with bounds.

use super::error::{FormatError, Structure};

/// Appends fields to a slice whose length the caller has fixed.
pub(super) struct FieldWriter<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> FieldWriter<'a> {
    pub(super) fn at(bytes: &'a mut [u8], at: usize) -> FieldWriter<'a> {
        FieldWriter { bytes, at }
    }

    /// Where the next field goes.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn raw(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }

    pub(super) fn u8(&mut self, field: u8) {
        self.raw(&[field]);
    }

    pub(super) fn u16(&mut self, field: u16) {
        self.raw(&field.to_le_bytes());
    }

    pub(super) fn u32(&mut self, field: u32) {
        self.raw(&field.to_le_bytes());
    }

    pub(super) fn u64(&mut self, field: u64) {
        self.raw(&field.to_le_bytes());
    }
}

/// Appends fields to a vector that grows.
#[derive(Default)]
pub(super) struct FieldVec {
    pub(super) bytes: Vec<u8>,
}

impl FieldVec {
    pub(super) fn raw(&mut self, field: &[u8]) {
        self.bytes.extend_from_slice(field);
    }

    pub(super) fn u8(&mut self, field: u8) {
        self.raw(&[field]);
    }

    pub(super) fn u32(&mut self, field: u32) {
        self.raw(&field.to_le_bytes());
    }

    pub(super) fn u64(&mut self, field: u64) {
        self.raw(&field.to_le_bytes());
    }

    pub(super) fn u128(&mut self, field: u128) {
        self.raw(&field.to_le_bytes());
    }

    /// The number of fields that follow, as a `u32`.
    pub(super) fn count(&mut self, count: usize) {
        self.u32(u32::try_from(count).expect("lists have limits far below 2^32"));
    }
}

/// Takes fields off a slice; running out of bytes is [`FormatError::Truncated`].
pub(super) struct FieldReader<'a> {
    bytes: &'a [u8],
    at: usize,
    what: Structure,
}

impl<'a> FieldReader<'a> {
    pub(super) fn at(bytes: &'a [u8], at: usize, what: Structure) -> FieldReader<'a> {
        FieldReader { bytes, at, what }
    }

    pub(super) fn raw(&mut self, bytes: usize) -> Result<&'a [u8], FormatError> {
        let left = self.bytes.get(self.at..).unwrap_or_default();
        let Some(field) = left.get(..bytes) else {
            let needed = self.at.saturating_add(bytes);
            return Err(FormatError::Truncated {
                what: self.what,
                bytes: self.bytes.len(),
                needed,
            });
        };
        self.at += bytes;
        Ok(field)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        Ok(self.raw(N)?.try_into().expect("raw returns what was asked"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u16(&mut self) -> Result<u16, FormatError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(super) fn u32(&mut self) -> Result<u32, FormatError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, FormatError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn u128(&mut self) -> Result<u128, FormatError> {
        Ok(u128::from_le_bytes(self.array()?))
    }

    /// Reads `count`, then so many elements of at least `element_bytes_min` each. A count that the bytes
    /// left cannot hold is refused before anything is allocated.
    pub(super) fn list<T>(
        &mut self,
        element_bytes_min: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, FormatError>,
    ) -> Result<Vec<T>, FormatError> {
        let count = self.u32()? as usize;
        let needed = self.at.saturating_add(count.saturating_mul(element_bytes_min));
        if needed > self.bytes.len() {
            return Err(FormatError::Truncated {
                what: self.what,
                bytes: self.bytes.len(),
                needed,
            });
        }
        (0..count).map(|_| element(self)).collect()
    }

    /// Refuses bytes behind the last field.
    pub(super) fn end(&self) -> Result<(), FormatError> {
        match self.bytes.len().saturating_sub(self.at) {
            0 => Ok(()),
            left => Err(self.refuse("bytes behind the last field", left as u64)),
        }
    }

    pub(super) fn refuse(&self, field: &'static str, value: u64) -> FormatError {
        FormatError::Field { what: self.what, field, value }
    }
}
