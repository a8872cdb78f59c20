//! Which addresses are special, and what lies inside addresses that carry another one.
//!
//! Why an own table: the standard library's `is_global` is not stable, and a filter that forgets one wrapping (mapped,
//! NAT64, 6to4, Teredo, ISATAP) is open through it. So every IPv6 address is also judged by each IPv4 address inside.

use core::net::{Ipv4Addr, Ipv6Addr};

/// Why an address is not an ordinary public one, or a URL not an acceptable one. The words are stable: they stand in
/// events and answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// Not a URL.
    Url,
    /// A control character, white space or backslash, which parsers read differently.
    Character,
    /// Longer than 2,048 bytes.
    TooLong,
    /// Neither http nor https.
    Scheme,
    /// A user or password in the URL.
    Userinfo,
    /// A fragment, which is never sent.
    Fragment,
    /// A port other than 80, 443 or 1,024 and above.
    Port,
    /// No host, or one that is no name.
    Host,
    /// The host's own addresses; only with `--dev`.
    Loopback,
    /// A cloud's metadata or platform service; never.
    Metadata,
    /// A private range; only if listed.
    Private,
    /// Link-local; only if listed.
    LinkLocal,
    /// Carrier-grade NAT; only if listed.
    Shared,
    /// Multicast or broadcast; never.
    Multicast,
    /// For documentation; only if listed.
    Documentation,
    /// For benchmarks; only if listed.
    Benchmarking,
    /// Not an address of anybody; never, as systems connect it to themselves.
    Unspecified,
    /// Set aside for other purposes; only if listed.
    Reserved,
}

impl Rule {
    /// The rule's stable word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Url => "url",
            Self::Character => "character",
            Self::TooLong => "too-long",
            Self::Scheme => "scheme",
            Self::Userinfo => "userinfo",
            Self::Fragment => "fragment",
            Self::Port => "port",
            Self::Host => "host",
            Self::Loopback => "loopback",
            Self::Metadata => "metadata",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Shared => "shared",
            Self::Multicast => "multicast",
            Self::Documentation => "documentation",
            Self::Benchmarking => "benchmarking",
            Self::Unspecified => "unspecified",
            Self::Reserved => "reserved",
        }
    }
}

/// Metadata and platform services of the large clouds. They are matched before any range and no list opens them.
const METADATA_V4: [[u8; 4]; 9] = [
    [169, 254, 169, 254],
    [169, 254, 169, 253],
    [169, 254, 169, 123],
    [169, 254, 170, 2],
    [169, 254, 170, 23],
    [169, 254, 0, 23],
    [100, 100, 100, 200],
    [168, 63, 129, 16],
    [192, 0, 0, 192],
];
const METADATA_V6: [[u16; 8]; 5] = [
    [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254],
    [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x253],
    [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23],
    [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x123],
    [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254],
];

/// First match holds; what matches none is public.
const V4: [([u8; 4], u32, Rule); 17] = [
    ([0, 0, 0, 0], 8, Rule::Unspecified),
    ([10, 0, 0, 0], 8, Rule::Private),
    ([100, 64, 0, 0], 10, Rule::Shared),
    ([127, 0, 0, 0], 8, Rule::Loopback),
    ([169, 254, 0, 0], 16, Rule::LinkLocal),
    ([172, 16, 0, 0], 12, Rule::Private),
    ([192, 0, 0, 0], 24, Rule::Reserved),
    ([192, 0, 2, 0], 24, Rule::Documentation),
    ([192, 31, 196, 0], 24, Rule::Reserved),
    ([192, 52, 193, 0], 24, Rule::Reserved),
    ([192, 88, 99, 0], 24, Rule::Reserved),
    ([192, 168, 0, 0], 16, Rule::Private),
    ([198, 18, 0, 0], 15, Rule::Benchmarking),
    ([198, 51, 100, 0], 24, Rule::Documentation),
    ([203, 0, 113, 0], 24, Rule::Documentation),
    ([224, 0, 0, 0], 4, Rule::Multicast),
    ([240, 0, 0, 0], 4, Rule::Reserved),
];

