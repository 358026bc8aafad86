//! Makes the `:authority` of clients that were given a list of addresses readable for the HTTP/2 library.
//!
//! gRPC's C core (the Python and C++ SDKs) and the Go SDK send the whole list, `10.0.0.1:8081,10.0.0.2:8081`, as
//! `:authority`. That is no authority, so the library resets such calls, while the servers that those SDKs were made for
//! let it pass. raftmq does not use the field. Here its separators are overwritten with letters **of equal length in both
//! encodings**, so that every length, and the size of every entry of the header table that both sides keep, stays as it
//! was; nothing else of the stream is touched.
//!
//! ```text
//! frame:  | length u24 | type u8 | flags u8 | stream u32 | payload |            RFC 9113 4.1
//! HEADERS payload: [pad length u8] [priority 5 bytes] | header block |          RFC 9113 6.2
//! block:  indexed 1xxxxxxx | table size 001xxxxx | literal (01, 0000, 0001) name value      RFC 7541 6
//! ```
//! A connection whose first header block has no list is not looked at any more.

use bytes::{Buf, BytesMut};

const FRAME_HEADER_BYTES: usize = 9;
const HEADERS: u8 = 1;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;
/// Header blocks longer than this are passed on as they are; the server refuses longer ones anyway.
const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Index of `:authority` in the static table.
const AUTHORITY_INDEX: usize = 1;

/// What is known of the frame that is being read.
#[derive(Debug)]
enum At {
    /// Between frames.
    Header,
    /// In a payload that passes as it is.
    Passing { left: usize },
    /// In a HEADERS payload that is looked at when it is complete.
    Block { length: usize, flags: u8 },
    /// The client sends no lists: everything passes.
    Off,
}

/// One connection's repair. Bytes go in by [`Repair::input`] and come out of [`Repair::output`] in the same order and
/// number.
#[derive(Debug)]
pub(super) struct Repair {
    at: At,
    /// Not decided yet; shorter than a frame header or one header block.
    held: BytesMut,
    ready: BytesMut,
}

impl Repair {
    /// For a connection whose preface was read.
    pub(super) fn new() -> Repair {
        Repair { at: At::Header, held: BytesMut::new(), ready: BytesMut::new() }
    }

    /// Whether bytes may go past it from now on.
    pub(super) fn is_off(&self) -> bool {
        matches!(self.at, At::Off) && self.ready.is_empty() && self.held.is_empty()
    }

    /// Takes bytes of the client.
    pub(super) fn input(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(bytes);
        while self.step() {}
    }

    /// Bytes for the HTTP/2 library: at most `room.len()` of them; the number that was written.
    pub(super) fn output(&mut self, room: &mut bytes::buf::UninitSlice) -> usize {
        let count = self.ready.len().min(room.len());
        room[..count].copy_from_slice(&self.ready[..count]);
        self.ready.advance(count);
        count
    }

    /// Whether there is output.
    pub(super) fn has_output(&self) -> bool {
        !self.ready.is_empty()
    }

    fn pass(&mut self, count: usize) {
        let bytes = self.held.split_to(count);
        self.ready.unsplit(bytes);
    }

    /// One step; `false` when more input is needed.
    fn step(&mut self) -> bool {
        match self.at {
            At::Off => {
                self.pass(self.held.len());
                false
            }
            At::Header if self.held.len() < FRAME_HEADER_BYTES => false,
            At::Header => {
                let length =
                    usize::from(self.held[0]) << 16 | usize::from(self.held[1]) << 8 | usize::from(self.held[2]);
                let (kind, flags) = (self.held[3], self.held[4]);
                let look = kind == HEADERS && length <= BLOCK_BYTES_MAX;
                self.at = if look { At::Block { length, flags } } else { At::Passing { left: length } };
                self.pass(FRAME_HEADER_BYTES);
                true
            }
            At::Passing { left: 0 } => {
                self.at = At::Header;
                true
            }
            At::Passing { left } => {
                let count = left.min(self.held.len());
                self.pass(count);
                self.at = At::Passing { left: left - count };
                count > 0
            }
            At::Block { length, .. } if self.held.len() < length => false,
            At::Block { length, flags } => {
                let found = repair_payload(&mut self.held[..length], flags);
                self.pass(length);
                self.at = if found == Some(Found::Plain) { At::Off } else { At::Header };
                true
            }
        }
    }
}

