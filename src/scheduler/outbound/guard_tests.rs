//! The table of address forms.

use super::*;

fn closed() -> Guard {
    Guard::default()
}

fn verdict(guard: &Guard, url: &str) -> &'static str {
    guard.check_url(url, Purpose::Callback).map_or_else(|refusal| refusal.rule.word(), |_| "ok")
}

/// Host forms (as they stand between `http://` and `/`) by the word that a closed guard says to them.
const HOSTS: &[(&str, &[&str])] = &[
    (
        "ok",
        &[
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.255",
            "203.0.112.255",
            "223.255.255.255",
            "0x08.0x08.0x08.0x08",
            "134744072",
            "010.010.010.010",
            "8.8.2056",
            "8.526344",
            "0x8080808",
            "[2606:4700:4700::1111]",
            "[2001:4860:4860::8888]",
            "[2001:200::1]",
            "[2400:cb00::1]",
            "[2a00:1450::1]",
            "[::ffff:8.8.8.8]",
            "[::ffff:808:808]",
            "[64:ff9b::8.8.8.8]",
            "[64:ff9b::808:808]",
            "[2002:808:808::1]",
            "[2001:0:808:808::f7f7:f7f7]",
            "example.com",
            "example.com.",
            "EXAMPLE.com",
            "bücher.example",
            "xn--bcher-kva.example",
            "a.b-c.example:8080",
            "example.com:1024",
            "example.com:65535",
            "example.com:443",
            "1.1.1.1:80",
            "ｅｘａｍｐｌｅ.com",
            "localhost.example",
            "notlocalhost",
            "8.8.8.8.",
            "1.2.3.0x",
        ],
    ),
    (
        "loopback",
        &[
            "127.0.0.1",
            "127.0.0.0",
            "127.1",
            "127.0.1",
            "127.255.255.255",
            "0x7f000001",
            "0x7f.1",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "0177.1",
            "017700000001",
            "2130706433",
            "127.0.0.1.",
            "127.0x0.0.1",
            "0x7F.0X0.0.1",
            "127.0.0.01",
            "0000177.0.0.01",
            "127.65535",
            "%31%32%37.0.0.1",
            "１２７.0.0.1",
            "①②⑦.0.0.1",
            "127。0。0。1",
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "a.b.localhost.",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[0000:0000:0000:0000:0000:0000:0000:0001]",
            "[::0:1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[0:0:0:0:0:ffff:7f00:0001]",
            "[::127.0.0.1]",
            "[::7f00:1]",
            "[::ffff:0:127.0.0.1]",
            "[64:ff9b::127.0.0.1]",
            "[64:ff9b::7f00:1]",
            "[64:ff9b:1::7f00:1]",
            "[2002:7f00:1::]",
            "[2002:7f00:1::1]",
            "[2001:0:7f00:1::f7f7:f7f7]",
            "[2001:0:808:808::80ff:fffe]",
            "[2606:4700::5efe:7f00:1]",
            "[2606:4700::200:5efe:7f00:1]",
            "ⓛocalhost",
            "127.0.0.1:8080",
            "[::1]:8080",
        ],
    ),
    (
        "metadata",
        &[
            "169.254.169.254",
            "0xa9fea9fe",
            "2852039166",
            "0251.0376.0251.0376",
            "169.254.43518",
            "169.16689662",
            "0xa9.0xfe.0xa9.0xfe",
            "[::ffff:169.254.169.254]",
            "[::ffff:a9fe:a9fe]",
            "[::a9fe:a9fe]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:a9fe:a9fe::]",
            "[2001:0:808:808::5601:5601]",
            "[fe80::5efe:a9fe:a9fe]",
            "[fd00:ec2::254]",
            "[fd00:0ec2:0:0:0:0:0:0254]",
            "[fd00:ec2::253]",
            "[fd00:ec2::23]",
            "[fd20:ce::254]",
            "169.254.170.2",
            "169.254.170.23",
            "169.254.169.253",
            "169.254.169.123",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "169.254.0.23",
            "[::ffff:100.100.100.200]",
            "[64:ff9b:1::a9fe:a9fe]",
        ],
    ),
    (
        "private",
        &[
            "10.0.0.0",
            "10.0.0.1",
            "10.255.255.255",
            "10.1",
            "012.0.0.1",
            "0xa000001",
            "167772161",
            "172.16.0.0",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.0",
            "192.168.1.1",
            "192.168.255.255",
            "192.168.257",
            "0xc0a80101",
            "3232235777",
            "[::ffff:10.0.0.1]",
            "[::ffff:c0a8:101]",
            "[64:ff9b::10.0.0.1]",
            "[64:ff9b::ac10:1]",
            "[2002:a00:1::]",
            "[2002:c0a8:101::1]",
            "[2001:0:a00:1::f7f7:f7f7]",
            "[2001:0:808:808::f5ff:fffe]",
            "[fc00::]",
            "[fc00::1]",
            "[fd00::1]",
            "[fd12:3456:789a::1]",
            "[fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]",
            "[fec0::1]",
            "[feff::1]",
            "[64:ff9b:1::808:808]",
            "[::10.0.0.1]",
            "[2606:4700::5efe:a00:1]",
            "[2606:4700::200:5efe:c0a8:101]",
            "[::ffff:0:10.0.0.1]",
        ],
    ),
    (
        "link-local",
        &[
            "169.254.0.0",
            "169.254.1.1",
            "169.254.255.255",
            "0xa9fe0101",
            "[fe80::1]",
            "[fe80::]",
            "[febf::1]",
            "[fe80::1:2:3:4]",
            "[::ffff:169.254.1.1]",
            "[64:ff9b::a9fe:101]",
            "[2002:a9fe:101::]",
        ],
    ),
    (
        "shared",
        &["100.64.0.0", "100.64.0.1", "100.127.255.255", "[::ffff:100.64.0.1]", "[2002:6440:1::]", "1681915905"],
    ),
    (
        "multicast",
        &[
            "224.0.0.0",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
            "0xffffffff",
            "4294967295",
            "[ff00::]",
            "[ff02::1]",
            "[ff0e::1]",
            "[::ffff:224.0.0.1]",
            "[2002:e000:1::]",
        ],
    ),
    (
        "unspecified",
        &[
            "0.0.0.0",
            "0",
            "0x0",
            "00",
            "0.0",
            "0.1.2.3",
            "0.255.255.255",
            "[::]",
            "[::ffff:0.0.0.0]",
            "[0:0:0:0:0:0:0:0]",
        ],
    ),
    (
        "documentation",
        &[
            "192.0.2.0",
            "192.0.2.255",
            "198.51.100.7",
            "203.0.113.9",
            "[2001:db8::1]",
            "[3fff::1]",
            "[::ffff:203.0.113.9]",
        ],
    ),
    ("benchmarking", &["198.18.0.0", "198.19.255.255", "[2001:2::1]", "[::ffff:198.18.0.1]"]),
    (
        "reserved",
        &[
            "192.0.0.0",
            "192.0.0.8",
            "192.88.99.1",
            "240.0.0.0",
            "255.255.255.254",
            "[100::1]",
            "[2001:10::1]",
            "[2001:20::1]",
            "[2001:1ff::1]",
            "[5f00::1]",
            "[4000::1]",
            "[1::1]",
            "[9999::1]",
            "[::8.8.8.8]",
            "[::ffff:0:8.8.8.8]",
            "[e000::1]",
            "192.31.196.1",
        ],
    ),
    (
        "port",
        &[
            "1.1.1.1:0",
            "1.1.1.1:1",
            "example.com:22",
            "example.com:25",
            "example.com:81",
            "example.com:444",
            "example.com:1023",
        ],
    ),
    (
        "userinfo",
        &[
            "a@example.com",
            "a:b@example.com",
            "@example.com",
            ":@example.com",
            "8.8.8.8@127.0.0.1",
            "127.0.0.1@8.8.8.8",
        ],
    ),
    (
        "url",
        &[
            "256.256.256.256",
            "1.2.3.4.5",
            "0x7f.0.0.0.1",
            "08.8.8.8",
            "[::1",
            "[fe80::1%25eth0]",
            "[::g]",
            "[1.2.3.4]",
            "example.com:65536",
            "example.com:port",
            "exa<mple.com",
            "1.1.1.1:-1",
            "a^b.example",
            "4294967296",
        ],
    ),
    (
        "character",
        &["exam ple.com", "127.0.0.1\t", "exa\nmple.com", "a\u{0}b", "a\\b", "evil.com\\@good.com", "a\u{a0}b"],
    ),
    ("host", &["."]),
];