/// First match holds; `None` means that the address inside decides. What matches none is public only in 2000::/3, the
/// one block from which addresses of the public net are given out.
const V6: [(Ipv6Addr, u32, Option<Rule>); 23] = [
    (Ipv6Addr::UNSPECIFIED, 128, Some(Rule::Unspecified)),
    (Ipv6Addr::LOCALHOST, 128, Some(Rule::Loopback)),
    (v6([0, 0, 0, 0, 0, 0xffff, 0, 0]), 96, None),
    (v6([0, 0, 0, 0, 0xffff, 0, 0, 0]), 96, Some(Rule::Reserved)),
    (v6([0, 0, 0, 0, 0, 0, 0, 0]), 96, Some(Rule::Reserved)),
    (v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0]), 96, None),
    (v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0]), 48, Some(Rule::Private)),
    (v6([0x100, 0, 0, 0, 0, 0, 0, 0]), 64, Some(Rule::Reserved)),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 32, None),
    (v6([0x2001, 2, 0, 0, 0, 0, 0, 0]), 48, Some(Rule::Benchmarking)),
    (v6([0x2001, 0x10, 0, 0, 0, 0, 0, 0]), 28, Some(Rule::Reserved)),
    (v6([0x2001, 0x20, 0, 0, 0, 0, 0, 0]), 28, Some(Rule::Reserved)),
    (v6([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0]), 32, Some(Rule::Documentation)),
    (v6([0x2001, 0, 0, 0, 0, 0, 0, 0]), 23, Some(Rule::Reserved)),
    (v6([0x2002, 0, 0, 0, 0, 0, 0, 0]), 16, None),
    (v6([0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0]), 48, Some(Rule::Reserved)),
    (v6([0x3fff, 0, 0, 0, 0, 0, 0, 0]), 20, Some(Rule::Documentation)),
    (v6([0x5f00, 0, 0, 0, 0, 0, 0, 0]), 16, Some(Rule::Reserved)),
    (v6([0xfc00, 0, 0, 0, 0, 0, 0, 0]), 7, Some(Rule::Private)),
    (v6([0xfe80, 0, 0, 0, 0, 0, 0, 0]), 10, Some(Rule::LinkLocal)),
    (v6([0xfec0, 0, 0, 0, 0, 0, 0, 0]), 10, Some(Rule::Private)),
    (v6([0xff00, 0, 0, 0, 0, 0, 0, 0]), 8, Some(Rule::Multicast)),
    (v6([0x2000, 0, 0, 0, 0, 0, 0, 0]), 3, None),
];

const fn v6(s: [u16; 8]) -> Ipv6Addr {
    let [a, b, c, d, e, f, g, h] = s;
    Ipv6Addr::new(a, b, c, d, e, f, g, h)
}

/// What is special about an IPv4 address; `None` for an ordinary public one.
#[must_use]
pub fn rule_v4(address: Ipv4Addr) -> Option<Rule> {
    if METADATA_V4.contains(&address.octets()) {
        return Some(Rule::Metadata);
    }
    if address == Ipv4Addr::BROADCAST {
        return Some(Rule::Multicast);
    }
    let bits = address.to_bits();
    V4.iter()
        .find(|(base, len, _)| (bits ^ u32::from_be_bytes(*base)).leading_zeros() >= *len)
        .map(|(_, _, rule)| *rule)
}

/// What is special about an IPv6 address by its own prefix; the addresses inside ([`embedded`]) are judged beside it.
#[must_use]
pub fn rule_v6(address: Ipv6Addr) -> Option<Rule> {
    if METADATA_V6.contains(&address.segments()) {
        return Some(Rule::Metadata);
    }
    let bits = address.to_bits();
    let row = V6.iter().find(|(base, len, _)| (bits ^ base.to_bits()).leading_zeros() >= *len);
    row.map_or(Some(Rule::Reserved), |(_, _, rule)| *rule)
}

/// The IPv4 addresses inside an IPv6 address: at most two.
pub fn embedded(address: Ipv6Addr) -> impl Iterator<Item = Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    let last = join(g, h);
    let pair = match (a, b, c, d, e, f) {
        // Mapped, IPv4-translated, IPv4-compatible. `::` and `::1` are told by their own prefix.
        (0, 0, 0, 0, 0, 0xffff) | (0, 0, 0, 0, 0xffff, 0) => [Some(last), None],
        (0, 0, 0, 0, 0, 0) if address.to_bits() > 1 => [Some(last), None],
        // NAT64, well-known and local-use.
        (0x64, 0xff9b, ..) => [Some(last), None],
        // 6to4.
        (0x2002, ..) => [Some(join(b, c)), None],
        // Teredo: the server's and, with inverted bits, the client's.
        (0x2001, 0, ..) => [Some(join(c, d)), Some(join(!g, !h))],
        // ISATAP, behind any prefix.
        (_, _, _, _, 0 | 0x200, 0x5efe) => [Some(last), None],
        _ => [None, None],
    };
    pair.into_iter().flatten()
}

const fn join(high: u16, low: u16) -> Ipv4Addr {
    let [a, b] = high.to_be_bytes();
    let [c, d] = low.to_be_bytes();
    Ipv4Addr::new(a, b, c, d)
}
