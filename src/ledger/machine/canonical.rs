//! A canonical digest of plain data: every value into SHA-256, each with its kind and, where it has one, its length.
//!
//! Why not hash some encoding: JSON can't hold keys that are not text, and the log's codec may change its version. This
//! digest depends on the data's shape alone. Names of types and fields do not count, their order does.

use std::fmt;

use serde::Serialize;
use serde::ser::{self, Serializer};
use sha2::{Digest as _, Sha256};

use crate::ledger::ids::Digest;

/// The digest of a value.
pub(in crate::ledger::machine) fn digest(value: &impl Serialize) -> Digest {
    let mut hasher = Hasher(Sha256::new());
    // The only error is a custom one, which derived implementations never raise; it would still change the digest.
    if value.serialize(&mut hasher).is_err() {
        hasher.0.update(b"unserializable");
    }
    Digest(hasher.0.finalize().into())
}

struct Hasher(Sha256);

/// What a `Serialize` implementation may complain about; the derived ones never do.
#[derive(Debug)]
pub(in crate::ledger::machine) struct Never(String);

impl fmt::Display for Never {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Never {}

impl ser::Error for Never {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(message.to_string())
    }
}

impl Hasher {
    fn put(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Never> {
        self.0.update([kind]);
        self.0.update(u64::try_from(bytes.len()).unwrap_or(u64::MAX).to_be_bytes());
        self.0.update(bytes);
        Ok(())
    }

    /// A sequence ends with a mark, so that its length need not be known before.
    fn open(&mut self, kind: u8) -> &mut Self {
        self.0.update([kind]);
        self
    }

    fn close(&mut self) -> Result<(), Never> {
        self.0.update([END]);
        Ok(())
    }
}

const END: u8 = 0;
const BOOL: u8 = 1;
const SIGNED: u8 = 2;
const UNSIGNED: u8 = 3;
const FLOAT: u8 = 4;
const TEXT: u8 = 5;
const BYTES: u8 = 6;
const NONE: u8 = 7;
const SOME: u8 = 8;
const UNIT: u8 = 9;
const VARIANT: u8 = 10;
const SEQUENCE: u8 = 11;
const MAP: u8 = 12;
const STRUCT: u8 = 13;

impl<'a> Serializer for &'a mut Hasher {
    type Ok = ();
    type Error = Never;
    type SerializeSeq = &'a mut Hasher;
    type SerializeTuple = &'a mut Hasher;
    type SerializeTupleStruct = &'a mut Hasher;
    type SerializeTupleVariant = &'a mut Hasher;
    type SerializeMap = &'a mut Hasher;
    type SerializeStruct = &'a mut Hasher;
    type SerializeStructVariant = &'a mut Hasher;