/// What a header block says in full about `:authority`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    /// One address.
    Plain,
    /// A list, repaired.
    List,
}

fn repair_payload(payload: &mut [u8], flags: u8) -> Option<Found> {
    let mut start = 0;
    let mut end = payload.len();
    if flags & PADDED != 0 {
        end = end.checked_sub(usize::from(*payload.first()?))?;
        start += 1;
    }
    if flags & PRIORITY != 0 {
        start += 5;
    }
    repair_block(payload.get_mut(start..end)?)
}

/// Walks over the fields of a block. A block that cannot be read is left alone: the library judges it.
fn repair_block(block: &mut [u8]) -> Option<Found> {
    let mut at = 0;
    while at < block.len() {
        let first = block[at];
        if first & 0x80 != 0 {
            integer(block, &mut at, 7)?;
        } else if first & 0xe0 == 0x20 {
            integer(block, &mut at, 5)?;
        } else {
            let name = integer(block, &mut at, if first & 0x40 != 0 { 6 } else { 4 })?;
            let mut is_authority = name == AUTHORITY_INDEX;
            if name == 0 {
                let (huffman, from, to) = string(block, &mut at)?;
                is_authority = !huffman && &block[from..to] == b":authority";
            }
            let (huffman, from, to) = string(block, &mut at)?;
            if is_authority {
                let value = &mut block[from..to];
                return Some(if huffman { repair_huffman(value) } else { repair_plain(value) });
            }
        }
    }
    None
}

