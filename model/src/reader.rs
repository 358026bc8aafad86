//! Reads big-endian fields from a buffer without ever panicking; `None` means that the bytes end too early.

use bytes::{Buf, Bytes};

/// A buffer and how far it has been read.
pub(crate) struct Reader {
    rest: Bytes,
    len: usize,
}

macro_rules! integer {
    ($name:ident, $get:ident, $ty:ty) => {
        pub(crate) fn $name(&mut self) -> Option<$ty> {
            if self.rest.len() < size_of::<$ty>() {
                return None;
            }
            Some(self.rest.$get())
        }
    };
}

impl Reader {
    pub(crate) fn new(bytes: Bytes) -> Reader {
        Reader { len: bytes.len(), rest: bytes }
    }

    integer!(u8, get_u8, u8);
    integer!(u16, get_u16, u16);
    integer!(u32, get_u32, u32);
    integer!(u64, get_u64, u64);
    integer!(i64, get_i64, i64);

    /// The next `len` bytes, as a slice of the same buffer.
    pub(crate) fn bytes(&mut self, len: usize) -> Option<Bytes> {
        if self.rest.len() < len {
            return None;
        }
        Some(self.rest.split_to(len))
    }

    /// Bytes read so far.
    pub(crate) fn at(&self) -> usize {
        self.len - self.rest.len()
    }

    /// Bytes not read yet.
    pub(crate) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Everything not read yet.
    pub(crate) fn rest(self) -> Bytes {
        self.rest
    }
}