    fn serialize_bool(self, v: bool) -> Result<(), Never> {
        self.put(BOOL, &[u8::from(v)])
    }
    fn serialize_i8(self, v: i8) -> Result<(), Never> {
        self.serialize_i64(v.into())
    }
    fn serialize_i16(self, v: i16) -> Result<(), Never> {
        self.serialize_i64(v.into())
    }
    fn serialize_i32(self, v: i32) -> Result<(), Never> {
        self.serialize_i64(v.into())
    }
    fn serialize_i64(self, v: i64) -> Result<(), Never> {
        self.put(SIGNED, &v.to_be_bytes())
    }
    fn serialize_u8(self, v: u8) -> Result<(), Never> {
        self.serialize_u64(v.into())
    }
    fn serialize_u16(self, v: u16) -> Result<(), Never> {
        self.serialize_u64(v.into())
    }
    fn serialize_u32(self, v: u32) -> Result<(), Never> {
        self.serialize_u64(v.into())
    }
    fn serialize_u64(self, v: u64) -> Result<(), Never> {
        self.put(UNSIGNED, &v.to_be_bytes())
    }
    fn serialize_f32(self, v: f32) -> Result<(), Never> {
        self.serialize_f64(v.into())
    }
    fn serialize_f64(self, v: f64) -> Result<(), Never> {
        self.put(FLOAT, &v.to_bits().to_be_bytes())
    }
    fn serialize_char(self, v: char) -> Result<(), Never> {
        self.put(TEXT, v.encode_utf8(&mut [0; 4]).as_bytes())
    }
    fn serialize_str(self, v: &str) -> Result<(), Never> {
        self.put(TEXT, v.as_bytes())
    }
    fn serialize_bytes(self, v: &[u8]) -> Result<(), Never> {
        self.put(BYTES, v)
    }
    fn serialize_none(self) -> Result<(), Never> {
        self.put(NONE, &[])
    }
    fn serialize_some<T: ?Sized + Serialize>(self, value: &T) -> Result<(), Never> {
        value.serialize(self.open(SOME))
    }
    fn serialize_unit(self) -> Result<(), Never> {
        self.put(UNIT, &[])
    }
    fn serialize_unit_struct(self, _name: &'static str) -> Result<(), Never> {
        self.serialize_unit()
    }
    fn serialize_unit_variant(self, _name: &'static str, index: u32, _variant: &'static str) -> Result<(), Never> {
        self.put(VARIANT, &index.to_be_bytes())
    }
    fn serialize_newtype_struct<T: ?Sized + Serialize>(self, _name: &'static str, value: &T) -> Result<(), Never> {
        value.serialize(self)
    }
    fn serialize_newtype_variant<T: ?Sized + Serialize>(
        self,
        _name: &'static str,
        index: u32,
        _variant: &'static str,
        value: &T,
    ) -> Result<(), Never> {
        self.put(VARIANT, &index.to_be_bytes())?;
        value.serialize(self)
    }
    fn serialize_seq(self, _len: Option<usize>) -> Result<Self, Never> {
        Ok(self.open(SEQUENCE))
    }
    fn serialize_tuple(self, _len: usize) -> Result<Self, Never> {
        Ok(self.open(SEQUENCE))
    }
    fn serialize_tuple_struct(self, _name: &'static str, _len: usize) -> Result<Self, Never> {
        Ok(self.open(SEQUENCE))
    }
    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        index: u32,
        _variant: &'static str,
        _len: usize,
    ) -> Result<Self, Never> {
        self.put(VARIANT, &index.to_be_bytes())?;
        Ok(self.open(SEQUENCE))
    }
    fn serialize_map(self, _len: Option<usize>) -> Result<Self, Never> {
        Ok(self.open(MAP))
    }
    fn serialize_struct(self, _name: &'static str, _len: usize) -> Result<Self, Never> {
        Ok(self.open(STRUCT))
    }
    fn serialize_struct_variant(
        self,
        _name: &'static str,
        index: u32,
        _variant: &'static str,
        _len: usize,
    ) -> Result<Self, Never> {
        self.put(VARIANT, &index.to_be_bytes())?;
        Ok(self.open(STRUCT))
    }
}

macro_rules! elements {
    ($($trait:ident $method:ident),*) => { $(
        impl ser::$trait for &mut Hasher {
            type Ok = ();
            type Error = Never;
            fn $method<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Never> {
                value.serialize(&mut **self)
            }
            fn end(self) -> Result<(), Never> {
                self.close()
            }
        }
    )* };
}

elements!(SerializeSeq serialize_element, SerializeTuple serialize_element, SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field);

macro_rules! fields {
    ($($trait:ident),*) => { $(
        impl ser::$trait for &mut Hasher {
            type Ok = ();
            type Error = Never;
            fn serialize_field<T: ?Sized + Serialize>(&mut self, _name: &'static str, value: &T) -> Result<(), Never> {
                value.serialize(&mut **self)
            }
            fn end(self) -> Result<(), Never> {
                self.close()
            }
        }
    )* };
}

fields!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for &mut Hasher {
    type Ok = ();
    type Error = Never;
    fn serialize_key<T: ?Sized + Serialize>(&mut self, key: &T) -> Result<(), Never> {
        key.serialize(&mut **self)
    }
    fn serialize_value<T: ?Sized + Serialize>(&mut self, value: &T) -> Result<(), Never> {
        value.serialize(&mut **self)
    }
    fn end(self) -> Result<(), Never> {
        self.close()
    }
}