#[test]
fn every_spelling_of_an_address_is_judged_by_the_address_it_means() {
    let guard = closed();
    let mut forms = 0;
    for (word, hosts) in HOSTS {
        for host in *hosts {
            assert_eq!(verdict(&guard, &format!("http://{host}/hook?x=1")), *word, "{host:?}");
            forms += 1;
        }
    }
    assert!(forms >= 200, "{forms} forms");
}

#[test]
fn only_http_urls_without_user_and_fragment_and_of_bounded_length_pass() {
    let guard = closed();
    for (url, word) in [
        ("https://example.com", "ok"),
        ("HTTPS://example.com/a@b?c=@d", "ok"),
        ("https://example.com/#part", "fragment"),
        ("https://example.com/#", "fragment"),
        ("ftp://example.com/", "scheme"),
        ("file:///etc/passwd", "scheme"),
        ("gopher://127.0.0.1:6379/", "scheme"),
        ("unix:/run/x.sock", "scheme"),
        ("javascript:alert(1)", "scheme"),
        ("data:text/plain,x", "scheme"),
        ("//example.com/", "url"),
        ("example.com", "url"),
        ("", "url"),
        ("http:example.com", "host"),
        ("http:/example.com", "host"),
        ("http:///127.0.0.1/", "host"),
        ("http:///", "url"),
        (" http://example.com/", "character"),
    ] {
        assert_eq!(verdict(&guard, url), word, "{url:?}");
    }
    let long = |n: usize| format!("http://example.com/{}", "x".repeat(n - "http://example.com/".len()));
    assert_eq!(verdict(&guard, &long(MAX_URL)), "ok");
    assert_eq!(verdict(&guard, &long(MAX_URL + 1)), "too-long");
    assert_eq!(verdict(&guard, &format!("http://{}.com/", "a".repeat(250))), "host");
}