/// RFC 7541 5.1: an integer whose first `prefix` bits are in the byte at `at`.
fn integer(block: &[u8], at: &mut usize, prefix: u32) -> Option<usize> {
    let mask = (1usize << prefix) - 1;
    let mut value = usize::from(*block.get(*at)?) & mask;
    *at += 1;
    if value < mask {
        return Some(value);
    }
    // More than this many bytes is beyond any length that fits here.
    for shift in [0, 7, 14, 21] {
        let byte = usize::from(*block.get(*at)?);
        *at += 1;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// RFC 7541 5.2: whether a string is Huffman-coded, and where its bytes are.
fn string(block: &[u8], at: &mut usize) -> Option<(bool, usize, usize)> {
    let huffman = block.get(*at)? & 0x80 != 0;
    let length = integer(block, at, 7)?;
    let from = *at;
    let to = from.checked_add(length)?;
    if to > block.len() {
        return None;
    }
    *at = to;
    Some((huffman, from, to))
}

fn repair_plain(value: &mut [u8]) -> Found {
    if !value.iter().any(|byte| matches!(byte, b',' | b';')) {
        return Found::Plain;
    }
    for byte in value.iter_mut().filter(|byte| matches!(byte, b',' | b';' | b':' | b'[' | b']')) {
        *byte = b'X';
    }
    Found::List
}

/// Codes of the Huffman table (RFC 7541 appendix B), which is canonical: the length of a code follows from its value.
/// `,` and `;` have eight bits like `X` and `Z`, `:` has seven like `B`.
fn repair_huffman(value: &mut [u8]) -> Found {
    const COMMA: u8 = 0b1111_1010;
    const SEMICOLON: u8 = 0b1111_1011;
    const COLON: u8 = 0b101_1100;
    let mut separators = Vec::new();
    let mut list = false;
    let mut at = 0;
    while at + 5 <= value.len() * 8 {
        let code = bits(value, at);
        let length = match code {
            _ if code >> 3 < 10 => 5,
            _ if code >> 2 <= 45 => 6,
            _ if code >> 1 <= 123 => 7,
            248..=253 => 8,
            // A longer code, which no address has, or the padding at the end.
            _ => break,
        };
        match (length, code >> (8 - length)) {
            (8, COMMA) => {
                list = true;
                separators.push((at, 8, 0b1111_1100));
            }
            (8, SEMICOLON) => {
                list = true;
                separators.push((at, 8, 0b1111_1101));
            }
            (7, COLON) => separators.push((at, 7, 0b101_1101)),
            _ => {}
        }
        at += length;
    }
    if !list {
        return Found::Plain;
    }
    for (at, length, code) in separators {
        for bit in 0..length {
            let (byte, mask) = ((at + bit) / 8, 0x80 >> ((at + bit) % 8));
            let Some(byte) = value.get_mut(byte) else { continue };
            if code >> (length - 1 - bit) & 1 == 1 { *byte |= mask } else { *byte &= !mask }
        }
    }
    Found::List
}

/// Eight bits from bit `at`, filled up with ones behind the end as the padding is.
fn bits(value: &[u8], at: usize) -> u8 {
    let byte = |index: usize| u16::from(value.get(index).copied().unwrap_or(0xff));
    let two = byte(at / 8) << 8 | byte(at / 8 + 1);
    (two << (at % 8) >> 8) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(block: &[u8]) -> Vec<u8> {
        let mut frame = vec![0, 0, u8::try_from(block.len()).expect("short"), HEADERS, 4, 0, 0, 0, 1];
        frame.extend_from_slice(block);
        frame
    }

    /// `:method POST`, then `:authority` as a literal with indexing, then one more literal.
    fn block(authority: &[u8], huffman: bool) -> Vec<u8> {
        let mut out = vec![0x83, 0x41, u8::try_from(authority.len()).expect("short") | if huffman { 0x80 } else { 0 }];
        out.extend_from_slice(authority);
        out.extend_from_slice(b"\x00\x02te\x08trailers");
        out
    }

    fn through(repair: &mut Repair, bytes: &[u8], step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for piece in bytes.chunks(step) {
            repair.input(piece);
            while repair.has_output() {
                let mut room = [0u8; 7];
                let count = repair.output(bytes::buf::UninitSlice::new(&mut room));
                out.extend_from_slice(&room[..count]);
            }
        }
        out
    }

    #[test]
    fn a_list_is_made_one_name_of_the_same_length_wherever_the_pieces_end() {
        let data = [0, 0, 5, 0, 0, 0, 0, 0, 1, b',', b',', b':', 1, 2];
        let mut stream = headers(&block(b"127.0.0.1:9000,127.0.0.1:9001", false));
        stream.extend_from_slice(&data);
        stream.extend_from_slice(&headers(&[0x83, 0xbe]));
        let mut wanted = headers(&block(b"127.0.0.1X9000X127.0.0.1X9001", false));
        wanted.extend_from_slice(&data);
        wanted.extend_from_slice(&headers(&[0x83, 0xbe]));
        for step in 1..stream.len() {
            let mut repair = Repair::new();
            assert_eq!(through(&mut repair, &stream, step), wanted, "pieces of {step}");
            assert!(!repair.is_off());
        }
    }

    #[test]
    fn one_address_turns_it_off() {
        let mut repair = Repair::new();
        let stream = headers(&block(b"127.0.0.1:9000", false));
        assert_eq!(through(&mut repair, &stream, 3), stream);
        assert!(repair.is_off());
    }

    /// "1:2;3:4" and "1B2Z3B4" by the table of RFC 7541 appendix B.
    #[test]
    fn huffman_codes_are_replaced_by_codes_of_equal_length() {
        fn pack(codes: &[(u32, u32)]) -> Vec<u8> {
            let text: String =
                codes.iter().map(|(code, length)| format!("{code:0width$b}", width = *length as usize)).collect();
            text.as_bytes()
                .chunks(8)
                .map(|bits| {
                    let bits = format!("{:1<8}", std::str::from_utf8(bits).expect("bits"));
                    u8::from_str_radix(&bits, 2).expect("a byte")
                })
                .collect()
        }
        let list = pack(&[(0x1, 5), (0x5c, 7), (0x2, 5), (0xfb, 8), (0x19, 6), (0x5c, 7), (0x1a, 6)]);
        let name = pack(&[(0x1, 5), (0x5d, 7), (0x2, 5), (0xfd, 8), (0x19, 6), (0x5d, 7), (0x1a, 6)]);
        let mut repair = Repair::new();
        assert_eq!(through(&mut repair, &headers(&block(&list, true)), 5), headers(&block(&name, true)));
    }

    #[test]
    fn what_cannot_be_read_passes_as_it_is() {
        for block in [vec![0x41, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff], vec![0x41, 0x20, b','], vec![0x40]] {
            let stream = headers(&block);
            assert_eq!(through(&mut Repair::new(), &stream, 2), stream);
        }
    }
}
