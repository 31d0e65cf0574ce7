//! The first twelve bytes that every structure of every version shares.
//!
//! The header's checksum can be verified without knowing the version, so that a flipped bit in the version
//! is damage and never "newer".
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic |
//! | 4 | 2 | version, from 1 |
//! | 6 | 2 | header bytes, these twelve included |
//! | 8 | 4 | header crc: CRC-32 of the header without this field |

use super::error::{FormatError, Structure};
use super::fields::{FieldReader, FieldWriter};

/// The bytes of the envelope; a structure's own fields begin here.
pub(super) const ENVELOPE_BYTES: usize = 12;

const CRC_AT: usize = 8;

/// What tells one structure from another.
#[derive(Clone, Copy)]
pub(super) struct Envelope {
    pub(super) what: Structure,
    pub(super) magic: [u8; 4],
    pub(super) version: u16,
    pub(super) header_bytes: u16,
}

impl Envelope {
    /// Writes the envelope in front of the finished fields of `header`, and returns the header's crc.
    pub(super) fn seal(self, header: &mut [u8]) -> u32 {
        assert!(header.len() == usize::from(self.header_bytes));
        let mut fields = FieldWriter::at(header, 0);
        fields.raw(&self.magic);
        fields.u16(self.version);
        fields.u16(self.header_bytes);
        let crc = header_crc(header);
        header[CRC_AT..ENVELOPE_BYTES].copy_from_slice(&crc.to_le_bytes());
        crc
    }

    /// Checks the envelope at the head of `bytes`; returns the header's own fields and its crc.
    pub(super) fn open(self, bytes: &[u8]) -> Result<(FieldReader<'_>, u32), FormatError> {
        let what = self.what;
        let mut fields = FieldReader::at(bytes, 0, what);
        let magic = fields.u32()?;
        if magic != u32::from_le_bytes(self.magic) {
            return Err(FormatError::Magic { what, found: magic });
        }
        let version = fields.u16()?;
        let header_bytes = usize::from(fields.u16()?);
        let stored = fields.u32()?;
        if !(ENVELOPE_BYTES..=crate::id::BLOCK_BYTES).contains(&header_bytes) {
            return Err(self.field("header bytes", header_bytes as u64));
        }
        let Some(header) = bytes.get(..header_bytes) else {
            return Err(FormatError::Truncated { what, bytes: bytes.len(), needed: header_bytes });
        };
        let computed = header_crc(header);
        if stored != computed {
            return Err(FormatError::HeaderCrc { what, stored, computed });
        }
        if version > self.version {
            return Err(FormatError::NewerVersion {
                what,
                found: version,
                supported: self.version,
            });
        }
        if version != self.version {
            return Err(self.field("version", u64::from(version)));
        }
        if header_bytes != usize::from(self.header_bytes) {
            return Err(self.field("header bytes", header_bytes as u64));
        }
        Ok((FieldReader::at(header, ENVELOPE_BYTES, what), stored))
    }

    pub(super) fn field(self, field: &'static str, value: u64) -> FormatError {
        FormatError::Field { what: self.what, field, value }
    }
}

/// The header of a structure that is an envelope, a payload and nothing else:
///
/// | at | bytes | field |
/// |---|---|---|
/// | 0 | 12 | envelope, header bytes 24 |
/// | 12 | 4 | payload bytes |
/// | 16 | 4 | payload crc |
/// | 20 | 4 | 0 |
/// | 24 | | payload |
pub(super) const WRAPPED_HEADER_BYTES: usize = 24;

impl Envelope {
    /// The envelope of a structure made by [`wrap`](Self::wrap).
    pub(super) const fn of_payload(what: Structure, magic: [u8; 4], version: u16) -> Envelope {
        Envelope { what, magic, version, header_bytes: 24 }
    }

    /// Puts a header in front of `payload`.
    pub(super) fn wrap(self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; WRAPPED_HEADER_BYTES + payload.len()];
        self.wrap_into(payload, &mut bytes);
        bytes
    }

    /// Writes a header, `payload` and then zeros over all of `target`, which is long enough.
    pub(super) fn wrap_into(self, payload: &[u8], target: &mut [u8]) {
        let mut fields = FieldWriter::at(target, ENVELOPE_BYTES);
        fields.u32(u32::try_from(payload.len()).expect("payloads have limits far below 4 GiB"));
        fields.u32(crc32fast::hash(payload));
        fields.u32(0);
        fields.raw(payload);
        let end = fields.position();
        target[end..].fill(0);
        self.seal(&mut target[..WRAPPED_HEADER_BYTES]);
    }

    /// Reads from the header at the head of `bytes` how long the whole structure is.
    pub(super) fn wrapped_bytes(self, bytes: &[u8]) -> Result<usize, FormatError> {
        let (mut fields, _) = self.open(bytes)?;
        Ok(WRAPPED_HEADER_BYTES.saturating_add(fields.u32()? as usize))
    }

    /// Checks the wrapped structure at the head of `bytes`; returns its payload's fields.
    pub(super) fn unwrap(self, bytes: &[u8]) -> Result<FieldReader<'_>, FormatError> {
        let (mut fields, _) = self.open(bytes)?;
        let payload_bytes = fields.u32()? as usize;
        let stored = fields.u32()?;
        let reserved = fields.u32()?;
        if reserved != 0 {
            return Err(self.field("reserved", u64::from(reserved)));
        }
        let needed = WRAPPED_HEADER_BYTES.saturating_add(payload_bytes);
        let Some(payload) = bytes.get(WRAPPED_HEADER_BYTES..needed) else {
            return Err(FormatError::Truncated { what: self.what, bytes: bytes.len(), needed });
        };
        let computed = crc32fast::hash(payload);
        if computed != stored {
            return Err(FormatError::PayloadCrc { what: self.what, stored, computed });
        }
        Ok(FieldReader::at(payload, 0, self.what))
    }
}

fn header_crc(header: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&header[..CRC_AT]);
    crc.update(&header[ENVELOPE_BYTES..]);
    crc.finalize()
}
