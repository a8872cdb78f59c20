//! Lanes, breakers and the ramp, with time as an argument.

use super::*;

fn id(n: u8) -> CallbackId {
    CallbackId([n; 16])
}

fn offer(hosts: &mut Hosts, host: &str, count: u8) {
    for n in 0..count {
        assert_eq!(hosts.offer(host, id(n), Timestamp(0)), Taken::Yes);
    }
}

fn sent(hosts: &mut Hosts, now: u64) -> Vec<String> {
    std::iter::from_fn(|| hosts.next(Timestamp(now)).map(|(host, _)| host)).collect()
}

#[test]
fn lanes_take_turns_and_an_unproven_host_gets_one_connection() {
    let mut hosts = Hosts::default();
    offer(&mut hosts, "a", 10);
    offer(&mut hosts, "b", 1);
    offer(&mut hosts, "c", 10);
    assert_eq!(sent(&mut hosts, 0), ["a", "b", "c"]);
    hosts.done("a", HostSays::Alive, Timestamp(1));
    assert_eq!(sent(&mut hosts, 1), ["a"; 4], "four once it has answered");
    assert_eq!(hosts.in_flight(), 6);
}

#[test]
fn callbacks_of_one_host_leave_in_the_order_in_which_they_became_due() {
    let mut hosts = Hosts::default();
    offer(&mut hosts, "a", 3);
    for n in 0..3 {
        assert_eq!(hosts.next(Timestamp(0)), Some(("a".to_owned(), id(n))));
        hosts.done("a", HostSays::Nothing, Timestamp(0));
    }
}

#[test]
fn five_failures_open_a_host_for_ten_seconds_then_one_probe_decides() {
    let mut hosts = Hosts::default();
    offer(&mut hosts, "dead", 20);
    for at in 0..5 {
        assert_eq!(sent(&mut hosts, at), ["dead"], "failure {at}");
        hosts.done("dead", HostSays::Failing, Timestamp(at));
    }
    assert_eq!(sent(&mut hosts, 10_003), [""; 0], "open: it waits and spends no try");
    assert_eq!(hosts.wake_at(), Some(Timestamp(10_004)));
    assert_eq!(sent(&mut hosts, 10_004), ["dead"], "one probe");
    hosts.done("dead", HostSays::Failing, Timestamp(10_010));
    assert_eq!(sent(&mut hosts, 20_009), [""; 0], "open again");
    assert_eq!(sent(&mut hosts, 20_010), ["dead"]);
    hosts.done("dead", HostSays::Alive, Timestamp(20_020));
    assert_eq!(sent(&mut hosts, 20_020), ["dead"; 4], "closed");
}

#[test]
fn an_open_host_does_not_hold_the_others() {
    let mut hosts = Hosts::default();
    offer(&mut hosts, "dead", 200);
    for at in 0..5 {
        assert_eq!(sent(&mut hosts, at), ["dead"]);
        hosts.done("dead", HostSays::Failing, Timestamp(at));
    }
    offer(&mut hosts, "well", 2);
    assert_eq!(sent(&mut hosts, 6), ["well"]);
    hosts.done("well", HostSays::Alive, Timestamp(7));
    assert_eq!(sent(&mut hosts, 7), ["well"]);
}

#[test]
fn hanging_hosts_leave_room_for_others_and_the_whole_is_bounded() {
    let mut hosts = Hosts::new(Limits { per_host: 100, in_all: 64 });
    offer(&mut hosts, "well", 200);
    assert_eq!(sent(&mut hosts, 0), ["well"]);
    hosts.done("well", HostSays::Alive, Timestamp(0));
    for n in 0..100 {
        offer(&mut hosts, &format!("hangs-{n:03}"), 10);
    }
    assert_eq!(sent(&mut hosts, 0).len(), 32 + 4, "a half of them for all that may hang");
    hosts.done("hangs-000", HostSays::Failing, Timestamp(1));
    assert_eq!(sent(&mut hosts, 1), ["hangs-032"], "the next in turn, not the one that failed");
    for _ in 0..200 {
        hosts.done("well", HostSays::Alive, Timestamp(1));
        sent(&mut hosts, 1);
    }
    let mut hosts = Hosts::new(Limits { per_host: 100, in_all: 64 });
    offer(&mut hosts, "well", 250);
    while hosts.in_flight() < 64 {
        sent(&mut hosts, 0);
        hosts.done("well", HostSays::Alive, Timestamp(0));
        sent(&mut hosts, 0);
    }
    assert_eq!(sent(&mut hosts, 1), [""; 0], "and no more than all");
}

#[test]
fn what_does_not_fit_into_a_lane_is_looked_for_again_once_it_has_room() {
    let mut hosts = Hosts::default();
    for n in 0..LANE {
        assert_eq!(hosts.offer("a", id(1), Timestamp(u64::try_from(n).expect("small"))), Taken::Yes);
    }
    assert_eq!(hosts.offer("a", id(2), Timestamp(5_000)), Taken::LaneFull);
    assert_eq!(hosts.offer("a", id(3), Timestamp(4_000)), Taken::LaneFull);
    assert_eq!(hosts.offer("b", id(3), Timestamp(0)), Taken::Yes, "others are not affected");
    assert_eq!(hosts.look_again("a"), None, "still full");
    for _ in 0..LANE - FEW / 2 {
        while let Some((host, _)) = hosts.next(Timestamp(9_000)) {
            hosts.done(&host, HostSays::Alive, Timestamp(9_000));
        }
    }
    assert_eq!(hosts.look_again("a"), Some(Timestamp(4_000)));
    assert_eq!(hosts.look_again("a"), None, "told once");
}