#[test]
fn semantics_38_a_private_range_opens_only_where_it_is_listed() {
    let guard = Guard { agent_networks: vec!["10.0.0.0/8".parse().expect("net")], ..Guard::default() };
    for host in ["10.0.0.1", "[::ffff:10.0.0.1]", "[64:ff9b::10.0.0.1]", "[2002:a00:1::1]", "0xa000001"] {
        let url = format!("http://{host}/");
        assert!(guard.check_url(&url, Purpose::Agent).is_ok(), "{host}");
        assert_eq!(verdict(&guard, &url), "private", "{host}");
    }
    assert!(guard.check_url("http://192.168.0.1/", Purpose::Agent).is_err());
}

#[test]
fn semantics_38_no_list_opens_loopback_metadata_or_nobodys_addresses() {
    let everything: Vec<IpNet> = ["0.0.0.0/0", "::/0"].iter().map(|net| net.parse().expect("net")).collect();
    let guard = Guard { callback_networks: everything, ..Guard::default() };
    for (word, hosts) in HOSTS {
        let stays = matches!(*word, "loopback" | "metadata" | "multicast" | "unspecified");
        let opens =
            matches!(*word, "private" | "link-local" | "shared" | "documentation" | "benchmarking" | "reserved");
        for host in *hosts {
            let now = verdict(&guard, &format!("http://{host}/"));
            if stays {
                assert_eq!(now, *word, "{host}");
            }
            if opens {
                assert_eq!(now, "ok", "{host}");
            }
        }
    }
}

#[test]
fn semantics_38_dev_opens_loopback_and_nothing_else() {
    let dev = Guard { loopback: Loopback::Allowed, ..Guard::default() };
    for (word, hosts) in HOSTS {
        for host in *hosts {
            let now = verdict(&dev, &format!("http://{host}/"));
            // Prefixes that are themselves not public stay closed around an open inner address.
            let wrapped = host.starts_with("[::7") || host.starts_with("[::127") || host.starts_with("[::ffff:0:");
            match *word {
                "loopback" if wrapped => assert_eq!(now, "reserved", "{host}"),
                "loopback" if host.starts_with("[64:ff9b:1:") => assert_eq!(now, "private", "{host}"),
                "loopback" => assert_eq!(now, "ok", "{host}"),
                other => assert_eq!(now, other, "{host}"),
            }
        }
    }
}

#[test]
fn debug_of_a_checked_url_shows_neither_path_nor_query() {
    let checked = closed().check_url("https://example.com/hook/s3cret?token=s3cret", Purpose::Callback).expect("ok");
    assert_eq!(format!("{checked:?}"), "CheckedUrl(example.com:443)");
}