#[test]
fn quiet_lanes_are_forgotten() {
    let mut hosts = Hosts::default();
    for n in 0..100 {
        let host = format!("h{n}");
        offer(&mut hosts, &host, 1);
        assert_eq!(sent(&mut hosts, 0), [host.as_str()]);
        hosts.done(&host, HostSays::Nothing, Timestamp(0));
    }
    assert!(hosts.lanes.is_empty() && hosts.ready.is_empty() && hosts.opening.is_empty());
}

#[test]
fn semantics_21_callbacks_are_paced_after_a_start() {
    let mut ramp = Ramp::starting(Timestamp(1_000_000));
    let mut left = [0_u64; 25];
    for tenth in 0..250_u64 {
        let now = Timestamp(1_000_000 + tenth * 100);
        let mut burst = 0;
        while burst < 10_000 {
            match ramp.take(now) {
                Ok(()) => burst += 1,
                Err(later) => {
                    assert_eq!(later, Timestamp(now.0 + 100));
                    break;
                }
            }
        }
        left[usize::try_from(tenth / 10).expect("small")] += burst;
    }
    assert_eq!(left[..4], [50, 100, 150, 200]);
    assert!(left[20] >= 10_000, "no bound after 20 s");
}

/// Lets every callback run in virtual time against receivers that take so long and say that; when each ended, by host.
fn play(hosts: &mut Hosts, until: u64, receiver: impl Fn(&str) -> (u64, HostSays)) -> BTreeMap<String, Vec<u64>> {
    let (mut flying, mut ended) = (BTreeSet::new(), BTreeMap::<String, Vec<u64>>::new());
    let (mut now, mut number) = (0, 0);
    loop {
        while let Some((host, _)) = hosts.next(Timestamp(now)) {
            number += 1;
            flying.insert((now + receiver(&host).0, number, host));
        }
        let next = flying.first().map(|(end, _, _)| *end).into_iter().chain(hosts.wake_at().map(|at| at.0)).min();
        let Some(next) = next.filter(|next| *next <= until) else { return ended };
        now = next;
        while let Some((end, _, host)) = flying.pop_first() {
            if end > now {
                flying.insert((end, number + 1, host));
                number += 1;
                break;
            }
            hosts.done(&host, receiver(&host).1, Timestamp(now));
            ended.entry(host).or_default().push(now);
        }
    }
}

const QUICK: (u64, HostSays) = (50, HostSays::Alive);
const HANGS: (u64, HostSays) = (15_000, HostSays::Failing);
const TAKES_14_S: (u64, HostSays) = (14_000, HostSays::Slow);

fn lots(hosts: &mut Hosts, host: &str, count: usize) {
    for n in 0..count {
        assert_eq!(hosts.offer(host, id(u8::try_from(n % 200).expect("small")), Timestamp(0)), Taken::Yes);
    }
}

#[test]
fn a_quick_host_earns_connections_and_keeps_them_beside_a_hundred_that_hang_or_are_slow() {
    let busy = |alone: bool| {
        let mut hosts = Hosts::default();
        lots(&mut hosts, "quick", 1_000);
        for n in 0..if alone { 0 } else { 100 } {
            lots(&mut hosts, &format!("hangs-{n:03}"), 50);
            lots(&mut hosts, &format!("slow-{n:03}"), 50);
        }
        let ended = play(&mut hosts, 120_000, |host| match host.split('-').next() {
            Some("quick") => QUICK,
            Some("hangs") => HANGS,
            _ => TAKES_14_S,
        });
        let times = ended["quick"].clone();
        assert_eq!(times.len(), 1_000);
        times.iter().max().copied().unwrap_or_default() - times.iter().min().copied().unwrap_or_default()
    };
    let alone = busy(true);
    assert!(alone < 4_000, "a thousand by 16 at a time of 50 ms, after a start by four: {alone} ms");
    assert_eq!(busy(false), alone, "once it has answered nobody else is in its way");
}

#[test]
fn a_host_that_takes_long_but_answers_earns_connections_at_its_own_pace_up_to_its_bound() {
    let told = |per_host| {
        let mut hosts = Hosts::new(Limits { per_host, ..Limits::default() });
        lots(&mut hosts, "slow", 900);
        play(&mut hosts, 120_000, |_| TAKES_14_S)["slow"].len()
    };
    assert_eq!(told(4), 1 + 7 * 4);
    assert_eq!(told(16), 1 + 4 + 8 + 5 * 16);
    assert_eq!(told(64), 1 + 4 + 8 + 16 + 32 + 3 * 64);
}

#[test]
fn a_host_that_hangs_loses_what_it_earned_and_earns_it_again() {
    let mut hosts = Hosts::default();
    lots(&mut hosts, "a", 900);
    sent(&mut hosts, 0);
    for at in 1..40 {
        hosts.done("a", HostSays::Alive, Timestamp(at));
        sent(&mut hosts, at);
    }
    assert_eq!(hosts.in_flight(), 16);
    for at in 40..56 {
        hosts.done("a", HostSays::Failing, Timestamp(at));
    }
    assert_eq!(sent(&mut hosts, 20_000), ["a"], "one, and after a while");
    hosts.done("a", HostSays::Alive, Timestamp(20_001));
    assert_eq!(sent(&mut hosts, 20_001), ["a"; 4]);
}

#[test]
fn a_host_that_needs_few_connections_earns_no_more() {
    let mut hosts = Hosts::default();
    for at in 0..100 {
        offer(&mut hosts, "a", 1);
        assert_eq!(sent(&mut hosts, at), ["a"]);
        hosts.done("a", HostSays::Alive, Timestamp(at));
    }
    offer(&mut hosts, "a", 100);
    assert_eq!(sent(&mut hosts, 100), ["a"; 4]);
}
